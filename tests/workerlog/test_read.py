"""Whole logs: whose lines they are, what is counted, what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rpcinspect.workerlog import read
from rpcinspect.workerlog.read import read_lines

LOGS = Path(__file__).resolve().parent.parent.parent / "captures/logs"
EOF_OF = "RPC agent for {} encountered error when reading incoming request from {}: EOF"


def test_a_real_log() -> None:
    path = LOGS / "killed.worker2.log"
    lines = path.read_text().splitlines()
    log = read_lines("w2", lines)
    assert (log.workers, log.total, log.left_out) == (("worker2",), len(lines), 0)
    raised = [line.statement.cause for line in log.lines if line.statement.what == "raised"]
    assert raised[0] == "KeyError('no such weight')"
    lost = [line.statement.peer for line in log.lines if line.statement.lost]
    truth = (LOGS / "killed.truth").read_text().splitlines()
    events = [json.loads(line.removeprefix("TRUTH ")) for line in truth]
    assert set(lost) == {event["peer"] for event in events if event["event"] == "lost"}
    assert all(line.statement.worker == "worker2" for line in log.lines)


def test_ranks_tell_whose_a_line_is() -> None:
    log = read_lines(
        "torchrun",
        [
            "[rank1]: RuntimeError: RPCErr:1:late",
            f"[rank0]:[W a.cpp:1] {EOF_OF.format('w0', 'w1')}",
            f"[rank1]:[W a.cpp:1] {EOF_OF.format('w1', 'w0')}",
            "[rank2]: RuntimeError: RPCErr:1:late",
            "RuntimeError: RPCErr:1:late",
        ],
    )
    assert [line.statement.worker for line in log.lines] == ["w1", "w0", "w1", None, None]


def test_the_user_says_whose_it_is() -> None:
    log = read_lines("x", ["RuntimeError: RPCErr:1:late", EOF_OF.format("w0", "w1")], "w7")
    assert [line.statement.worker for line in log.lines] == ["w7", "w0"]


def test_what_is_too_much_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "MAX_LINES", 2)
    log = read_lines("x", [EOF_OF.format("w0", "w1")] * 5 + ["other"])
    assert (len(log.lines), log.left_out, log.total) == (2, 3, 6)
