"""The loopback's packets into a pcap, in this process, without tcpdump: for bench/gpu_check.py.

In: a path. Out: a capture of everything on `lo` while the `with` statement lasts. Needs CAP_NET_RAW: root, or
a network namespace of one's own, see `own_namespace`.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import threading
import time
from pathlib import Path
from types import TracebackType

ALL = 0x0003
OUTGOING = 4
"""The loopback shows each packet twice, once on its way out."""
SNAP = 1 << 18
BUFFER = 1 << 28
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SO_RCVBUFFORCE = 33
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


class Sniffer:
    """A thread that writes packets as they come."""

    def __init__(self, path: Path) -> None:
        self._sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
        with contextlib.suppress(OSError):  # in a namespace of our own the system's limit holds
            self._sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        self._sock.bind(("lo", 0))
        self._sock.settimeout(0.2)
        self._path = path
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sniffer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        time.sleep(0.3)
        self._over.set()
        self._thread.join(5)
        self._sock.close()

    def _run(self) -> None:
        with self._path.open("wb") as output:
            output.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, SNAP, 1))
            while True:
                try:
                    data, where = self._sock.recvfrom(SNAP)
                except TimeoutError:
                    if self._over.is_set():
                        return
                    continue
                if where[2] != OUTGOING:
                    now = time.time_ns()
                    head = struct.pack("<IIII", now // 10**9, now % 10**9, len(data), len(data))
                    output.write(head + data)


def may_sniff() -> bool:
    """Whether this process can open such a socket."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL)).close()
    except OSError:
        return False
    return True


def own_namespace() -> bool:
    """Moves this process into a network namespace of its own, with a loopback that nobody else uses; whether
    that went well. Who is not root needs a user namespace too. Before any thread is started."""
    user, group = os.getuid(), os.getgid()
    flags = CLONE_NEWNET if user == 0 else CLONE_NEWUSER | CLONE_NEWNET
    if ctypes.CDLL(None, use_errno=True).unshare(flags):
        return False
    try:
        if user:
            map_root(user, group)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    except OSError:
        return False
    return may_sniff()


def map_root(user: int, group: int) -> None:
    """This user is root in the new namespace."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path(f"/proc/self/{name}").write_text(text, encoding="ascii")
