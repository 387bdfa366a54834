"""What workers do in a reproducer: synchronous or not, contexts, passes, and the order between workers."""

from __future__ import annotations

import pytest

from rpcinspect.export.reproducer.model import (
    Await,
    Block,
    ProgramEvent,
    ProgramPass,
    Send,
    Together,
    WorkerProgram,
    awaited,
    blocks_of,
)
from rpcinspect.export.reproducer.programs import is_optimizers, programs
from rpcinspect.export.reproducer.reproduction import ReproductionOptions, reproduction
from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.run.run import RunModel
from tests.export.reproducer.test_reproduction import NAMES, made
from tests.places import recordings
from tests.truth import capture_of, workload


def test_the_order_between_workers() -> None:
    """What had finished at another worker before a step began comes before it."""
    reproduction = made("ps_race_lock.pcap.gz")
    found = programs(reproduction)
    ends = {call.index: call.end_ns for call in reproduction.calls.values()}
    ends |= {gradient.call.index: gradient.call.end_ns for gradient in reproduction.sent.values()}
    callers = {index: call.caller for index, call in reproduction.calls.items()}
    count = 0
    for program in found:
        for block in blocks_of(program):
            for event in block.events:
                if isinstance(event, Await):
                    continue
                begin = event.call.begin_ns if isinstance(event, Send) else event.first.begin_ns
                for index in event.after:
                    count += 1
                    end = ends[index]
                    assert end is not None
                    assert end < begin
                    assert callers.get(index) != program.worker
    assert count > 10
    assert awaited(found)


def test_who_got_the_lock_first_is_sent_first() -> None:
    """Trainers wait for a turn at once; the one that was answered first must have asked first."""
    reproduction = made("ps_race_lock.pcap.gz")
    behind = {
        event.call.index: event.behind
        for program in programs(reproduction)
        for block in blocks_of(program)
        for event in block.events
        if isinstance(event, Send) and event.behind
    }
    assert behind
    for index, others in behind.items():
        call = reproduction.calls[index]
        for other in others:
            earlier = reproduction.calls[other]
            assert earlier.callee == call.callee
            assert earlier.end_ns is None or earlier.end_ns >= call.begin_ns


def test_no_order_within_one_worker() -> None:
    assert not awaited(programs(made("basic_chain.pcap")))


def lanes_of(program: WorkerProgram) -> list[list[ProgramEvent]]:
    """What runs at once: the worker's own thread, and each lane."""
    found: list[list[ProgramEvent]] = [[]]
    for part in program.parts:
        if isinstance(part, Block):
            found[0] += part.events
        else:
            found += [lane.events for lane in part.lanes]
    return found


def stuck(found: list[WorkerProgram]) -> list[list[ProgramEvent]]:
    """Carries out all programs, each step as soon as what it waits for is there; what is left then."""
    over: set[int] = set()
    begun: set[int] = set()
    left = [list(lane) for program in found for lane in lanes_of(program)]
    moved = True
    while moved:
        moved = False
        for lane in left:
            while lane and _may_go(lane[0], over, begun):
                event = lane.pop(0)
                moved = True
                if isinstance(event, ProgramPass):
                    over.add(event.first.index)
                    continue
                begun.add(event.call.index)
                if isinstance(event, Await) or event.waits:
                    over.add(event.call.index)
    return [lane for lane in left if lane]


def _may_go(event: ProgramEvent, over: set[int], begun: set[int]) -> bool:
    if isinstance(event, Await):
        return True
    behind = event.behind if isinstance(event, Send) else ()
    return over.issuperset(event.after) and begun.issuperset(behind)


@pytest.mark.parametrize("name", ["ps_race.pcap.gz", "ps_race_lock.pcap.gz", "ctx_crowd.pcap.gz"])
def test_nobody_waits_for_ever(name: str) -> None:
    assert not stuck(programs(made(name)))


