"""The lists of names: exact, apart from each other, and held against the real modules."""

from __future__ import annotations

import importlib
import sys

import pytest

from rpcinspect.pickles.safe_names import (
    EXCEPTIONS,
    GENERATED,
    HELPERS,
    LAYERS,
    OPTIMIZERS,
    STANDARD_LIBRARY,
    VALUES,
    has_dunder,
    is_dangerous,
)
from rpcinspect.pickles.semantic import GETATTR, PICKLER
from rpcinspect.pickles.shapes import RULES
from rpcinspect.pickles.tree import Global

LEFT_OUT = ("torch", "numpy", "pathlib")  # `pathlib._local` is a module of CPython 3.13


def test_what_is_for_one_use_is_for_no_other() -> None:
    assert not VALUES & HELPERS
    assert not (VALUES | HELPERS | RULES.keys()) & {GETATTR, PICKLER, *GENERATED}
    assert not HELPERS & RULES.keys()


def test_no_value_is_a_helper_that_calls_what_it_is_given() -> None:
    for name in ("getattr", "setattr", "map", "filter", "type", "eval", "exec", "open", "__import__", "vars"):
        assert Global("builtins", name) not in VALUES
    for module, name in (
        ("functools", "partial"),
        ("functools", "reduce"),
        ("operator", "attrgetter"),
        ("operator", "methodcaller"),
        ("operator", "call"),
        ("copyreg", "_reconstructor"),
        ("types", "SimpleNamespace"),
        ("types", "FunctionType"),
        ("torch", "load"),
    ):
        assert Global(module, name) not in VALUES


@pytest.mark.parametrize(
    "name",
    sorted((one for one in VALUES if one.module.partition(".")[0] not in LEFT_OUT), key=str),
    ids=str,
)
def test_plain_values_exist_and_are_types_exceptions_or_operators(name: Global) -> None:
    made = getattr(importlib.import_module(name.module), name.name, None)
    if made is None:
        assert name.name in ("EncodingWarning", "ExceptionGroup", "BaseExceptionGroup")
        return
    assert isinstance(made, type) or name.module in ("operator", "_operator") or made in (NotImplemented, ...)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_exceptions_and_layers_of_torch_are_what_they_are_called() -> None:
    torch = pytest.importorskip("torch")
    for name in sorted(LAYERS | OPTIMIZERS, key=str):
        made = getattr(importlib.import_module(name.module), name.name, None)
        if made is None:  # of another release
            continue
        assert isinstance(made, type), name
        assert (made.__module__, made.__qualname__) == (name.module, name.name)
    for name in EXCEPTIONS:
        made = getattr(importlib.import_module(name.module), name.name, None)
        assert made is None or issubclass(made, BaseException), name
    assert torch.nn.Linear.__module__ == "torch.nn.modules.linear"


def test_dangerous_names() -> None:
    assert is_dangerous(Global("os", "system"))
    assert is_dangerous(Global("torch.utils.cpp_extension", "load"))
    assert is_dangerous(Global("mine", "os.system"))
    assert not is_dangerous(Global("mine", "system"))
    assert not is_dangerous(Global("osmosis", "system"))
    assert has_dunder("f.__globals__")
    assert not has_dunder("__private.f_")


def test_nothing_of_this_python_s_standard_library_is_missing() -> None:
    assert sys.stdlib_module_names <= STANDARD_LIBRARY
    assert "torch" not in STANDARD_LIBRARY
