"""Captures of static groups are played in dynamic ones, and it is told which is which."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.runner import CAPTURES, CHAIN, rpcinspect
from tests.truth import workload


def test_a_static_group_is_played_as_a_dynamic_one(tmp_path: Path) -> None:
    """The job's workers joined with a world size. The recording of the replay is a capture in which members
    tell each other of a new one, and is played again itself."""
    pytest.importorskip("torch")
    assert {event["world_size"] for event in workload("basic_chain").of("worker")} == {2}
    first = tmp_path / "first.pcap"
    ran = rpcinspect("replay", CHAIN, "--path", CAPTURES, "--record", first)
    assert ran.code == 0
    assert "the captured group was static (init_rpc with world_size); here it is dynamic" in ran.out
    decoded = rpcinspect("decode", first, "--all").out
    assert "_update_group_membership" in decoded
    assert "_gather_to_leader" not in decoded
    again = rpcinspect("replay", first, "--path", CAPTURES, "--format", "jsonl").objects[-1]
    assert (again["verdict"], again["groups"]) == ("identical", {"captured": ["dynamic"], "live": "dynamic"})


def test_a_plan_tells_it_too() -> None:
    (*_, made) = rpcinspect("replay", CHAIN, "--plan", "--format", "jsonl").objects
    assert made["groups"] == {"captured": ["static"], "live": "dynamic"}
