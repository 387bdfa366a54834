"""Recording the wire: torch is made to send everything over TCP (startup/rpcinspect_wire.py), and a sniffer
writes the packets of an interface into a pcap.

In: the file, the interface, and whether the command gets a network of its own. Out: a `RecordingResult`. A
write that fails ends the recording, with one line on standard error at that moment, and the job goes on.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from rpcinspect.capture.packet_socket import Ring, open_socket
from rpcinspect.capture.sniffer import Sniffer
from rpcinspect.errors import CaptureError, OutputError, RecordError
from rpcinspect.files.output import open_growing
from rpcinspect.recorder.processes import Process, ProcessNote
from rpcinspect.recorder.record import Mechanism, RecordingResult
from rpcinspect.session.ended import Ended

MAY_NOT_CAPTURE = (
    "capturing packets is not allowed here: run rpcinspect as root, or give its Python that right "
    "(sudo setcap cap_net_raw+ep, on the file that `readlink -f` names), or use --private-net"
)


class WireMechanism(Mechanism):
    """Packets of one interface. What can be refused is asked for by the process that becomes the command."""

    via = "wire"

    def __init__(self, file: Path, *, interface: str = "lo", private_net: bool = False) -> None:
        self._file = file
        self._interface = interface
        self._private_net = private_net
        self._sniffer: Sniffer | None = None

    def stage(self) -> Sequence[int]:
        """The socket, opened where the command will be."""
        if self._private_net:
            enter_own_network()
        try:
            return [open_socket(self._interface).detach()]
        except PermissionError as error:
            raise RecordError(MAY_NOT_CAPTURE) from error
        except OSError as error:
            raise RecordError(f"this system has no packet sockets: {error}") from error
        except CaptureError as error:
            raise RecordError(f"--interface {error}") from error

    def begin(self, descriptors: Sequence[int]) -> None:
        """The sniffer starts."""
        (descriptor,) = descriptors
        try:
            ring = Ring(socket.socket(fileno=descriptor))
        except CaptureError as error:
            raise RecordError(str(error)) from error
        try:
            output = open_growing(self._file)
        except OutputError:
            ring.close()
            raise
        self._sniffer = Sniffer(ring, output, complain=self._complaint)

    def _complaint(self, reason: str) -> str:
        return f"rpcinspect: {self._file}: {reason}: the recording ends here, the job goes on\n"

    def finish(self, notes: Sequence[ProcessNote], ends: Mapping[Process, Ended]) -> RecordingResult:
        """The sniffer writes what is left and ends; a pcap has no place for ends of processes."""
        assert self._sniffer is not None
        sniffed = self._sniffer.finish()
        size, why = sniffed.bytes, sniffed.ended_early
        if size is None:
            try:
                size = self._file.stat().st_size
            except OSError:
                size, why = 0, f"{why}, and its file removed"
        return RecordingResult(
            file=self._file, bytes=size, packets=sniffed.packets, dropped=sniffed.dropped, ended_early=why
        )

    def close(self) -> None:
        """Ends the sniffer."""
        if self._sniffer is not None:
            self._sniffer.close()


CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1

FORBIDDEN = {
    errno.EPERM: "this system, or the container, lets nobody but root make network namespaces",
    errno.ENOSPC: "this system allows no more namespaces (sysctl user.max_user_namespaces)",
    errno.EINVAL: "this kernel has no such namespaces, or this process has several threads",
    errno.ENOSYS: "this kernel has no namespaces",
}
NO_RIGHTS = (
    "this system gives users no rights in their namespaces "
    "(Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns)"
)


def enter_own_network() -> None:
    """Moves this process, which must have one thread, into a network namespace with nothing but a loopback
    interface: what is sent there nobody else sees, and may be captured without being root. It stays the user
    that it was. `RecordError` where the system forbids that.

    Root needs a network namespace only; everybody else, and root without its rights, gets a user namespace
    too, in which only its own ids exist."""
    user, group = os.geteuid(), os.getegid()
    if user or _unshare(CLONE_NEWNET):
        number = _unshare(CLONE_NEWUSER | CLONE_NEWNET)
        if number:
            raise RecordError(f"--private-net: {FORBIDDEN.get(number, os.strerror(number))}")
        _keep_ids(user, group)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    except OSError as error:
        raise RecordError(f"--private-net: {_reason(error)}") from error


def _unshare(flags: int) -> int:
    """0, or the number of the error."""
    libc = ctypes.CDLL(None, use_errno=True)
    return ctypes.get_errno() if libc.unshare(flags) else 0


def _keep_ids(user: int, group: int) -> None:
    ids = (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"))
    try:
        for name, text in ids:
            Path(f"/proc/self/{name}").write_text(text, encoding="ascii")
    except OSError as error:
        raise RecordError(f"--private-net: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    return NO_RIGHTS if error.errno in (errno.EPERM, errno.EACCES) else error.strerror or str(error)
