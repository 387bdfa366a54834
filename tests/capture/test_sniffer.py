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
from msgspec import to_builtins
from pathlib import Path
from rpcinspect.capture.packet_socket import Ring, open_socket
from rpcinspect.capture.sniffer import Sniffer
from rpcinspect.files.output import open_growing
from rpcinspect.recorder.namespace import enter_own_network
enter_own_network()
sniffer = Sniffer(Ring(open_socket("lo")), open_growing(Path(sys.argv[1])))
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
    other, _ = server.accept()
    for number in range(100):
        one.sendall(b"%3d" % number)
        other.recv(3)
    other.close()
print(json.dumps(to_builtins(sniffer.finish())))
sniffer.close()
"""


def sniffed(path: Path) -> dict[str, object]:
    need_own_network()
    done = subprocess.run(
        [sys.executable, "-c", SNIFF, str(path)],
        check=True,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )
    report: dict[str, object] = json.loads(done.stdout)
    return report


def test_everything_until_the_end_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    report = sniffed(path)
    data = path.read_bytes()
    assert report["bytes"] == len(data)
    assert (report["dropped"], report["ended_early"]) == (0, None)
    assert [number for number in range(100) if b"%3d" % number not in data] == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_full_disk(tmp_path: Path) -> None:
    report = sniffed(Path("/dev/full"))
    assert report["ended_early"] == "No space left on device"
    assert (report["packets"], report["bytes"]) == (0, 0)
