"""The bounds on what others may send: each of them is enforced somewhere."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import fields

from rpcinspect.replay.peers import events
from rpcinspect.replay.peers.events import DEFAULT_PEER_LIMITS, PeerLimits, PipeLost


def test_every_bound_is_finite_and_used() -> None:
    folder = Path(events.__file__).parents[1]
    sources = "".join(
        [path.read_text(encoding="utf-8") for path in folder.rglob("*.py") if path.name != "events.py"]
    )
    for bound in fields(PeerLimits):
        assert 0 < getattr(DEFAULT_PEER_LIMITS, bound.name) < 1 << 40
        assert f"limits.{bound.name}" in sources, f"nothing looks at {bound.name}"


def test_events_can_be_compared() -> None:
    one, two = (
        PipeLost(peer="a", other="b", pipe=1, inbound=False, reason="r", unanswered=(0,)) for _ in range(2)
    )
    assert one == two
    assert len({one, two}) == 1
