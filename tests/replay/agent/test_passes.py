"""Which gradients belong to one backward pass, on made up conversations."""

from __future__ import annotations

from rpcinspect.replay.agent.passes import Passes, read_passes
from rpcinspect.rpc.command import PropagateGradientsReq, PropagateGradientsResp
from rpcinspect.rpc.envelope import AutogradMetadata
from tests.replay.talks import Workers

CONTEXT = 0


def gradient(
    talk: Workers, caller: int, callee: int, begin: int, end: int, edge: int, *, retain: bool = False
) -> None:
    request = PropagateGradientsReq(AutogradMetadata(CONTEXT, edge), (), retain)
    talk.call(caller, callee, begin, end, request, PropagateGradientsResp())


def passes_of(talk: Workers, role: str = "w0") -> Passes:
    calls = {call.index: call for call in talk.calls()}
    return read_passes(calls, calls, role)


def test_a_pass_of_its_own() -> None:
    talk = Workers(2)
    talk.call(0, 1, 0, 10, context=(CONTEXT, 1), grads=(1, 1))
    talk.call(0, 1, 20, 30, context=(CONTEXT, 2), grads=(1, 1))
    gradient(talk, 0, 1, 40, 80, 1002)
    gradient(talk, 1, 0, 50, 52, 2)
    gradient(talk, 0, 1, 60, 70, 1001)
    gradient(talk, 1, 0, 65, 67, 1)
    found = passes_of(talk)
    (one,) = found.of(CONTEXT)
    assert (one.root, one.edges, one.arrived) == (True, [1002, 1001], [2, 1])
    assert not found.leaves
    assert not found.loose
    # Of two gradients, the one that was answered last stands for the end of the pass.
    assert {found_at(talk, index) for index in found.early} == {60}


def found_at(talk: Workers, index: int) -> int:
    return next(call.begin_ns for call in talk.calls() if call.index == index)


def test_the_same_edge_again_begins_another_pass() -> None:
    talk = Workers(2)
    talk.call(0, 1, 0, 10, context=(CONTEXT, 1), grads=(1, 1))
    for start in (20, 60):
        gradient(talk, 0, 1, start, start + 20, 1001, retain=True)
        gradient(talk, 1, 0, start + 5, start + 8, 1, retain=True)
    assert [one.edges for one in passes_of(talk).of(CONTEXT)] == [[1001], [1001]]


def test_what_is_kept_begins_another_pass_too() -> None:
    talk = Workers(2)
    talk.call(0, 1, 0, 10, context=(CONTEXT, 1), grads=(0, 1))
    talk.call(0, 1, 12, 18, context=(CONTEXT, 2), grads=(0, 1))
    gradient(talk, 0, 1, 20, 30, 1001, retain=True)
    gradient(talk, 0, 1, 22, 40, 1002, retain=False)
    assert [(one.edges, one.retain) for one in passes_of(talk).of(CONTEXT)] == [
        ([1001], True),
        ([1002], False),
    ]


def test_two_gradients_at_once_are_one_pass_and_two_in_turn_are_two() -> None:
    for begin, count in ((25, 1), (50, 2)):
        talk = Workers(2)
        talk.call(0, 1, 0, 10, context=(CONTEXT, 1), grads=(0, 1))
        talk.call(0, 1, 12, 18, context=(CONTEXT, 2), grads=(0, 1))
        gradient(talk, 0, 1, 20, 40, 1001)
        gradient(talk, 0, 1, begin, 60, 1002)
        assert len(passes_of(talk).of(CONTEXT)) == count


def test_a_pass_that_another_worker_began() -> None:
    """w1 calls w0, which answers; the gradient of the answer sets off that of the request."""
    talk = Workers(2)
    talk.call(1, 0, 0, 10, context=(CONTEXT, 1), grads=(1, 1))
    gradient(talk, 1, 0, 20, 40, 1001)
    gradient(talk, 0, 1, 25, 30, 1)
    found = passes_of(talk)
    (one,) = found.of(CONTEXT)
    assert (one.root, one.edges, one.arrived) == (False, [1], [1001])
    assert found.leaves == {(CONTEXT, 1001): (1,)}


def test_a_gradient_that_nothing_received_later_can_set_off() -> None:
    """Its message came after what it would have to hang at was sent."""
    talk = Workers(2)
    talk.call(1, 0, 0, 10, context=(CONTEXT, 1), grads=(0, 1))
    talk.call(1, 0, 12, 18, context=(CONTEXT, 2), grads=(1, 0))
    gradient(talk, 1, 0, 20, 40, 1001)
    gradient(talk, 0, 1, 25, 30, 2)
    found = passes_of(talk)
    assert {found_at(talk, index) for index in found.loose} == {25}
    assert not found.leaves
