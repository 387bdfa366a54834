"""What is left in the queue of a killed process comes into the log once, wherever its last write was cut."""

from __future__ import annotations

import json
import resource
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from rpcinspect.recorder.agent import DamagedQueueError, append, read_queue, recover
from tests.decoded import decode

FIRST = b'{"rpclog":1}\n'
NO_BATCH = (1 << 64) - 1


def record(number: int, payload: bytes = b"\x00\x01payload\n\n") -> bytes:
    """A message of a log; its number is its id."""
    header = {"rpc": "message", "time_ns": 1_000_000 + number, "src": "a", "dst": "b", "type": "PYTHON_CALL"}
    header |= {"id": number, "bytes": len(payload), "payload": len(payload)}
    return json.dumps(header).encode() + b"\n" + payload + b"\n" * bool(payload)


@dataclass
class Ring:
    """A queue file, filled as the page on its layout says."""

    capacity: int = 4096
    tail: int = 0
    batch_tail: int = 0
    batch_at: int = NO_BATCH
    counts: tuple[int, int, int, int] = (7, 8, 9, 10)
    over: int = 0

    def file(self, path: Path, entries: list[tuple[bytes, bool]]) -> Path:
        ring = bytearray(self.capacity)
        at = self.tail
        for data, complete in entries:
            for byte in data if complete else b"\0" + data[1:-5] + b"?????":
                ring[at % self.capacity] = byte
                at += 1
        assert at - self.tail <= self.capacity
        head = struct.pack(
            "=8s10Q",
            *(
                b"rpcqueu2",
                self.capacity,
                at,
                self.tail,
                self.batch_tail,
                self.batch_at,
                *self.counts,
                self.over,
            ),
        )
        path.write_bytes(head.ljust(4096, b"\0") + ring)
        return path


def recovered(path: Path, log: Path) -> int:
    """How many records of a queue came into the log."""
    queue = read_queue(path)
    assert queue is not None
    return recover(queue, path, log)


def ids(log: Path) -> list[int]:
    """Of the messages; nothing in the log may be damaged."""
    output = decode.__wrapped__(log)  # the file changes
    assert [problem for problem in output.problems() if problem["layer"] == "capture"] == []
    return [message["id"] for message in sorted(output.messages, key=lambda m: m["id"])]


@pytest.mark.parametrize("tail", [0, 16, 4000, 4096 * 5 + 4095])
def test_all_that_was_complete_comes_into_the_log(tmp_path: Path, tail: int) -> None:
    log = tmp_path / "x.rpclog"
    log.write_bytes(FIRST + record(0))
    entries = [(record(n), n != 3) for n in range(1, 6)]
    queue = Ring(tail=tail).file(tmp_path / "q", entries)
    assert recovered(queue, log) == 4
    assert ids(log) == [0, 1, 2, 4, 5]
    counts = read_queue(queue)
    assert counts is not None
    assert (counts.messages, counts.bytes, counts.dropped, counts.failed) == (7, 8, 9, 10)


CUT = [record(1), record(2, b""), record(3)]


@pytest.mark.parametrize("others", [False, True], ids=["cut at the end", "another process went on"])
def test_a_batch_that_was_cut_is_completed_wherever_that_was(tmp_path: Path, others: bool) -> None:
    log = tmp_path / "x.rpclog"
    batch = b"\n" + b"".join(CUT)
    begin = FIRST + record(0)
    queue = Ring(batch_at=len(begin) + 1).file(tmp_path / "q", [(one, True) for one in CUT])
    for cut in range(len(batch) + 1):
        log.write_bytes(begin + batch[:cut] + (b"\n" + record(8) + record(9) if others else b""))
        recovered(queue, log)
        assert ids(log) == [0, 1, 2, 3, *([8, 9] if others else [])], cut


def test_a_batch_that_was_finished_is_not_written_again(tmp_path: Path) -> None:
    """It was killed between the two stores that say so."""
    log = tmp_path / "x.rpclog"
    log.write_bytes(FIRST + b"\n" + record(1))
    queue = Ring(tail=256, batch_tail=0, batch_at=len(FIRST) + 1).file(tmp_path / "q", [(record(2), True)])
    recovered(queue, log)
    assert ids(log) == [1, 2]


def test_what_is_no_queue_is_none(tmp_path: Path) -> None:
    log = tmp_path / "x.rpclog"
    log.write_bytes(FIRST)
    for content in (b"", b"\0" * 8192, b"rpcqueu2", b"rpcqueu1" * 1000, b"rpcqueu2" + b"\0" * 5000):
        (tmp_path / "q").write_bytes(content)
        assert read_queue(tmp_path / "q") is None
    assert log.read_bytes() == FIRST


def test_a_recording_that_had_ended_stays_ended(tmp_path: Path) -> None:
    log = tmp_path / "x.rpclog"
    log.write_bytes(FIRST)
    queue = Ring(over=1).file(tmp_path / "q", [(record(1), True)])
    assert recovered(queue, log) == 0
    assert log.read_bytes() == FIRST


@pytest.mark.parametrize(
    "other", [b"zeros\0\0\0", b"{\xff}\n", b'{"bytes":-9}\n', b'{"bytes":99999}\n', b'{"bytes":"7"}\n']
)
def test_what_a_process_has_written_over_is_told_and_the_rest_is_there(tmp_path: Path, other: bytes) -> None:
    log = tmp_path / "x.rpclog"
    log.write_bytes(FIRST)
    queue = Ring().file(
        tmp_path / "q", [(record(1), True), (record(2), False), (record(3), True), (other, True)]
    )
    with pytest.raises(DamagedQueueError):
        recovered(queue, log)
    assert ids(log) == [1, 3]


def test_a_log_that_takes_no_more_is_told(tmp_path: Path) -> None:
    queue = Ring().file(tmp_path / "q", [(record(1), True)])
    with pytest.raises(OSError, match="No space left"):
        recovered(queue, Path("/dev/full"))


def test_of_lines_that_do_not_fit_none_is_there(tmp_path: Path) -> None:
    log = tmp_path / "x.rpclog"
    log.write_bytes(FIRST)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(FIRST) + 20, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            append(log, b"x" * 40)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert log.read_bytes() == FIRST
