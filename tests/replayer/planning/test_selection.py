"""What one context needs (`--context`), and the least that any calls need (`diff --shrink`)."""

from __future__ import annotations

import pytest

from rpcinspect.replayer.planning.facts import read_facts, rrefs_in
from rpcinspect.replayer.planning.selection import needed, optimizer_context, select
from rpcinspect.replayer.planning.sessions import PlanError
from rpcinspect.rpc.command import PropagateGradientsReq, PropagateGradientsResp, ScriptCall
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import RunModel, open_run
from tests.replayer.planning.test_sessions import remote
from tests.replayer.talks import Workers
from tests.truth import CAPTURES, workload


def chosen(context: int, run: RunModel) -> set[int]:
    calls = run.exchanges.calls
    return set(select(context, calls, run.causes.decided(), read_facts(run)))


def of_capture(name: str) -> RunModel:
    with open_run(str(CAPTURES / name)) as opened:
        return opened


def test_a_context_alone() -> None:
    """Four threads with contexts that share nothing: each is its own messages."""
    opened = of_capture("ctx_crowd.pcap.gz")
    run = workload("ctx_crowd")
    for event in run.of("context"):
        context = event["context_id"]
        its = {call.index for call in opened.exchanges.calls if call.context == context}
        assert its
        assert chosen(context, opened) == its


def test_an_unknown_context_is_told() -> None:
    with pytest.raises(PlanError, match="no autograd context 99"):
        chosen(99, of_capture("basic_chain.pcap"))


def test_nested_calls_and_what_they_are_nested_in_come_along() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 60)
    workers.call(1, 2, 20, 50, context=(1 << 48, 1))
    workers.call(2, 0, 30, 40, context=(1 << 48, 2))
    workers.call(0, 1, 70, 80)
    calls = workers.calls()
    assert chosen(1 << 48, workers.run()) == {call.index for call in calls[:3]}


def test_earlier_changes_of_state_come_along_and_later_ones_do_not() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 20, *remote(1))
    workers.call(0, 1, 30, 40)  # changes nothing that is known
    workers.call(0, 1, 50, 60, context=(7, 1))
    workers.call(0, 1, 70, 80, *remote(2))
    workers.call(0, 2, 5, 8, *remote(3))  # of a worker that is not reached
    by_time = {call.begin_ns: call.index for call in workers.calls()}
    assert chosen(7, workers.run()) == {by_time[10], by_time[50]}


def test_an_optimizers_step_brings_the_context_of_its_gradients() -> None:
    opened = of_capture("ps_race_lock.pcap.gz")
    steps: dict[int, Exchange] = {}
    for call in opened.exchanges.calls:
        context = optimizer_context(call.request)
        if context is not None:
            steps[context] = call
    assert len(steps) == 12  # three trainers, four steps
    printed = {event["context_id"] for event in workload("ps_race_lock").of("step")}
    assert set(steps) == printed
    first, *_, last = sorted(steps.values(), key=lambda call: call.begin_ns)
    contexts = {context for context, call in steps.items()}
    late = next(context for context, call in steps.items() if call is last)
    early = next(context for context, call in steps.items() if call is first)

    def contexts_in(context: int) -> set[int | None]:
        taken = chosen(context, opened)
        return {call.context for call in opened.exchanges.calls if call.index in taken} - {None}

    assert contexts_in(late) == contexts
    assert contexts_in(early) == {early}


def least(roots: set[int], run: RunModel) -> set[int]:
    calls = run.exchanges.calls
    return set(needed(roots, calls, run.causes.decided(), read_facts(run)))


def test_a_call_needs_nothing_else_of_its_context() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 20, context=(7, 1))
    workers.call(0, 1, 30, 40, context=(7, 2))
    calls = workers.calls()
    for call in calls:
        assert least({call.index}, workers.run()) == {call.index}


@pytest.mark.parametrize("message", [61, 121])
def test_a_call_that_may_use_gradients_needs_them(message: int) -> None:
    """`learn` asks `get_gradients` for those of its context, and changes the weight that later calls use."""
    opened = of_capture("demo/nan.pcap.gz")
    contexts = sorted({c.context for c in opened.exchanges.calls if c.context is not None})
    learn = opened.calls[message]
    assert learn.context is not None
    found = least({message}, opened)
    for context in contexts[: contexts.index(learn.context) + 1]:
        to_it = {c.index for c in opened.exchanges.calls if "BACKWARD" in c.type and c.context == context}
        assert len(to_it) == 3
        assert to_it <= found
    assert found.isdisjoint(c.index for c in opened.exchanges.calls if (c.context or 0) > learn.context)


def test_gradients_are_for_calls_that_come_later_and_are_told_their_context() -> None:
    """Context 7 has an edge and its gradient at 30; `app.use` is called outside of it."""
    for number, begin, uses in ((7, 50, True), (8, 50, False), (7, 5, False)):
        workers = Workers(2)
        use = ScriptCall(args=(number,), schema=None, qualified_name="__torch__.app.use")
        gradient = PropagateGradientsReq(AutogradMetadata(7, 1001), (0,), False)
        workers.call(0, 1, 10, 20, context=(7, 1), grads=(1, 1))
        workers.call(0, 1, 30, 40, gradient, PropagateGradientsResp())
        workers.call(0, 1, begin, begin + 3, use)
        by_time = {call.begin_ns: call.index for call in workers.calls()}
        needs = least({by_time[begin]}, workers.run())
        assert needs == ({by_time[10], by_time[30], by_time[50]} if uses else {by_time[begin]})


def test_a_gradient_needs_its_context_but_no_clean_up() -> None:
    opened = of_capture("basic_chain.pcap")
    gradient = next(c for c in opened.exchanges.calls if c.type == "BACKWARD_AUTOGRAD_REQ")
    its = [c for c in opened.exchanges.calls if c.context == gradient.context]
    kept = {c.index for c in its if c.type != "CLEANUP_AUTOGRAD_CONTEXT_REQ"}
    assert kept < {c.index for c in its}
    assert least({gradient.index}, opened) == kept


def test_an_rref_needs_its_maker_and_what_settles_its_forks() -> None:
    opened = of_capture("rref_relay.pcap.gz")
    for call in opened.exchanges.calls:
        if call.control:
            assert least({call.index}, opened) == {call.index}
            continue
        found = least({call.index}, opened)
        assert found == least(found, opened)  # with each call, all that it needs
        facts = read_facts(opened)[call.job]
        for rref in rrefs_in(call.request):
            maker = facts.makers.get(rref)
            assert maker is None or maker.request in found
