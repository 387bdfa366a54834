"""The order between workers: what was over before, and who asked first."""

from __future__ import annotations

from rpcinspect.replay.program_model import Await, Send, awaited, blocks_of
from rpcinspect.replay.programs import programs
from tests.replay.test_reproduction import made


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
