"""The records of a worker's program."""

from __future__ import annotations

from rpcinspect.replay.reproduction.program_model import (
    Await,
    Block,
    Pass,
    Program,
    Send,
    Timed,
    Together,
    after_of,
    awaited,
    blocks_of,
    set_after,
)
from tests.replay.reproduction.test_reproduction import made


def test_blocks_of_lanes_are_blocks() -> None:
    first, second, third = Block(None), Block(1), Block(2)
    assert blocks_of(Program(0, "w", [first, Together([second, third])])) == [first, second, third]


def test_what_an_event_comes_after() -> None:
    call = made("basic_chain.pcap").calls[6]
    timed = Timed(0, 6, Send(call, True), None)
    set_after(timed, (3,))
    assert after_of(timed) == (3,)
    assert awaited([Program(0, "w", [Block(None, [timed.event])])]) == {(0, 3)}
    answer = Timed(0, 7, Await(call), None)
    set_after(answer, (3,))
    assert after_of(answer) == ()


def test_a_pass_begins_with_its_trigger_or_its_first_gradient() -> None:
    found = made("basic_chain.pcap")
    one = Pass(None, 0, roots=[found.sent[13], found.sent[10]])
    assert one.first.index == 10
    assert [gradient.call.index for gradient in one.sent] == [10, 13]
    call = found.calls[6]
    assert Pass(call, 0).first is call
