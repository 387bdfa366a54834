"""Requests as calls of PyTorch's API, and what their answers are compared with."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rpcinspect.export.reproducer.calls import (
    FUNCTIONAL,
    NN,
    Failure,
    Variables,
    answer_source,
    call_items,
    enumerated,
    failure_of,
    given,
    integers_of,
    python_name,
    same_tensors,
)
from rpcinspect.export.reproducer.model import Block, Send, Together
from rpcinspect.export.reproducer.programs import programs
from rpcinspect.export.reproducer.python_names import Brackets, Imports, NoSourceError, flat
from rpcinspect.export.reproducer.python_source import Names, SourceWriter
from rpcinspect.export.reproducer.tensors import TensorCollection
from rpcinspect.replayer.planning.operators import Parameter, read_schema
from rpcinspect.rpc.command import ExceptionResponse
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.run import RunModel
from tests.export.reproducer.test_reproduction import made
from tests.replayer.talks import answer_of, record_of, request_of, udf
from tests.truth import CAPTURES, workload

ADD = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
SUM = (
    "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"
)
CLAMP = "aten::clamp_(Tensor(a!) self, Scalar? min=None, Scalar? max=None) -> Tensor(a!)"
PAD = 'aten::pad(Tensor self, SymInt[] pad, str mode="constant", float? value=None) -> Tensor'


def parameters(schema: str) -> tuple[Parameter, ...]:
    """Those of a schema; none of what is no schema."""
    read = read_schema(schema)
    return () if read is None else read.parameters or ()


def test_parameters() -> None:
    assert [(p.kind, p.name, p.default, p.keyword_only) for p in parameters(ADD)] == [
        ("Tensor", "self", None, False),
        ("Tensor", "other", None, False),
        ("Scalar", "alpha", "1", True),
    ]
    assert [p.name for p in parameters(SUM)] == ["self", "dim", "keepdim", "dtype"]
    assert [p.kind for p in parameters(CLAMP)] == ["Tensor", "Scalar?", "Scalar?"]
    assert parameters(PAD)[2].default == '"constant"'
    assert parameters("no schema") == ()


@pytest.mark.parametrize(
    ("schema", "values", "positional", "keywords"),
    [
        (ADD, ["x", "y", 1], ["x", "y"], {}),
        (ADD, ["x", "y", 2], ["x", "y"], {"alpha": 2}),
        (ADD, ["x", "y", 1.0], ["x", "y"], {}),
        (SUM, ["x", [0], False, None], ["x", [0]], {}),
        (SUM, ["x", [0], True, 7], ["x", [0], True], {"dtype": 7}),
        (CLAMP, ["x", None, 1], ["x", None, 1], {}),
        (CLAMP, ["x", True, None], ["x", True], {}),
        (ADD, ["x", "y", 1, "more"], ["x", "y", 1, "more"], {}),
    ],
)
def test_defaults_are_left_out(
    schema: str, values: list[Any], positional: list[Any], keywords: dict[str, Any]
) -> None:
    first, second = given(schema, values)
    assert [value for _, value in first] == positional
    assert {parameter.name: value for parameter, value in second} == keywords


def test_enumerations() -> None:
    dtype = parameters(SUM)[3]
    assert enumerated(dtype, 7) == "torch.float64"
    assert enumerated(dtype, None) is None
    assert enumerated(dtype, 999) is None
    assert enumerated(parameters(ADD)[2], 1) is None


def test_enumerations_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    dtype = parameters(SUM)[3]
    for number in range(16):
        name = enumerated(dtype, number)
        assert name is not None
        made = getattr(torch, name.removeprefix("torch."))
        try:
            empty = torch.ops.aten.empty([1], dtype=number)  # the operator itself takes the integer
        except (RuntimeError, TypeError):
            continue
        assert empty.dtype == made


def test_rpc_takes_the_name_for_the_operator() -> None:
    """Every operator that torch's table lists."""
    torch = pytest.importorskip("torch")
    builtins = pytest.importorskip("torch.jit._builtins")
    builtins._get_builtin_table()
    listed = {name for _, name in builtins._builtin_ops if name.startswith("aten::")}
    for module in (torch, torch._C._nn, torch._C._fft, torch._C._linalg, torch._C._special):
        listed |= {
            found
            for name in dir(module)
            if (found := builtins._find_builtin(getattr(module, name))) == f"aten::{name}"
        }
    wrong = {}
    for operator in listed:
        name = python_name(operator)
        assert name is not None
        target: Any = torch
        for word in name.split(".")[1:]:
            target = getattr(target, word, None)
        known = operator.removeprefix("aten::") in FUNCTIONAL | NN
        if builtins._find_builtin(target) != operator and (target is not None or known):
            wrong[operator] = name
    assert len(listed) > 500
    assert set(wrong) <= NO_OPERATORS, sorted(set(wrong) - NO_OPERATORS)


