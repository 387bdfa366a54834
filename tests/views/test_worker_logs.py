"""What logs tell, in words."""

from __future__ import annotations

from rpcinspect.session.model import LogEvent, LogFile, WorkerLogs
from rpcinspect.views.worker_logs import event_json, file_lines, is_bad, said


def event(text: str, **fields: object) -> LogEvent:
    known = {"file": 0, "line": 1, "worker": "w", "peer": None, "what": "agent", "lost": False}
    known |= {"severity": None, "time_ns": None, "placed": None, "message": None, "type": None}
    return LogEvent(text=text, **(known | fields))  # type: ignore[arg-type]


def test_what_was_captured_moves_no_terminal() -> None:
    assert "\x1b" not in said(event("a\x1b[31mb"))
    assert len(said(event("x" * 5000))) == 300
    assert event_json(event("a\udcffb"))["text"].encode("utf-8")


def test_what_is_bad() -> None:
    assert is_bad(event("x", lost=True))
    assert is_bad(event("x", severity="error"))
    assert not is_bad(event("x", severity="warning"))


def test_files() -> None:
    file = LogFile(
        path="w.log",
        workers=("w",),
        lines=1,
        rpc_lines=1,
        zone_s=-16200,
        matched=2,
        uncertainty_ns=5_000_000,
        notes=("odd",),
    )
    assert list(file_lines(WorkerLogs(files=(file,), events=()))) == [
        (
            "w.log: log of w, 1 line, 1 of RPC, times in UTC-04:30 (within 5 ms of what 2 lines speak of)",
            False,
        ),
        ("  odd", True),
    ]
