"""Every reason why a request is sent, answered or skipped, on made up conversations."""

from __future__ import annotations

import pytest

from rpcinspect.replayer.planning.facts import JobFacts, read_facts
from rpcinspect.replayer.planning.model import Decision
from rpcinspect.replayer.planning.sessions import RoleAssignment
from rpcinspect.replayer.planning.steps import NO_ANSWER, StepClassifier, blocked_contexts
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    CleanupAutogradContextResp,
    PropagateGradientsReq,
    PropagateGradientsResp,
    PythonRRefFetchCall,
    PythonRRefFetchRet,
    RRefAck,
    RRefUserDelete,
    UnknownCommand,
)
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.run.causes import Causes
from rpcinspect.tensorpipe.records import Placement, TpTensor
from tests.replayer.planning.test_sessions import remote
from tests.replayer.talks import NONE, Workers
from tests.session.records import tp_tensor

NAMES = ("w0", "w1", "w2", "w3")
FETCHED = PythonRRefFetchRet(tensors=(), serialized_py_obj=NONE)


def cast(*roles: str, live: tuple[str, ...] = ()) -> RoleAssignment:
    return RoleAssignment(0, roles, live or tuple(name for name in NAMES if name not in roles), "")


def permit(record: RpcRecord, answers: int | None) -> str | None:
    return None


def staged(
    workers: Workers, cast: RoleAssignment
) -> tuple[StepClassifier, dict[int, tuple[str, str | None]]]:
    """The stage with every request judged, and (action, reason) by the time at which each began."""
    calls = workers.calls()
    facts = read_facts(workers.run()).get(0, JobFacts())
    causes = workers.causes()
    stage = StepClassifier(cast, causes, facts, permit)
    for call in calls:
        stage.classify(call)
    blocked = blocked_contexts(stage)
    if blocked:
        stage = StepClassifier(cast, causes, facts, permit, blocked)
        for call in calls:
            stage.classify(call)
    return stage, {
        c.begin_ns: (stage.decisions[c.index].action, stage.decisions[c.index].code) for c in calls
    }


def judged(workers: Workers, cast: RoleAssignment) -> dict[int, tuple[str, str | None]]:
    return staged(workers, cast)[1]


def gradient(context: int, edge: int) -> tuple[PropagateGradientsReq, PropagateGradientsResp]:
    return PropagateGradientsReq(AutogradMetadata(context, edge), (), False), PropagateGradientsResp()


SEND, ANSWER = ("send", None), ("answer", None)


def skip(code: str) -> tuple[str, str]:
    return "skip", code


def test_a_call_and_what_live_workers_make_of_it() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 60)
    workers.call(1, 2, 20, 50)  # w1 does it again
    workers.call(2, 0, 30, 40)  # and w2 calls back
    assert judged(workers, cast("w0")) == {10: SEND, 20: skip("nested-in-answer"), 30: ANSWER}


def test_what_a_played_worker_did_while_it_was_served_from_the_capture() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 60)
    workers.call(1, 0, 20, 50)
    workers.call(0, 2, 30, 40)
    assert judged(workers, cast("w0")) == {10: SEND, 20: ANSWER, 30: skip("nested-in-answer")}


def test_what_a_live_workers_own_program_did() -> None:
    workers = Workers(3)
    workers.call(1, 0, 10, 60)
    workers.call(0, 2, 20, 50)  # nested in a request that does not come: sent all the same
    workers.call(1, 2, 70, 80)
    assert judged(workers, cast("w0")) == {10: skip("driver-not-live"), 20: SEND, 70: skip("driver-not-live")}


def test_both_ends_played() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 60)
    workers.call(1, 2, 20, 50)
    assert judged(workers, cast("w0", "w1")) == {10: skip("both-played"), 20: SEND}


def test_calls_to_oneself() -> None:
    workers = Workers(3)
    workers.call(0, 0, 10, 20)
    workers.call(1, 1, 30, 40)
    workers.call(0, 1, 50, 80)
    workers.call(1, 1, 60, 70, "app.inner")  # nested
    expected = {10: skip("self-call"), 30: skip("self-call"), 50: SEND, 60: skip("nested-in-answer")}
    assert judged(workers, cast("w0")) == expected
    alone = cast("w0", "w2", live=("w1",))
    assert judged(workers, alone)[30] == SEND  # the only live worker is there to take it
    workers.call(1, 1, 90, 95, context=(1 << 48, 1), grads=(1, 1))
    assert judged(workers, alone)[90] == skip("self-call")  # its gradients would go to nobody


