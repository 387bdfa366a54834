"""The process that writes packets, in a network of our own."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

from tests.recorder.recording import environment, need_own_network

SNIFF = """
import json, socket, sys
from msgspec.structs import asdict
from pathlib import Path
from rpcinspect.recorder.namespace import enter_own_network
from rpcinspect.recorder.packet_socket import Ring, open_socket
from rpcinspect.recorder.sniffer import Sniffer
enter_own_network()
sniffer = Sniffer(Ring(open_socket("lo")), Path(sys.argv[1]))
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
    other, _ = server.accept()
    for number in range(100):
        one.sendall(b"%3d" % number)
        other.recv(3)
    other.close()
print(json.dumps([sniffer.is_alive(), asdict(sniffer.finish()), sniffer.is_alive()]))
sniffer.close()
"""


def sniffed(path: Path) -> tuple[bool, dict[str, object], bool]:
    need_own_network()
    done = subprocess.run(
        [sys.executable, "-c", SNIFF, str(path)],
        check=True,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )
    first, report, last = json.loads(done.stdout)
    return first, report, last


def test_everything_until_the_end_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    first, report, last = sniffed(path)
    assert (first, last) == (True, False)
    data = path.read_bytes()
    assert report["bytes"] == len(data)
    assert (report["dropped"], report["failed"]) == (0, None)
    assert [number for number in range(100) if b"%3d" % number not in data] == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_full_disk(tmp_path: Path) -> None:
    _, report, _ = sniffed(Path("/dev/full"))
    assert report["failed"] == "No space left on device"
    assert (report["packets"], report["bytes"]) == (0, 0)
