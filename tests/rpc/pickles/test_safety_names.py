"""The lists agree with each other and with the real modules."""

from __future__ import annotations

import builtins
import importlib

import pytest

from rpcinspect.rpc.pickles.safety_names import COLLECTORS, DANGEROUS, PLAIN


def test_nothing_is_both() -> None:
    for module, names in PLAIN.items():
        for name in names:
            assert f"{module}.{name}" not in DANGEROUS


def test_builtins_are_types() -> None:
    for name in PLAIN["builtins"] - {"NotImplemented", "Ellipsis"}:
        found = getattr(builtins, name, None)
        assert found is None or isinstance(found, type), name
    assert PLAIN["builtins"].isdisjoint(
        {"type", "map", "filter", "super", "property", "getattr", "memoryview"}
    )


@pytest.mark.parametrize(
    "module", ["collections", "datetime", "decimal", "fractions", "uuid", "ipaddress", "pathlib"]
)
def test_names_exist(module: str) -> None:
    real = importlib.import_module(module)
    for name in PLAIN[module]:
        assert isinstance(getattr(real, name), type)


def test_torch_names_exist() -> None:
    torch = pytest.importorskip("torch")
    for name in PLAIN["torch"]:
        assert hasattr(torch, name), name
    for name in PLAIN["torch._utils"]:
        assert hasattr(torch._utils, name), name


def test_collectors_are_plain() -> None:
    plain = {name for names in PLAIN.values() for name in names}
    assert plain >= COLLECTORS
