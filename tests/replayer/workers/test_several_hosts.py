"""Live workers on two hosts, started there by torchrun, and a role that is played from one of them. The hosts
are network namespaces with a cable between them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.replayer.programs import PROGRAM, START_S, until
from tests.truth import CAPTURES

pytest.importorskip("torch")
pytestmark = [pytest.mark.rooted, pytest.mark.slow, pytest.mark.usefixtures("nothing_left")]

TORCHRUN = Path(sys.executable).with_name("torchrun")
SECONDS = 2 * START_S
"""torchrun imports torch before its workers do."""


@dataclass
class Host:
    """A network namespace."""

    number: int
    folder: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"rpcinspect-{os.getpid()}-{self.number}"

    @property
    def interface(self) -> str:
        return f"rpi{self.number}"

    @property
    def address(self) -> str:
        return f"10.77.0.{self.number + 1}"

    @property
    def log(self) -> Path:
        return self.folder / f"host{self.number}.log"

    def command(self, *arguments: object) -> list[str]:
        return ["ip", "netns", "exec", self.name, *map(str, arguments)]

    def torchrun(self, first: Host, *arguments: object) -> subprocess.Popen[bytes]:
        """The worker program, as docs/replay.md starts it."""
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                self.command(
                    *(TORCHRUN, "--nnodes", 2, "--nproc-per-node", 1, "--node-rank", self.number),
                    *("--master-addr", first.address, "--master-port", 29400),
                    *(PROGRAM, "--transport", "uv", *arguments),
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"TP_SOCKET_IFNAME": self.interface, "GLOO_SOCKET_IFNAME": self.interface},
            )
        self.running.append(process)
        return process

    def join(self, *arguments: object) -> tuple[int, list[dict[str, Any]], str]:
        done = subprocess.run(
            self.command(sys.executable, "-m", "rpcinspect", "join", *arguments, "--format", "jsonl"),
            check=False,
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS,
            cwd=CAPTURES.parent,
        )
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def end(self) -> None:
        """Whatever still runs in here, by its number."""
        found = subprocess.run(
            ["ip", "netns", "pids", self.name], check=False, capture_output=True, encoding="ascii"
        )
        for pid in map(int, found.stdout.split()):
            os.kill(pid, signal.SIGKILL)
        for process in self.running:
            process.kill()
            process.wait()
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Two hosts with a cable between them; gone with all that runs there when the test ends."""
    if os.geteuid() != 0:
        pytest.skip("not root")
    if shutil.which("ip") is None or not TORCHRUN.exists():
        pytest.skip("ip or torchrun is not installed")
    pair = Host(0, tmp_path), Host(1, tmp_path)
    one, two = pair
    try:
        for host in pair:
            if subprocess.run(["ip", "netns", "add", host.name], check=False, capture_output=True).returncode:
                pytest.skip("no network namespaces here")
        cable = ["ip", "link", "add", one.interface, "netns", one.name, "type", "veth"]
        peer = ["peer", "name", two.interface, "netns", two.name]
        if subprocess.run([*cable, *peer], check=False, capture_output=True).returncode:
            pytest.skip("no virtual cables here")
        for host in pair:
            inside = ["ip", "-n", host.name]
            subprocess.run([*inside, "addr", "add", f"{host.address}/24", "dev", host.interface], check=True)
            for interface in ("lo", host.interface):
                subprocess.run([*inside, "link", "set", interface, "up"], check=True)
        yield pair
    finally:
        for host in pair:
            host.end()


def test_a_role_is_played_from_one_of_two_hosts(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    running = [host.torchrun(one, "worker1", "worker2", "--path", CAPTURES) for host in hosts]
    until(lambda: all("is a member" in host.log.read_text() for host in hosts), SECONDS)
    assert "rpcinspect join tcp://10.77.0.1:29400 FILE --yes" in two.log.read_text()
    for host in (two, one):
        code, lines, errors = host.join(
            *("tcp://10.77.0.1:29400", CAPTURES / "rref_relay.pcap.gz", "--path", CAPTURES, "--yes")
        )
        assert (code, errors) == (0, "")
        report = lines[-1]
        assert {line["from"] for line in lines if line["kind"] == "inbound"} == {"worker1", "worker2"}
        assert report["verdict"] == "identical"
        assert report["responses"]["identical"] == report["responses"]["expected"] == 16
        assert report["gradients"]["identical"] == report["gradients"]["expected"] == 1
    for host, process in zip((two, one), reversed(running), strict=True):  # the store's host last
        process.send_signal(signal.SIGTERM)
        end = time.monotonic() + SECONDS
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        assert process.poll() is not None
        assert "has left" in host.log.read_text()
