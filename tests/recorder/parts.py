"""Several workloads recorded by one command (workloads.py), and the recording parted: a capture for each.

In: what the command printed, and the recordings in its folder. Out: `Part`s. A packet belongs to the workload
in whose time it was seen; a message of the log to the one after which the log was longer by it.
"""

from __future__ import annotations

import json
import struct
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.recorder.recording import CAPTURES, Ran
from tests.truth import Workload

PROGRAM = Path(__file__).with_name("workloads.py")
CAPTURE, LOG = "x.pcap", "x.rpclog"
LOG_LINE = b'{"rpclog":1}\n'
NANOSECONDS = struct.pack("<I", 0xA1B23C4D)
FILE_HEADER, RECORD_HEADER = 24, struct.Struct("<IIII")


@dataclass(frozen=True)
class Part:
    """One workload of a recorded command."""

    name: str
    printed: str
    """By its workers."""
    folder: Path

    @property
    def capture(self) -> Path:
        return self.folder / f"{self.name}.pcap"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.rpclog"

    @cached_property
    def of_wire(self) -> Workload:
        """As the wire has it."""
        return Workload(self.name, self.capture, self.printed)

    @cached_property
    def of_agent(self) -> Workload:
        """As the agent has it."""
        return Workload(self.name, self.log, self.printed)


def workloads(*names: str, python: str = sys.executable, modules: Path = CAPTURES) -> tuple[str, ...]:
    """The command that runs them."""
    return (python, str(PROGRAM), str(modules), LOG, *names)


def parted(done: Ran, folder: Path) -> Mapping[str, Part]:
    """By name, the parts of what was recorded into `folder`."""
    runs = [json.loads(line) for line in done.out.splitlines()]
    if (folder / CAPTURE).exists():
        begins = [run["begin_ns"] for run in runs]
        for run, data in zip(runs, _by_time((folder / CAPTURE).read_bytes(), begins), strict=True):
            (folder / f"{run['name']}.pcap").write_bytes(data)
    if (folder / LOG).exists():
        log, begin = (folder / LOG).read_bytes(), 0
        for run in runs:
            (folder / f"{run['name']}.rpclog").write_bytes(LOG_LINE + log[begin : run["log_end"]])
            begin = run["log_end"]
    return {run["name"]: Part(run["name"], run["printed"], folder) for run in runs}


def _by_time(pcap: bytes, begins: list[int]) -> list[bytes]:
    """A capture of nanoseconds as one for each time: from then to the next."""
    parts = [bytearray(pcap[:FILE_HEADER]) for _ in begins]
    for time_ns, record in _records(pcap):
        parts[max(0, bisect_right(begins, time_ns) - 1)] += record
    return [bytes(part) for part in parts]


def _records(pcap: bytes) -> Iterator[tuple[int, bytes]]:
    assert pcap.startswith(NANOSECONDS)
    at = FILE_HEADER
    while at < len(pcap):
        seconds, nanoseconds, length, _ = RECORD_HEADER.unpack_from(pcap, at)
        end = at + RECORD_HEADER.size + length
        yield seconds * 10**9 + nanoseconds, pcap[at:end]
        at = end
