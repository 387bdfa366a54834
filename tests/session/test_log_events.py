"""What logs tell stands beside a session, which has none unless some were read."""

from __future__ import annotations

from msgspec.structs import replace

from rpcinspect.session.log_events import WorkerLogs
from tests.session.records import Talk


def test_a_session_without_logs() -> None:
    session = Talk().finish()
    assert session.worker_logs is None
    session = replace(session, worker_logs=WorkerLogs(files=(), events=()))
    assert session.worker_logs.events == ()
