"""The order between workers: what was over before, and who asked first."""

from __future__ import annotations

import pytest

from rpcinspect.replay.planning.gate import Gate
from rpcinspect.replay.reproduction.program_model import (
    Await,
    Block,
    Event,
    Pass,
    Program,
    Send,
    awaited,
    blocks_of,
)
from rpcinspect.replay.reproduction.programs import programs
from rpcinspect.replay.reproduction.reproduction import ReproductionOptions, reproduction
from rpcinspect.run.run import Run
from tests.places import recordings
from tests.replay.reproduction.test_reproduction import made


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


def lanes_of(program: Program) -> list[list[Event]]:
    """What runs at once: the worker's own thread, and each lane."""
    found: list[list[Event]] = [[]]
    for part in program.parts:
        if isinstance(part, Block):
            found[0] += part.events
        else:
            found += [lane.events for lane in part.lanes]
    return found


def stuck(found: list[Program]) -> list[list[Event]]:
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
                if isinstance(event, Pass):
                    over.add(event.first.index)
                    continue
                begun.add(event.call.index)
                if isinstance(event, Await) or event.waits:
                    over.add(event.call.index)
    return [lane for lane in left if lane]


def _may_go(event: Event, over: set[int], begun: set[int]) -> bool:
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
        with Run.open([str(path)]) as opened:
            options = ReproductionOptions(trust=True)
            found = programs(
                reproduction(opened.session, opened.messages, options, Gate(), lambda record: None)
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
