"""What is read off messages for a reproducer."""

from __future__ import annotations

from rpcinspect.export.reproducer.model import (
    Await,
    Block,
    ProgramPass,
    Reproduction,
    Send,
    Together,
    WorkerProgram,
    awaited,
    blocks_of,
    needing_gradient,
)
from rpcinspect.replayer.planning.model import GlobalUse
from rpcinspect.rpc.command import ExceptionResponse
from rpcinspect.rpc.questions import failed
from tests.export.reproducer.test_reproduction import made
from tests.replayer.hostile_captures import FAILED
from tests.replayer.talks import answer_of, record_of


def test_errors_of_both_kinds() -> None:
    assert failed(record_of(ExceptionResponse(b"no")))
    assert failed(answer_of(FAILED))
    assert not failed(answer_of(b"\x80\x02N."))


def test_tensors_that_need_a_gradient() -> None:
    assert needing_gradient(made("basic_chain.pcap").calls[6].request) == (0, 1)
    assert needing_gradient(made("rref_relay.pcap.gz").calls[42].request) == ()


def test_what_nobody_allowed() -> None:
    names = (GlobalUse("m.f", False, (1,), "you haven't allowed it"), GlobalUse("m.g", True, (1,), ""))
    assert [use.name for use in Reproduction(globals=names).refused] == ["m.f"]
    assert not Reproduction(globals=names, trusted=True).refused


def test_blocks_of_lanes_are_blocks() -> None:
    first, second, third = Block(None), Block(1), Block(2)
    assert blocks_of(WorkerProgram(0, "w", [first, Together([second, third])])) == [first, second, third]


def test_what_an_event_comes_after() -> None:
    call = made("basic_chain.pcap").calls[6]
    sent = Send(call, True, after=(3,))
    assert awaited([WorkerProgram(0, "w", [Block(None, [sent, Await(call)])])]) == {3}
    assert Await(call).after == ()


def test_a_pass_begins_with_its_trigger_or_its_first_gradient() -> None:
    found = made("basic_chain.pcap")
    one = ProgramPass(None, 0, roots=[found.sent[13], found.sent[10]])
    assert one.first.index == 10
    assert [gradient.call.index for gradient in one.sent] == [10, 13]
    call = found.calls[6]
    assert ProgramPass(call, 0).first is call
