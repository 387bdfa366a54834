"""Four hosts with a network between them and a sniffer on each, as root; leaves nothing behind.

    python record.py MILLISECONDS FOLDER COMMAND…

Runs `COMMAND RANK 10.77.0.1` on each host, whose address is 10.77.0.RANK+1, and writes FOLDER/host0.pcap and so
on, and what the workers print to FOLDER/told.jsonl. A packet is on its way for so long. The hosts are network
namespaces, of which each has a TUN device; this process carries packets from one to the other.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

HOSTS, SECONDS = 4, 60
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def inside(host: int, *command: object) -> list[str]:
    return ["ip", "netns", "exec", f"host{host}", *map(str, command)]


@contextlib.contextmanager
def hosts() -> Iterator[list[int]]:
    """The other ends of their networks, in the order of their numbers."""
    libc = ctypes.CDLL(None, use_errno=True)
    ends: list[int] = []
    try:
        for host in range(HOSTS):
            subprocess.run(["ip", "netns", "add", f"host{host}"], check=True)
            with open(f"/var/run/netns/host{host}") as namespace:
                if libc.setns(namespace.fileno(), 0):
                    raise OSError(ctypes.get_errno(), "setns")
            ends.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK))
            fcntl.ioctl(ends[-1], TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TUN | IFF_NO_PI))
            for line in (f"addr add 10.77.0.{host + 1}/24 dev eth0", "link set lo up", "link set eth0 up"):
                subprocess.run(inside(host, "ip", *line.split()), check=True)
        yield ends
    finally:
        for end in ends:
            os.close(end)
        for host in range(HOSTS):
            subprocess.run(["ip", "netns", "del", f"host{host}"], check=False)


def carry(ends: list[int], way_s: float, over: threading.Event) -> None:
    """Carries packets; the last byte of an address is the host's number and 1 more."""
    waiting: list[tuple[float, int, bytes]] = []
    while not over.is_set():
        while waiting and waiting[0][0] <= time.monotonic():
            _, to, packet = heapq.heappop(waiting)
            os.write(ends[to], packet)
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.1
        for end in select.select(ends, [], [], pause)[0]:
            packet = os.read(end, 1 << 16)
            if packet[0] >> 4 == 4 and packet[16:19] == b"\x0a\x4d\x00" and packet[19] <= HOSTS:
                heapq.heappush(waiting, (time.monotonic() + way_s, packet[19] - 1, packet))


def main(milliseconds: float, folder: Path, command: list[str]) -> int:
    with hosts() as ends:
        over = threading.Event()
        carrying = threading.Thread(target=carry, args=(ends, milliseconds / 1000, over))
        carrying.start()
        tcpdump = ("tcpdump", "-q", "-U", "-i", "eth0", "tcp", "-w")
        sniffers = [
            subprocess.Popen(inside(host, *tcpdump, folder / f"host{host}.pcap")) for host in range(HOSTS)
        ]
        time.sleep(1)
        with (folder / "told.jsonl").open("a") as told:
            workers = [
                subprocess.Popen(inside(host, *command, host, "10.77.0.1"), stdout=told)
                for host in range(HOSTS)
            ]
        try:
            codes = [worker.wait(SECONDS) for worker in workers]
            time.sleep(0.5)
        finally:
            for process in (*workers, *sniffers):
                process.terminate()
                process.wait()
            over.set()
            carrying.join()
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
