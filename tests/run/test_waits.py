"""Which request waits for a gradient: of those that reach a worker, the one that is answered last."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from rpcinspect.rpc.command import PropagateGradientsReq, PropagateGradientsResp
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.message import MessageType
from rpcinspect.run.causes import Causes
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.waits import read_passes, waiting_requests
from tests.checks.runs import traced, workload_trace
from tests.places import foreign
from tests.replayer.talks import Workers

GRADIENT = MessageType.BACKWARD_AUTOGRAD_REQ


def gradient(workers: Workers, sender: int, receiver: int, begin: int, end: int, message: int) -> None:
    command = PropagateGradientsReq(AutogradMetadata(1, message), (), False)
    workers.call(sender, receiver, begin, end, command, PropagateGradientsResp())


def explained(workers: Workers) -> tuple[Sequence[Exchange], Causes]:
    return workers.calls(), workers.causes()


def test_a_gradient_that_comes_later_only_hands_in() -> None:
    """w0 begins; w1 asks w2, which gives its gradient back; then w1 sends to w0, because of what w2 sent."""
    workers = Workers(3)
    gradient(workers, 0, 1, 0, 100, 1)
    gradient(workers, 1, 2, 10, 60, 2)
    gradient(workers, 2, 1, 20, 24, 3)
    gradient(workers, 1, 0, 30, 40, 4)
    calls, causes = explained(workers)
    by_begin = {call.begin_ns: call.index for call in calls}
    waiting = waiting_requests(calls, causes)
    assert set(causes.of(by_begin[30])[0]) == {by_begin[0], by_begin[20]}  # no edges tell which
    assert waiting == {
        by_begin[10]: by_begin[0],
        by_begin[20]: by_begin[10],
        by_begin[30]: by_begin[0],
    }


def test_what_ends_after_the_answer_was_not_waited_for() -> None:
    workers = Workers(3)
    gradient(workers, 0, 1, 0, 50, 1)
    gradient(workers, 1, 2, 10, 60, 2)
    calls, causes = explained(workers)
    assert waiting_requests(calls, causes) == causes.parents


def test_a_gradient_is_away_until_it_comes_back() -> None:
    """w0 begins; w1 sends it on to w2, which sends it to w0, and that to w1: away from 10 to 42."""
    workers = Workers(3)
    gradient(workers, 0, 1, 0, 100, 1)
    gradient(workers, 1, 2, 10, 60, 2)
    gradient(workers, 2, 0, 20, 24, 3)
    gradient(workers, 0, 1, 40, 44, 4)
    calls, causes = explained(workers)
    by_begin = {call.begin_ns: call for call in calls}
    passes = read_passes(calls, causes)
    (((left, back),),) = passes.away.values()
    assert passes.away.keys() == {by_begin[0].index}
    assert (left, back) == (10, by_begin[40].arrived_ns)
    assert passes.handed_in == {by_begin[40].index}


def test_what_comes_from_others_was_not_away() -> None:
    """w0 sends to w1 and w2, and w2 to w1."""
    workers = Workers(3)
    gradient(workers, 0, 1, 0, 100, 1)
    gradient(workers, 0, 2, 10, 60, 2)
    gradient(workers, 2, 1, 20, 24, 3)
    passes = read_passes(*explained(workers))
    assert passes.away == {}
    assert len(passes.handed_in) == 1


def test_one_pass_after_another_hands_nothing_in() -> None:
    workers = Workers(2)
    gradient(workers, 0, 1, 0, 10, 1)
    gradient(workers, 0, 1, 20, 30, 1)
    assert not read_passes(*explained(workers)).handed_in


def test_other_calls_have_the_parents_that_explain_them() -> None:
    trace = workload_trace("bwd_boom")
    for call in trace.exchanges.calls:
        if call.kind != GRADIENT:
            assert trace.waiting.get(call.index) == trace.causes.parents.get(call.index)


RUNS = ["pairs/base", "ctx_crowd", "bwd_boom", "rref_relay", "examples/rnn_basic.pcap.gz"]


@pytest.mark.parametrize("name", RUNS)
def test_nobody_works_on_the_path_of_a_pass_while_its_own_gradients_are_out(name: str) -> None:
    """Where the receiver of a gradient "works", none that it sent in the context was out."""
    trace = traced(foreign(name)) if name.endswith(".gz") else workload_trace(name)
    calls = trace.calls
    spans = 0
    for graph in trace.graphs:
        sent = [c for c in calls.values() if c.kind == GRADIENT and c.context == graph.context_id]
        path = trace.critical_path(graph)
        assert all(a.end_ns == b.begin_ns for a, b in pairwise(path))
        for part in path:
            if part.kind != "busy" or part.request is None or calls[part.request].kind != GRADIENT:
                continue
            spans += 1
            own = [c for c in sent if c.caller == part.worker and c.end_ns is not None]
            assert not [c for c in own if part.begin_ns <= c.begin_ns and (c.end_ns or 0) <= part.end_ns]
    assert spans
