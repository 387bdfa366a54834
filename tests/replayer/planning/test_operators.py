"""Which operators may run, with which arguments: the schemas are torch's own, or those of captures."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.pickles.tree import Global, PickleCall, Value
from rpcinspect.pickles.verdicts import Named
from rpcinspect.pipeline import Decoding
from rpcinspect.replayer.planning.operators import MAX_SIZE, is_known, judge_operator, read_schema
from rpcinspect.rpc.command import ScriptCall, ScriptRemoteCall
from tests.places import OTHER_JOBS, recorded, recordings, workloads
from tests.thorough import representative

ADD = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
SUM = (
    "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"
)
ZEROS = (
    "aten::zeros(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
    "bool? pin_memory=None) -> Tensor"
)
CLONE = "aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor"
CAT = "aten::cat(Tensor[] tensors, int dim=0) -> Tensor"
INDEX = "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor"
NORMAL = "aten::normal.float_float(float mean, float std, SymInt[] size) -> Tensor"
POOL = (
    "aten::max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, int[2] kernel_size, "
    "int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode, Tensor indices) -> Tensor"
)


def made(name: str, *args: Value) -> PickleCall:
    return PickleCall(Global("torch.jit._pickle", name), args)


def ints(*numbers: Value) -> PickleCall:
    return made("build_intlist", [*numbers])


def device(text: Value) -> PickleCall:
    return PickleCall(Global("torch", "device"), (text,))


HONEST = [*workloads(), *recordings(*OTHER_JOBS)]
X = made("build_tensor_from_id", 0)


def schemas() -> list[Any]:
    torch = pytest.importorskip("torch")
    found: list[Any] = torch._C._jit_get_all_schemas()
    return found


# --- schemas ------------------------------------------------------------------------------------------------


def test_every_schema_of_torch_is_read_as_torch_means_it() -> None:
    """The registry tells names and arguments apart itself."""
    for schema in schemas():
        text = str(schema)
        read = read_schema(text)
        assert read is not None, text
        overload = f".{schema.overload_name}" if schema.overload_name else ""
        assert read.name == schema.name + overload
        if "..." in text.rpartition(" -> ")[0]:
            assert read.parameters is None
            continue
        assert read.parameters is not None
        assert len(read.parameters) == len(schema.arguments), text
        for kind, argument in zip([one.kind for one in read.parameters], schema.arguments, strict=True):
            length = f"[{argument.N}]" if argument.N else "[]"
            if is_known(kind):
                assert kind == argument.real_type.str().replace("[]", length), text


def test_schemas_of_other_releases_are_read() -> None:
    read = read_schema("aten::add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> (Tensor)")
    assert read is not None
    assert read.name == "aten::add.Scalar"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "aten::add.Tensor",
        "aten::add.Tensor(",
        "aten::add.Tensor()",
        "aten::add.Tensor() -> ",
        "aten::add.Tensor(Tensor self -> Tensor",
        "aten::add.Tensor(Tensor) -> Tensor",
        "aten::add.Tensor(Tensor self,) -> Tensor",
        "aten::add.Tensor(Tensor self)) -> Tensor",
        " aten::add.Tensor(Tensor self) -> Tensor",
        "aten::add.Tensor (Tensor self) -> Tensor",
        "aten::add.Tensor(Tensor self) -> Tensor\n",
        "aten::add.Tensor(Tensor self) -> Tensor\0",
        "aten::add.Tensor(Tensor self) -> Tensor; aten::from_file",
        "aten::ad\u0501.Tensor(Tensor self) -> Tensor",
        "add(Tensor self) -> Tensor",
        "aten:add(Tensor self) -> Tensor",
        "aten::add.a.b(Tensor self) -> Tensor",
        'aten::add(str a="x) -> Tensor',
        "aten::x(" + "(" * 100_000,
        "aten::x(" + "(" * 20 + "int" + ")" * 20 + " a) -> Tensor",
        "aten::x(int" + "[]" * 2000 + " a) -> Tensor",
    ],
)
def test_what_is_no_schema_has_no_name(text: str) -> None:
    assert read_schema(text) is None
    judged = judge_operator(text, ())
    assert (judged.allowed, judged.allow, judged.dangerous) == (False, "", True)


# --- judgement ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "args"),
    [
        (ADD, (X, X, 1)),
        (ADD, (X, X, 0.5)),
        (ADD, (X, X, True)),
        (ADD, (X, X, PickleCall(Global("builtins", "complex"), (0.0, 1.0)))),
        (SUM, (X, None, False, None)),
        (SUM, (X, ints(0, -1), True, 6)),
        (ZEROS, (ints(), None, None, None, None)),
        (ZEROS, (ints(2, 3), 6, 0, device("cpu"), False)),
        (ZEROS, (ints(2, 3), 6, 0, device("cuda:1"), False)),
        (CLONE, (X, 2)),
        (CAT, (made("build_tensorlist", [X, X]), 0)),
        (INDEX, (X, made("restore_type_tag", [None, X], "List[Optional[Tensor]]"))),
        (NORMAL, (0.0, 1.0, ints(4))),
    ],
)
def test_what_models_send_passes(schema: str, args: tuple[Value, ...]) -> None:
    judged = judge_operator(schema, args)
    assert judged == Named(schema.partition("(")[0], True)


@pytest.mark.parametrize(
    ("schema", "args", "said"),
    [
        (ADD, (), "0 arguments for an operator of 3"),
        (ADD, (X, X), "2 arguments for an operator of 3"),
        (ADD, (X, X, 1, X), "4 arguments for an operator of 3"),
        (ADD, (X, 3, 1), "argument 2 is not a Tensor"),
        (ADD, (X, None, 1), "argument 2 is not a Tensor"),
        (ADD, (X, X, X), "argument 3 is not a Scalar"),
        (ADD, (X, X, "1"), "argument 3 is not a Scalar"),
        (ADD, (X, X, 1 << 63), "argument 3 is not a Scalar"),
        (
            ADD,
            (X, PickleCall(Global("torch.jit._pickle", "build_tensor_from_id"), (0,), how="newobj"), 1),
            "argument 2",
        ),
        (
            ADD,
            (X, PickleCall(Global("torch._utils", "_rebuild_tensor_v2"), (X, 0, (9,), (1,))), 1),
            "argument 2",
        ),
        (ADD, (X, made("build_tensor_from_id", "0"), 1), "argument 2 is not a Tensor"),
        (SUM, (X, [0], False, None), "argument 2 is not a int[1]?"),
        (SUM, (X, ints("0"), False, None), "argument 2 is not a int[1]?"),
        (SUM, (X, ints(X), False, None), "argument 2 is not a int[1]?"),
        (SUM, (X, ints(0), 0, None), "argument 3 is not a bool"),
        (SUM, (X, ints(0), False, -1), "argument 4 is not a ScalarType?"),
        (SUM, (X, ints(0), False, 46), "argument 4 is not a ScalarType?"),
        (SUM, (X, ints(0), False, True), "argument 4 is not a ScalarType?"),
        (ZEROS, (ints(2), None, -1, None, None), "argument 3 is not a Layout?"),
        (ZEROS, (ints(2), None, 3, None, None), "argument 3 is not a Layout?"),
        (ZEROS, (ints(2), None, None, 0, None), "argument 4 is not a Device?"),
        (ZEROS, (ints(2), None, None, device("meta"), None), "argument 4 is not a Device?"),
        (ZEROS, (ints(2), None, None, device("cpu\n"), None), "argument 4 is not a Device?"),
        (CLONE, (X, 4), "argument 2 is not a MemoryFormat?"),
        (CAT, (made("build_tensorlist", [X, 1]), 0), "argument 1 is not a Tensor[]"),
        (CAT, (made("restore_type_tag", [X], "List[Tensor]"), 0), "argument 1 is not a Tensor[]"),
        (
            INDEX,
            (X, made("restore_type_tag", [0], "List[Optional[Tensor]]")),
            "argument 2 is not a Tensor?[]",
        ),
        (NORMAL, (0, 1.0, ints(4)), "argument 1 is not a float"),
        ("aten::add.Tensor(Foo self) -> Tensor", (1,), "argument 1 is not a Foo"),
        (POOL, (X,), "1 arguments for an operator of 8"),
        ("aten::format(str self, ...) -> str", ("x",), "an operator of any number of arguments"),
        ("prim::Print(...) -> ()", ("x",), "outside of aten"),
        (
            "quantized::add(Tensor qa, Tensor qb, float scale, int zero_point) -> Tensor",
            (X, X, 1.0, 0),
            "of aten",
        ),
    ],
)
def test_no_option_lets_the_wrong_arguments_through(schema: str, args: tuple[Value, ...], said: str) -> None:
    """Live, each of the first two, and an element type of -1, ended a worker with signal 11."""
    judged = judge_operator(schema, args)
    assert (judged.allowed, judged.allow, judged.dangerous) == (False, "", True)
    assert said in judged.reason


@pytest.mark.parametrize(
    ("schema", "args", "said"),
    [
        (POOL, (X, X, ints(2), ints(2), ints(0), ints(1), False, X), "a backward pass"),
        ("aten::_embedding_bag_sparse_backward(Tensor a) -> Tensor", (X,), "backward"),
        ("aten::_unique(Tensor self) -> Tensor", (X,), "internal to torch"),
        (
            "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
            (X, X, 1),
            "writes into",
        ),
        ("aten::abs.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", (X, X), "writes into"),
        (
            "aten::set_.source_Tensor(Tensor(a!) self, Tensor source) -> Tensor(a!)",
            (X, X),
            "sizes and strides",
        ),
        (
            "aten::as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride) -> Tensor(a)",
            (X, ints(), ints()),
            "sizes",
        ),
        ("aten::from_file(str filename) -> Tensor", ("/etc/passwd",), "a file"),
        ("aten::save(t item, str filename) -> ()", (X, "x"), "a file"),
        ("aten::manual_seed(int seed) -> ()", (0,), "the whole process"),
        ("aten::dict.str((str, tVal)[] inputs) -> Dict(str, tVal)", (1,), "known only to compute"),
        ("aten::new_one(Tensor self) -> Tensor", (X,), "known only to compute"),
        (CAT, (made("build_tensorlist", [X]), MAX_SIZE + 1), "beyond 32 bits"),
        (SUM, (X, ints(-1 << 63), False, None), "beyond 32 bits"),
    ],
)
def test_the_rest_needs_to_be_allowed(schema: str, args: tuple[Value, ...], said: str) -> None:
    judged = judge_operator(schema, args)
    assert (judged.allowed, judged.dangerous) == (False, True)
    assert judged.name == judged.allow == schema.partition("(")[0]
    assert said in judged.reason


def test_an_id_may_be_of_64_bits() -> None:
    assert judge_operator("aten::get_gradients(int context_id) -> Dict(Tensor, Tensor)", (1 << 48,)).allowed


def test_the_reported_operator_does_not_pass() -> None:
    (judged,) = judged_in(recorded("reports/hostile/aten_indices.rpclog"))
    operator = POOL.partition("(")[0]
    assert judged == Named(operator, False, judged.reason, operator, dangerous=True)


@pytest.mark.parametrize("capture", representative(HONEST), ids=lambda path: path.name)
def test_every_operator_of_an_honest_run_passes(capture: Path) -> None:
    assert [judged for judged in judged_in(capture) if not judged.allowed] == []


def test_honest_runs_call_operators() -> None:
    names = {judged.name for capture in recordings("torch-suite") for judged in judged_in(capture)}
    names |= {judged.name for judged in judged_in(recorded("torch/sparse.pcap"))}
    assert names >= {
        *(
            "aten::add.Tensor",
            "aten::mul.Tensor",
            "aten::div.Tensor",
            "aten::matmul",
            "aten::stack",
            "aten::cos",
        ),
        *("aten::linalg_multi_dot", "aten::quantize_per_channel"),
    }


@cache
def judged_in(capture: Path) -> list[Named]:
    """Each operator that the requests of a capture call."""
    found = []
    with Decoding([str(capture)]) as decoding:
        for record in decoding.records():
            command = record.rpc.command
            if isinstance(command, (ScriptCall, ScriptRemoteCall)) and command.schema is not None:
                found.append(judge_operator(command.schema, command.args))
    return found
