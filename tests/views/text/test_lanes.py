"""Lanes and arrows."""

from __future__ import annotations

from rich.cells import cell_len

from rpcinspect.views.text.lanes import Lanes

WORKERS = ("alpha", "beta", "gamma")


def test_arrows_go_from_lane_to_lane() -> None:
    lanes = Lanes(WORKERS)
    assert lanes.header() == "alpha       beta        gamma"
    assert lanes.arrow("alpha", "beta").rstrip() == "├───────────▶           │"
    assert lanes.arrow("gamma", "alpha").rstrip() == "◀───────────┼───────────┤"
    assert lanes.arrow("beta", "gamma", "┄").rstrip() == "│           ├┄┄┄┄┄┄┄┄┄┄┄▶"


def test_a_worker_may_call_itself() -> None:
    assert Lanes(WORKERS).arrow("beta", "beta").rstrip() == "│           ↻           │"


def test_all_lines_are_equally_wide() -> None:
    lanes = Lanes(("a", "訓練" * 9, "c" * 60))
    lines = [lanes.header(), lanes.arrow("a", "c" * 60), lanes.arrow("a", "a")]
    assert len({cell_len(line) for line in lines}) == 1


def test_too_many_workers_are_written_out() -> None:
    many = tuple(f"w{number}" for number in range(9))
    for lanes in (Lanes(many), Lanes(WORKERS, width=40)):
        assert not lanes.drawn
    assert Lanes(many).header().rstrip() == "from → to"
    assert Lanes(many).arrow("w0", "w8").rstrip() == "w0 → w8"
    assert Lanes(WORKERS, width=200).drawn


def test_a_stranger_leaves_the_lanes_empty() -> None:
    assert Lanes(WORKERS).arrow("alpha", "nobody").rstrip() == "│           │           │"


def test_nobody_has_no_lanes() -> None:
    assert Lanes(()).header() == ""
