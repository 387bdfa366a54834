"""JIT pickles: what torch writes passes, and nothing that its C++ would only take on trust."""

from __future__ import annotations

import pytest

from rpcinspect.pickles import jit_write
from rpcinspect.pickles.jit import read_jit
from rpcinspect.pickles.judge import Judge
from rpcinspect.pickles.judge_jit import MAX_JIT_DEPTH, judge_jit
from rpcinspect.pickles.semantic import MAX_TYPE_DEPTH, is_type_text
from rpcinspect.pickles.tree import Dict, Global, PickleCall, Value
from tests.pickles.policies import Mine


def jit_refused(value: Value) -> set[str]:
    judge = Judge(Mine())
    judge_jit(judge, value)
    return {one.name for one in judge.found.values() if not one.allowed}


def jit(name: str, *args: Value, module: str = "torch.jit._pickle") -> PickleCall:
    return PickleCall(Global(module, name), args)


RPC = "torch.distributed.rpc"
TENSOR = jit("build_tensor_from_id", 0)
HONEST = [
    (1, 2.5, "x", None, True, [1, [2]], Dict([("a", TENSOR)])),
    jit("build_intlist", [1, 2]),
    jit("build_doublelist", [1.0]),
    jit("build_boollist", [True]),
    jit("build_tensorlist", [TENSOR]),
    jit("restore_type_tag", [TENSOR], "List[Tensor]"),
    jit("restore_type_tag", Dict([("a", 1)]), "Dict[str, int]"),
    jit("device", "cuda:1", module="torch"),
    jit("complex", 1.0, 2.0, module="builtins"),
    jit("rref", 0, 0, 1, 0, 2, 0, "PyObject", module=RPC),
    PickleCall(Global("__torch__.mine", "C"), (), how="newobj", has_state=True, state=Dict([("t", TENSOR)])),
]


@pytest.mark.parametrize("value", HONEST, ids=str)
def test_what_torch_writes(value: Value) -> None:
    assert jit_refused(value) == set()


def test_what_is_written_reads_as_the_same() -> None:
    for value in HONEST[:-1]:
        assert jit_refused(read_jit(jit_write.write_jit(value))) == set()


FORGED = [
    (jit("build_tensor_from_id", -1), "torch.jit._pickle.build_tensor_from_id"),
    (jit("build_intlist", [1, "a"]), "torch.jit._pickle.build_intlist"),
    (jit("build_tensorlist", [1]), "torch.jit._pickle.build_tensorlist"),
    (jit("restore_type_tag", [1], "List[" * 40 + "int" + "]" * 40), "torch.jit._pickle.restore_type_tag"),
    (jit("restore_type_tag", [1], "Dict[str, int]"), "torch.jit._pickle.restore_type_tag"),
    (jit("device", "cpu; rm", module="torch"), "torch.device"),
    (
        jit("rref", 1 << 20, 0, 1, 0, 2, 0, "int", module="torch.distributed.rpc"),
        "torch.distributed.rpc.rref",
    ),
    (jit("_rebuild_tensor_v2", 1, module="torch._utils"), "torch._utils._rebuild_tensor_v2"),
    (jit("_rebuild_from_type_v2", 1, module="torch._tensor"), "torch._tensor._rebuild_from_type_v2"),
    (Global("os", "system"), "os.system"),
    (Global("torch", "device"), "torch.device"),
    (PickleCall(1, ()), "a call"),
    (PickleCall(Global("torch", "device"), ("cpu",), how="newobj"), "a call"),
    (PickleCall(Global("__torch__.lib", "C"), ()), "__torch__.lib.C"),
]


@pytest.mark.parametrize(("value", "culprit"), FORGED)
def test_what_torch_never_writes(value: Value, culprit: str) -> None:
    assert culprit in jit_refused((1, [value]))
    assert culprit in jit_refused(Dict([("a", (value,))]))


def test_nesting_of_values_in_c() -> None:
    value: Value = ()
    for _ in range(MAX_JIT_DEPTH - 1):
        value = (value,)
    assert jit_refused(value) == set()
    assert jit_refused((value,)) == {"a value"}


def test_texts_of_types() -> None:
    for good in (
        "PyObject",
        "Tensor",
        "List[Tensor]",
        "Dict[str, List[int]]",
        "__torch__.app.Net",
        "Tuple[()]",
    ):
        assert is_type_text(good)
    deep = "List[" * MAX_TYPE_DEPTH + "int" + "]" * MAX_TYPE_DEPTH
    assert is_type_text(deep)
    for bad in (f"List[{deep}]", "", "List[int", "int]", "a b;", "f(x)" * 500, "-int", "List[int]]["):
        assert not is_type_text(bad)