def test_a_pass_through_played_and_live_workers() -> None:
    """w0 → w1 → w0 → w1: a chain of two calls differentiated; then once more with w1 played."""
    workers = Workers(2)
    workers.call(0, 1, 10, 20, context=(0, 1), grads=(1, 1))
    workers.call(0, 1, 30, 40, context=(0, 2), grads=(1, 1))
    for caller, callee, time, edge in [(0, 1, 50, 1002), (1, 0, 60, 2), (0, 1, 70, 1001), (1, 0, 80, 1)]:
        workers.call(caller, callee, time, time + 100, *gradient(0, edge))
    workers.call(0, 1, 200, 210, CleanupAutogradContextReq(0), CleanupAutogradContextResp())
    workers.call(1, 0, 205, 215, CleanupAutogradContextReq(0), CleanupAutogradContextResp())
    expected = {10: SEND, 30: SEND, 50: SEND, 60: ANSWER, 70: SEND, 80: ANSWER, 200: SEND, 205: ANSWER}
    assert judged(workers, cast("w0")) == expected
    assert set(judged(workers, cast("w1")).values()) == {skip("driver-not-live")}


def test_gradients_of_edges_that_are_not_there() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 20, *gradient(0, 77))
    assert judged(workers, cast("w0")) == {10: skip("older-state")}


def test_a_gradient_that_never_comes() -> None:
    """Both answers of w1 need a gradient before its pass ends, and only one was captured."""
    workers = Workers(2)
    workers.call(0, 1, 10, 20, context=(0, 1), grads=(1, 1))
    workers.call(0, 1, 30, 40, context=(0, 2), grads=(1, 1))
    workers.call(0, 1, 50, 90, *gradient(0, 1001))
    assert judged(workers, cast("w0"))[50] == skip("no-gradient")  # it was answered, so there was another


def test_a_pass_that_did_not_end_either() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 20, context=(0, 1), grads=(1, 1))
    workers.call(0, 1, 30, 40, context=(0, 2), grads=(1, 1))
    workers.call(0, 1, 50, None, *gradient(0, 1001))
    assert judged(workers, cast("w0"))[50] == SEND


def test_rrefs() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 20, *remote(5))
    workers.call(0, 1, 30, 40, PythonRRefFetchCall(1, GloballyUniqueId(0, 5)), FETCHED)
    workers.call(0, 1, 50, 60, PythonRRefFetchCall(1, GloballyUniqueId(0, 4)), FETCHED)
    workers.call(0, 1, 70, 80, RRefUserDelete(GloballyUniqueId(0, 5), GloballyUniqueId(0, 5)), RRefAck())
    workers.call(0, 1, 90, 99, RRefUserDelete(GloballyUniqueId(0, 4), GloballyUniqueId(0, 4)), RRefAck())
    assert judged(workers, cast("w0")) == {
        10: SEND,
        30: SEND,
        50: skip("older-rref"),
        70: SEND,
        90: skip("older-rref"),
    }


def test_clean_up_of_a_context_that_nothing_of_reaches_the_worker() -> None:
    workers = Workers(3)
    workers.call(1, 0, 10, 20, context=(1 << 48, 1))
    workers.call(1, 0, 30, 40, CleanupAutogradContextReq(1 << 48), CleanupAutogradContextResp())
    workers.call(0, 1, 35, 45, CleanupAutogradContextReq(1 << 48), CleanupAutogradContextResp())
    assert set(judged(workers, cast("w0")).values()) == {skip("driver-not-live")}


@pytest.mark.parametrize(("grads", "decision"), [((1, 1), ANSWER), ((1, 0), skip("older-state"))])
def test_clean_up_goes_to_whom_something_was_sent_in_the_context(
    grads: tuple[int, int], decision: tuple[str, str | None]
) -> None:
    """torch's rule: a worker knows those of a context to whom it has sent something with an envelope."""
    workers = Workers(2)
    workers.call(0, 1, 10, 20, context=(0, 1), grads=grads)
    workers.call(0, 1, 30, 50, CleanupAutogradContextReq(0), CleanupAutogradContextResp())
    workers.call(1, 0, 35, 45, CleanupAutogradContextReq(0), CleanupAutogradContextResp())
    assert judged(workers, cast("w0")) == {10: SEND, 30: SEND, 35: decision}


def test_types_that_nobody_knows() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, None, UnknownCommand(0x1FF, b""))
    assert judged(workers, cast("w0")) == {10: skip("unsupported")}


def test_a_worker_without_a_name() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 20)
    workers.call(0, 2, 30, 40)
    known = judged(workers, cast("w0", live=("w1",)))
    assert known == {10: SEND, 30: skip("unsupported")}


def test_an_answer_that_was_never_given() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, None)
    workers.call(1, 0, 20, None)
    stage, _ = staged(workers, cast("w0"))
    assert stage.decisions[1] == Decision("answer", text="it was never answered", happens=True)