def test_nobody_waits_for_ever_where_everybody_calls_everybody() -> None:
    """Many calls of all workers overlap at all others."""
    waits = 0
    for path in recordings("torch-suite"):
        with RunModel.open([str(path)]) as opened:
            options = ReproductionOptions(trust=True)
            found = programs(
                reproduction(opened.session, opened.messages, options, ExecutionPolicy(), lambda record: None)
            )
        assert not stuck(found), path.name
        waits += sum(
            len(event.behind)
            for program in found
            for block in blocks_of(program)
            for event in block.events
            if isinstance(event, Send)
        )
    assert waits > 50


def test_overlapping_calls_are_asynchronous() -> None:
    blocks = blocks_of(only("pairs/base.pcap.gz"))
    reports = said(next(block for block in blocks if block.context is None and len(block.events) > 5))
    assert reports[:6] == ["async 58", "async 59", "async 60", "await 58", "await 60", "await 59"]
    assert reports[6:] == ["sync 64", "sync 66", "sync 68"]


def test_contexts_that_overlapped_run_together() -> None:
    """Four threads, each of which makes two contexts."""
    program = only("ctx_crowd.pcap.gz")
    parts = [part for part in program.parts if isinstance(part, Together)]
    for part in parts:
        contexts = [lane.context for lane in part.lanes]
        assert contexts == sorted(contexts, key=lambda context: context or 0)
    assert [lane.context for lane in parts[0].lanes] == [0, 1, 2, 3]
    made_there = {event["context_id"] for event in workload("ctx_crowd").of("context")}
    assert {block.context for block in blocks_of(program)} == made_there


def test_contexts_are_numbered_where_user_code_got_their_ids() -> None:
    """Two contexts of `ctx_crowd` alone: 1, whose id is given to a function, and 3."""
    whole = blocks_of(only("ctx_crowd.pcap.gz"))
    assert {block.skips for block in whole} == {None}  # they are made in order anyway
    from rpcinspect.export.reproducer.programs import programs

    (program,) = programs(made("ctx_crowd.pcap.gz", context=3))
    assert [(block.context, block.skips) for block in blocks_of(program)] == [(3, 3)]


def test_optimizers() -> None:
    calls = made("pairs/base.pcap.gz").calls.values()
    assert sum(is_optimizers(call) for call in calls) == 4  # made once, and three steps


def only(name: str) -> WorkerProgram:
    (program,) = programs(made(name))
    return program


def said(block: Block) -> list[str]:
    """Events in short."""
    out = []
    for event in block.events:
        if isinstance(event, Send):
            out.append(f"{'sync' if event.waits else 'async'} {event.call.index}")
        elif isinstance(event, Await):
            out.append(f"await {event.call.index}")
        else:
            out.append(f"backward {event.first.index}")
    return out


def test_a_context_is_a_block() -> None:
    program = only("basic_chain.pcap")
    (block,) = blocks_of(program)
    assert block.context == 0
    assert said(block) == ["sync 6", "sync 8", "backward 10"]


def test_a_gradient_that_followed_another_is_linked() -> None:
    """The gradient for the answer to 6 was sent when that for the arguments of 8 had come."""
    program = only("basic_chain.pcap")
    one = blocks_of(program)[0].events[-1]
    assert isinstance(one, ProgramPass)
    assert [gradient.request for gradient in one.roots] == [8]
    assert [gradient.request for gradient in one.linked] == [6]
    assert {request: list(link.outputs) for request, link in program.links.items()} == {8: [6]}
    assert sorted(gradient.call.index for gradient in one.back) == [11, 15]


@pytest.mark.parametrize("name", NAMES)
def test_everything_has_its_place_once(name: str) -> None:
    reproduction = made(capture_of(name).name)
    calls: list[int] = []
    gradients: list[int] = []
    for program in programs(reproduction):
        for block in blocks_of(program):
            for event in block.events:
                if isinstance(event, Send):
                    calls.append(event.call.index)
                elif isinstance(event, ProgramPass):
                    gradients += [g.call.index for g in (*event.sent, *event.back)]
                    calls += [] if event.trigger is None else [event.trigger.index]
    assert sorted(calls) == sorted(reproduction.calls)
    assert sorted(gradients) == sorted([*reproduction.sent, *reproduction.back])