NO_OPERATORS = {"aten::FloatStorage", "aten::_sym_sqrt"}
"""What torch's table lists beside operators."""


@pytest.mark.parametrize("operator", ["aten::add; import os", "aten::", "aten::a b", "aten::é"])
def test_what_is_no_name(operator: str) -> None:
    assert python_name(operator) is None


NAMES = Names(lambda index: f"t{index}", lambda fork: f"rref{fork.rref_id[1]}", {})


def record(name: str, index: int) -> RpcRecord:
    with RunModel.open([str(CAPTURES / name)]) as opened:
        return opened.messages[index]


def written(of: RpcRecord) -> str:
    return flat(Brackets("call(", call_items(of, SourceWriter(Imports()), NAMES), ")"))


def test_calls() -> None:
    assert written(record("basic_chain.pcap", 6)) == 'call(scale, args=(t0, t1), kwargs={"gain": 2.0})'
    assert written(record("basic_chain.pcap", 8)) == "call(torch.add, args=(t0, t1))"
    assert written(record("rref_relay.pcap.gz", 42)) == "call(torch.add, args=(t0, 41.0))"
    assert written(record("rref_relay.pcap.gz", 12)) == "call(use, args=(rref0, 1))"
    assert written(record("profiled_legacy.pcap", 10)) == "call(plus_one, args=(t0,))"
    assert written(request_of(udf("app.f"))) == "call(f)"


def test_answers() -> None:
    writer = SourceWriter(Imports())
    assert flat(answer_source(record("basic_chain.pcap", 7), writer, NAMES)) == "t0"
    assert flat(answer_source(record("basic_chain.pcap", 9), writer, NAMES)) == "t0"


def test_an_error_is_what_the_worker_raised() -> None:
    run = workload("pairs/error")
    (call,) = (call for call in run.calls() if "error" in call.answered)
    failure = failure_of(record("pairs/error.pcap.gz", call.response["index"]), SourceWriter(Imports()))
    assert failure == Failure("ArithmeticError", 'ArithmeticError("the norm of step 1 can\'t be had")')


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (b"The sizes must match\nException raised from x at /a/b.cpp:3", "The sizes must match"),
        (b"<Thing object at 0x7f001122>", None),
        (b"no such file /etc/x", None),
        (b"worker id: 3", None),
        (b"x" * 1000, None),
        (b"", None),
    ],
)
def test_texts_that_another_run_says_otherwise_are_not_compared(text: bytes, kept: str | None) -> None:
    failure = failure_of(record_of(ExceptionResponse(text)), SourceWriter(Imports()))
    assert failure == Failure("RuntimeError", kept)


def test_what_is_no_call() -> None:
    with pytest.raises(NoSourceError):
        written(answer_of(b"\x80\x02N."))
    with pytest.raises(NoSourceError):
        written(request_of(b"\x80\x02N."))


def test_arguments_that_are_one_tensor() -> None:
    with RunModel.open([str(CAPTURES / "basic_chain.pcap")]) as opened:
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
    with RunModel.open([str(CAPTURES / "rref_relay.pcap.gz")]) as opened:
        its = Variables(reproduction, program, TensorCollection(opened.bytes))
        assert its.shared(part) == [[8], []]
        assert its.variable(8) == "rref8"
        assert its.variable(9) == "out9"
