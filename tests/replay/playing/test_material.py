"""Names and ids of a session's workers, in the capture and in the live group."""

from __future__ import annotations

from rpcinspect.equality.rules import Rules
from rpcinspect.replay.planning.model import PlannedSession
from rpcinspect.replay.planning.sessions import Cast
from rpcinspect.replay.playing.material import Material
from tests.replay.scripted import read_ones


def material(**more: object) -> Material:
    cast = Cast(0, ("w0",), ("w1",), "")
    return Material(
        planned=PlannedSession(number=0, cast=cast, steps=(), arrivals=(), overlaps=()),
        calls={},
        read=read_ones,
        rules=Rules(renames={"w1": "ps", "w0": "w0-replay-1"}),
        worker_ids={"w0": 0, "w1": 1, "w2": 2},
        **more,  # type: ignore[arg-type]
    )


def test_names_both_ways() -> None:
    made = material()
    assert [made.live_name(name) for name in ("w0", "w1", "w2")] == ["w0-replay-1", "ps", "w2"]
    assert [made.captured_name(name) for name in ("w0-replay-1", "ps", "w2")] == ["w0", "w1", "w2"]


def test_ids_as_captured_or_as_joined() -> None:
    assert material().ids_in_group == {"w0": 0, "w1": 1, "w2": 2}
    assert material(live_ids={"w0": 32767, "w1": 5}).ids_in_group == {"w0": 32767, "w1": 5}
