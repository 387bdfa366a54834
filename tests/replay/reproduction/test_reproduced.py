"""What is read off messages for a reproducer."""

from __future__ import annotations

from rpcinspect.replay.planning.model import GlobalUse
from rpcinspect.replay.reproduction.reproduced import Reproduction, needing_gradient
from rpcinspect.rpc.command import ExceptionResponse
from rpcinspect.rpc.questions import failed
from tests.replay.hostile_captures import FAILED
from tests.replay.reproduction.test_reproduction import made
from tests.replay.talks import answer_of, record_of


def test_errors_of_both_kinds() -> None:
    assert failed(record_of(ExceptionResponse(b"no")))
    assert failed(answer_of(FAILED))
    assert not failed(answer_of(b"\x80\x02N."))


def test_tensors_that_need_a_gradient() -> None:
    assert needing_gradient(made("basic_chain.pcap").calls[6].request) == (0, 1)
    assert needing_gradient(made("rref_relay.pcap.gz").calls[42].request) == ()


def test_what_nobody_allowed() -> None:
    names = (GlobalUse("m.f", False, (1,), "nobody allowed it"), GlobalUse("m.g", True, (1,), ""))
    assert [use.name for use in Reproduction(globals=names).refused] == ["m.f"]
    assert not Reproduction(globals=names, trusted=True).refused
