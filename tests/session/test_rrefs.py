"""Remote references: the handles that the workers of D07 print, and what a user's forks come to."""

from __future__ import annotations

import pytest

from rpcinspect.session.model import RRef
from tests.checks.runs import traced, workload_trace
from tests.places import recorded
from tests.truth import workload


def ledger(name: str = "rref_relay") -> dict[tuple[int, int], RRef]:
    return {story.rref_id: story for story in workload_trace(name).rrefs}


def test_every_handle_that_a_worker_prints_is_its_fork() -> None:
    stories = ledger()
    seen = 0
    for event in workload("rref_relay").of("holds", "owns"):
        handle = event["handle"]
        story = stories[tuple(handle["rref_id"])]
        assert story.owner == handle["owner"]
        if handle["fork_id"] is None:
            assert event["worker"] == story.owner
            continue
        (fork,) = [fork for fork in story.forks if fork.fork_id == tuple(handle["fork_id"])]
        assert fork.holder == event["worker"]
        seen += 1
    assert seen == 6


def test_what_travelled_to_its_owner_is_home() -> None:
    owners = [
        event for event in workload("rref_relay").of("holds") if event["handle"]["owner"] == event["worker"]
    ]
    home = [fork for story in ledger().values() for fork in story.forks if fork.state == "home"]
    assert len(home) == len(owners) == 2
    assert {fork.holder for fork in home} == {"worker1"}


def test_at_the_end_nothing_is_alive_and_the_workers_say_so() -> None:
    info = next(
        event["info"] for event in workload("rref_relay").of("handles-left") if event["worker"] == "worker0"
    )
    assert info["num_owner_rrefs"] == 0
    for story in ledger().values():
        assert story.alive == ()
        for fork in story.forks:
            if fork.state == "deleted":
                assert fork.begin is not None
                assert fork.deleted is not None
                assert fork.acknowledged is not None
                assert fork.begin < fork.deleted < fork.acknowledged


def test_remote_calls_make_what_they_call() -> None:
    calls = workload("rref_relay").of("call", kind="remote")
    stories = [story for story in ledger().values() if story.created is not None]
    assert len(stories) == len(calls)
    for story, call in zip(stories, calls, strict=True):
        assert story.creator == call["worker"]
        assert story.owner == call["to"]
        assert story.what is not None
        assert story.what.split(".")[:2] == call["function"].split(".")[:2] or story.what.startswith(
            call["function"]
        )
        assert story.confirmed is not None


def test_a_local_value_is_the_owners() -> None:
    (event,) = workload("rref_relay").of("owns")
    story = ledger()[tuple(event["handle"]["rref_id"])]
    assert (story.creator, story.owner, story.created, story.what) == ("worker0", "worker0", None, None)


def test_fetches_and_backwards_are_counted() -> None:
    decoded = workload("rref_relay").decoded
    for kind, field in (("RREF_FETCH_CALL", "fetches"), ("RREF_BACKWARD_REQ", "backwards")):
        messages = [m["index"] for m in decoded.messages if m["body"]["type"].endswith(kind)]
        told = sorted(index for story in ledger().values() for index in getattr(story, field))
        assert told == messages
        assert messages


@pytest.mark.parametrize("name", ["torch/rref.pcap", "torch/kitchen.pcap", "torch/nested.pcap"])
def test_a_fork_has_one_state(name: str) -> None:
    forks = [fork for story in traced(recorded(name)).rrefs for fork in story.forks]
    assert forks or name != "torch/rref.pcap"
    assert all((fork.deleted is not None) == (fork.state == "deleted") for fork in forks)
