"""The lists of torch's own names against torch."""

from __future__ import annotations

import importlib
import inspect

import pytest
import torch

from rpcinspect.replay.planning.gate_names import FILE_OPERATORS, FUNCTIONS, is_function, is_internal
from rpcinspect.rpc.pickles.safety_names import DANGEROUS, OPTIMIZERS, PLAIN

LEFT_OUT = [
    ("torch.distributed.rpc.rref_proxy", "_local_invoke"),
    ("torch.distributed.nn.api.remote_module", "_instantiate_template"),
    ("torch.distributed.nn.api.remote_module", "_create_module"),
    ("torch.jit", "load"),
    ("builtins", "getattr"),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of torch's own modules
@pytest.mark.parametrize("module", sorted({*FUNCTIONS, *OPTIMIZERS}))
def test_every_name_is_torchs(module: str) -> None:
    found = importlib.import_module(module)
    for name in FUNCTIONS.get(module, frozenset()):
        assert callable(getattr(found, name)), name
    for name in OPTIMIZERS.get(module, frozenset()):
        assert inspect.isclass(getattr(found, name)), name
        assert getattr(found, name).__module__ == module


def test_nothing_dangerous_is_listed() -> None:
    for table in (FUNCTIONS, OPTIMIZERS):
        for module, names in table.items():
            assert {f"{module}.{name}" for name in names}.isdisjoint(DANGEROUS)
            assert module not in DANGEROUS


@pytest.mark.parametrize(("module", "name"), LEFT_OUT)
def test_what_is_left_out_on_purpose(module: str, name: str) -> None:
    assert not is_function(module, name)
    assert not is_internal(module, name)


def test_plain_data_may_be_named_and_not_called() -> None:
    for module, names in PLAIN.items():
        for name in names:
            assert is_internal(module, name)
            assert not is_function(module, name)


def test_no_other_operator_takes_the_name_of_a_file() -> None:
    """Whatever torch is installed: operators of aten with an argument that looks like a file are listed."""
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            names = {argument.name for argument in schema.arguments if str(argument.type) == "str"}
            if any(word in name for name in names for word in ("file", "path")):
                assert schema.name in FILE_OPERATORS, str(schema)
