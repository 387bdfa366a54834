"""Names and ids of a session's workers, in the capture and in the live group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from rpcinspect.equality.rules import Rules
from rpcinspect.replayer.planning.model import PlannedSession
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.planning.sessions import RoleAssignment
from rpcinspect.replayer.playing import inputs as module
from rpcinspect.replayer.playing.inputs import LEAST, TIMES, SessionInputs, allowance, captured_bytes
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import RunModel
from tests.replayer.hostile_captures import Job
from tests.replayer.scripted import read_ones
from tests.replayer.talks import udf
from tests.truth import capture_of


def inputs(**more: object) -> SessionInputs:
    cast = RoleAssignment(0, ("w0",), ("w1",), "")
    return SessionInputs(
        planned=PlannedSession(number=0, cast=cast, steps=(), arrivals=(), overlaps=()),
        calls={},
        read=read_ones,
        rules=Rules(renames={"w1": "ps", "w0": "w0-replay-1"}),
        worker_ids={"w0": 0, "w1": 1, "w2": 2},
        ids_in_group={"w0": 0, "w1": 1, "w2": 2},
        **more,  # type: ignore[arg-type]
    )


def test_names_both_ways() -> None:
    made = inputs()
    assert [made.live_name(name) for name in ("w0", "w1", "w2")] == ["w0-replay-1", "ps", "w2"]
    assert [made.captured_name(name) for name in ("w0-replay-1", "ps", "w2")] == ["w0", "w1", "w2"]


@contextmanager
def session_of(path: Path) -> Iterator[tuple[PlannedSession, dict[int, Exchange]]]:
    """The first session of a capture, everything allowed."""
    with RunModel.open([str(path)]) as opened:
        made = plan(opened, PlanOptions(trust=True))
        yield made.sessions[0], opened.calls


def test_small_captures_have_the_least() -> None:
    with session_of(capture_of("basic_chain")) as (planned, calls):
        assert allowance(planned, calls) == LEAST


def test_large_ones_have_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent and what comes back count, and nothing that is skipped."""
    monkeypatch.setattr(module, "LEAST", 0)
    path = (
        Job()
        .call(udf("app.f"), b"\x80\x02B" + (1 << 20).to_bytes(4, "little") + bytes(1 << 20) + b".")
        .write(tmp_path)
    )
    with session_of(path) as (planned, calls):
        most = allowance(planned, calls)
        assert TIMES << 20 < most < TIMES << 21
        none = replace(planned, steps=tuple(replace(step, action="skip") for step in planned.steps))
        assert allowance(none, calls) == 0


def test_only_captured_bytes_count() -> None:
    """In a capture of TCP alone, tensors went through shared memory: announced, and not there."""
    with session_of(capture_of("transport_matrix_uv_only")) as (_, calls):
        with_tensors = [call.request for call in calls.values() if call.request.tp.tensors]
        assert with_tensors
        for record in with_tensors:
            assert all(tensor.missing_bytes for tensor in record.tp.tensors)
            assert captured_bytes(record) == sum(map(len, record.tp.payloads))
    with session_of(capture_of("basic_chain")) as (_, calls):
        record = next(call.request for call in calls.values() if len(call.request.tp.tensors) == 2)
        tensors = sum(tensor.descriptor.length for tensor in record.tp.tensors)
        assert captured_bytes(record) == sum(map(len, record.tp.payloads)) + tensors
