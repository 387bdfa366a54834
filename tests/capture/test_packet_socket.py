"""Packets as the kernel hands them over, in a network of our own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rpcinspect.capture.packet_socket import open_socket
from rpcinspect.errors import CaptureError
from tests.recorder.recording import environment, need_own_network

TALK = """
import select, socket, sys
from rpcinspect.recorder.namespace import enter_own_network
from rpcinspect.capture.packet_socket import Ring, open_socket
enter_own_network()
ring = Ring(open_socket(sys.argv[1]), tcp_only=sys.argv[2] == "tcp")
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
    other, _ = server.accept()
    one.sendall(b"over tcp")
    other.recv(100)
    other.close()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
    udp.sendto(b"over udp", ("127.0.0.1", 9))
found = []
while select.select([ring], [], [], 0.5)[0]:
    found += [header[16:] + bytes(data) for header, data in ring.take()]
    ring.release()
counts = [sum(text in data for data in found) for text in (b"over tcp", b"over udp")]
print(ring.link_type, ring.dropped(), *counts)
print(all(packet[12 if sys.argv[1] == "lo" else 14 :][:2] == bytes([8, 0]) for packet in found))
"""


@pytest.mark.parametrize("what", ["tcp", "all"])
@pytest.mark.parametrize(("interface", "link"), [("lo", 1), ("any", 113)])
def test_each_packet_that_is_asked_for_comes_once(interface: str, link: int, what: str) -> None:
    need_own_network()
    done = subprocess.run(
        [sys.executable, "-c", TALK, interface, what],
        check=True,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )
    udp = 2 if what == "all" else 0  # an ICMP error quotes what nobody receives
    assert done.stdout.splitlines() == [f"{link} 0 1 {udp}", "True"]


@pytest.mark.parametrize("name", ["no-such", "", "x" * 30])
def test_an_interface_that_is_not_there(name: str) -> None:
    with pytest.raises(CaptureError, match=r"no such interface; this machine has .*lo.*any"):
        open_socket(name)
