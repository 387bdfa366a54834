"""What messages take part in, against the graphs and the ledger, which list their messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.run.participation import Participation
from rpcinspect.run.participation import participation_of as touched_by
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import NONE
from rpcinspect.session.provenance import Id
from tests.checks.runs import traced, workload_trace
from tests.places import recordings
from tests.truth import CAPTURES

NAMES = ("basic_chain", "bwd_boom", "rref_relay", "ps_race", "reinit", "devmap_cpu")


def touched(run: RunModel, index: int | None = None) -> Participation:
    """By one message; by all without an index."""
    rows = bytearray(len(run.messages))
    for record in run.messages:
        rows[record.row] = index is None or int(run.session.index[record.row]) == index
    return touched_by(run.session, bytes(rows))


Members = tuple[dict[tuple[int, int], set[int]], dict[tuple[int, Id], set[int]]]


def members(run: RunModel) -> Members:
    """Messages of each context and of each RRef, as the graphs and the ledger tell them."""
    contexts = {
        (graph.job, graph.context_id): {
            *(edge.forward for edge in graph.edges),
            *(gradient.message for gradient in graph.gradients),
            *(message.message for message in graph.passing),
        }
        for graph in run.graphs
    }
    rrefs = {}
    for story in run.rrefs:
        requests = {story.created, *story.fetches, *story.backwards}
        for fork in story.forks:
            requests |= {fork.requested, fork.accepted, fork.deleted}
        requests.discard(None)
        begins = {fork.begin for fork in story.forks if fork.begin is not None}
        its = {answered for request in requests if (answered := _answer(run, request)) is not None}
        rrefs[story.job, story.rref_id] = {i for i in requests | its | begins if i is not None}
    return contexts, rrefs


def _answer(run: RunModel, index: int | None) -> int | None:
    assert index is not None
    partner = run.session.messages.partner[int(run.session.order[index])]
    return None if partner == NONE else int(run.session.index[partner])


@pytest.mark.parametrize("name", NAMES)
def test_each_message_alone(name: str) -> None:
    run = workload_trace(name)
    contexts, rrefs = members(run)
    for index in range(len(run.messages)):
        found = touched(run, index)
        assert found.contexts == {key for key, its in contexts.items() if index in its}
        assert found.rrefs == {key for key, its in rrefs.items() if index in its}


@pytest.mark.parametrize(
    "path", recordings("torch-suite", like="DistAutogradTest*.pcap*")[:12], ids=lambda path: path.name
)
def test_all_messages_touch_all_that_is_known(path: Path) -> None:
    run = traced(path)
    contexts, rrefs = members(run)
    found = touched(run)
    assert found.contexts == {key for key, its in contexts.items() if its}
    assert found.rrefs == {key for key, its in rrefs.items() if its}


def test_nothing_is_touched_by_nothing() -> None:
    run = traced(CAPTURES / "basic_chain.pcap")
    assert touched(run, -1) == Participation()
