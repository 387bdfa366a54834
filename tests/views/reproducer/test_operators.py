"""Operators as a person calls them: what rpc of PyTorch itself takes for that operator."""

from __future__ import annotations

from typing import Any

import pytest

from rpcinspect.replay.planning.operators import Parameter, read_schema
from rpcinspect.views.reproducer.operators import FUNCTIONAL, NN, enumerated, given, python_name

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
        made = eval(name, {"torch": torch})
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