@pytest.mark.parametrize("tensor", [tp_tensor(4, missing=1), tp_tensor(4, Placement.UNCERTAIN)])
def test_missing_bytes_of_requests_and_of_answers(tensor: TpTensor) -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 60, grads=(1, 1))
    workers.call(1, 0, 20, 50, grads=(1, 1))
    first, second = workers.calls()
    assert first.response is not None
    first.response.tp.tensors[0] = tensor  # what is sent can be sent
    assert judged(workers, cast("w0")) == {10: SEND, 20: ANSWER}
    assert second.response is not None
    second.response.tp.tensors[0] = tensor
    assert judged(workers, cast("w0")) == {10: SEND, 20: skip("missing-bytes")}
    first.request.tp.tensors[0] = tensor
    assert judged(workers, cast("w0")) == {10: skip("missing-bytes"), 20: skip("missing-bytes")}


def test_what_is_refused_is_skipped_with_all_that_builds_on_it() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 20, context=(0, 1), grads=(1, 1))
    workers.call(0, 1, 50, 90, *gradient(0, 1001))
    calls = workers.calls()
    stage = StepClassifier(
        cast("w0"),
        workers.causes(),
        read_facts(workers.run())[0],
        lambda record, answers: "os.system: no",
    )
    decisions = [stage.classify(call) for call in calls]
    assert [decision.code for decision in decisions] == ["not-allowed", "not-allowed"]
    assert decisions[0].text == "os.system: no"
    assert decisions[1].text == "this gradient is for the answer to #0, which is skipped"


# --- what live workers send though nobody expects it --------------------------------------------------------


def test_a_live_workers_request_that_is_left_out_is_ready_for_one_that_equals_it() -> None:
    workers = Workers(3)
    workers.call(1, 0, 10, 20)
    workers.call(0, 1, 30, 90, "app.f")
    workers.call(1, 0, 40, 50)  # w1 did that by itself, too
    workers.call(1, 2, 60, 70)
    stage, found = staged(workers, cast("w0"))
    assert found[10] == found[40] == skip("driver-not-live")
    first, served, second, _ = workers.calls()
    spare = [stage.decisions[call.index].spare for call in workers.calls()]
    assert spare == ["equal", None, "like", None]
    assert first.index < second.index
    assert stage.decisions[second.index].text == (
        f"w1's own program is not replayed, unless it is part of #{served.index}: answered if it comes"
    )


def test_what_may_take_place_may_cause_more() -> None:
    """w0 → w1 → w2 → w0, of which nothing tells that any is nested: w1 and w2 do the same by themselves."""
    workers = Workers(3)
    workers.call(1, 2, 1, 5)
    workers.call(2, 0, 6, 9, "app.g")
    workers.call(0, 1, 10, 90)
    workers.call(1, 2, 20, 80)
    workers.call(2, 0, 30, 70, "app.g")
    stage, _ = staged(workers, cast("w0"))
    spare = [stage.decisions[call.index].spare for call in workers.calls()]
    assert spare == [None, "equal", None, None, "like"]
    calls = workers.calls()
    assert stage.decisions[calls[3].index].text == (
        f"w1's own program is not replayed, unless it is part of #{calls[2].index}"
    )
    assert f"part of #{calls[3].index}" in (stage.decisions[calls[4].index].text or "")


def test_what_can_not_be_answered_is_not_ready() -> None:
    workers = Workers(2)
    for begin in (10, 30):
        workers.call(1, 0, begin, begin + 10, grads=(0, 1))
    first, second = workers.calls()
    assert first.response is not None
    first.response.tp.tensors[0] = tp_tensor(4, missing=1)
    stage = StepClassifier(cast("w0"), workers.causes(), JobFacts(), permit, one_way=[second.index])
    assert [stage.classify(call).spare for call in (first, second)] == [None, None]
    refusing = StepClassifier(
        cast("w0"), workers.causes(), JobFacts(), permit, unasked=lambda record, _: "no"
    )
    assert refusing.classify(second).spare is None


def test_an_answer_of_a_direction_that_was_not_captured() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, None)
    workers.call(1, 0, 20, None, "app.g")
    calls = workers.calls()
    causes = Causes({1: 0}, {})
    stage = StepClassifier(cast("w0"), causes, JobFacts(), permit, one_way=[0, 1])
    assert [stage.classify(call).action for call in calls] == ["send", "skip"]
    assert (stage.decisions[1].code, stage.decisions[1].text) == ("missing-bytes", NO_ANSWER)


def test_a_fork_that_no_message_shows_is_not_older_than_its_rref() -> None:
    workers = Workers(2)
    rref, fork = GloballyUniqueId(0, 1), GloballyUniqueId(1, 7)
    workers.call(0, 1, 10, 20, *remote(1))
    workers.call(0, 1, 30, 40, RRefUserDelete(rref, fork), RRefAck())
    workers.call(0, 1, 50, 60, RRefUserDelete(GloballyUniqueId(0, 9), fork), RRefAck())
    stage, found = staged(workers, cast("w0"))
    assert found == {10: SEND, 30: skip("unsupported"), 50: skip("older-rref")}
    text = stage.decisions[workers.calls()[1].index].text
    assert text == "no message that could be read has brought fork 1:7 of the RRef that #0 makes"
