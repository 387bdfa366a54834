"""What stands for what: tensors that are one and the same, ids of contexts, RRefs made in another thread."""

from __future__ import annotations

from msgspec.structs import replace

from rpcinspect.replay.reproduction.programs import programs
from rpcinspect.replay.reproduction.reproduced import Block, Send, Together
from rpcinspect.run.run import Run
from rpcinspect.views.reproducer.tensors import TensorCollection
from rpcinspect.views.reproducer.variables import Variables, integers_of, same_tensors
from tests.replay.reproduction.test_reproduction import made
from tests.truth import CAPTURES


def test_arguments_that_are_one_tensor() -> None:
    with Run.open([str(CAPTURES / "basic_chain.pcap")]) as opened:
        operator, function = opened.messages[8], opened.messages[6]
    assert same_tensors(operator) == {}
    one = operator.rpc.tensors[0]
    operator.rpc = replace(operator.rpc, tensors=(one, one, replace(one, sizes=(12,), strides=(1,))))
    assert same_tensors(operator) == {1: 0}
    function.rpc = replace(function.rpc, tensors=(one, one))
    assert same_tensors(function) == {}  # Python's pickles write a tensor once


def test_ids_of_contexts() -> None:
    call = made("basic_chain.pcap").calls[6]
    assert integers_of(call, Block(0)) == {}  # a small number may be anything
    assert integers_of(call, Block(3 << 48)) == {3 << 48: "context_id"}
    step = next(
        c for c in made("pairs/base.pcap.gz").calls.values() if "optim" in (c.function or "") and c.context
    )
    assert integers_of(step, Block(step.context)) == {step.context: "context_id"}


def test_references_made_in_one_thread_and_used_elsewhere() -> None:
    reproduction = made("rref_relay.pcap.gz")
    (program,) = programs(reproduction)
    sends = [event for part in program.parts if isinstance(part, Block) for event in part.events]
    maker = next(e for e in sends if isinstance(e, Send) and e.call.index == 8)
    user = next(e for e in sends if isinstance(e, Send) and e.call.index == 12)
    part = Together([Block(None, [maker]), Block(None, [user])])
    program.parts = [part]
    with Run.open([str(CAPTURES / "rref_relay.pcap.gz")]) as opened:
        its = Variables(reproduction, program, TensorCollection(opened.bytes))
        assert its.shared(part) == [[8], []]
        assert its.variable(8) == "rref8"
        assert its.variable(9) == "out9"
