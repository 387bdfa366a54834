"""The lists of what is harmless, against the real things in a throw-away process."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rpcinspect.replayer.planning.source_names import (
    BASES,
    CLASS_MAKERS,
    CLASS_WRAPPERS,
    CONSTANTS,
    HARMLESS_METHODS,
    METACLASSES,
    PARTIAL,
    WRAPPER_MAKERS,
    WRAPPERS,
)
from tests import forks

LISTED = frozenset().union(
    BASES, CLASS_MAKERS, CLASS_WRAPPERS, CONSTANTS, METACLASSES, PARTIAL, WRAPPER_MAKERS, WRAPPERS
)
NEWER = {"enum.EnumType", "enum.StrEnum", "enum.ReprEnum", "typing.override", "typing.dataclass_transform"}
NEWER |= {"typing.TypeVarTuple", "warnings.deprecated", "builtins.BaseExceptionGroup"}
"""Not in every Python that runs this."""
NEWEST = "typing_extensions."
"""A package that need not be installed."""

ORACLE = """
import importlib, json, sys
def resolve(name):
    module, _, rest = name.rpartition(".")
    while True:
        try:
            found = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, more = module.rpartition(".")
            rest = f"{more}.{rest}"
    for part in rest.split("."):
        found = getattr(found, part)
    return found
told = {}
for name, attributes in json.load(sys.stdin).items():
    try:
        found = resolve(name)
    except (AttributeError, ImportError, ValueError):
        told[name] = None
        continue
    told[name] = {
        "callable": callable(found),
        "there": [a for a in attributes if hasattr(found, a)],
        "public": [a for a in dir(found) if not a.startswith("_")],
        "class": isinstance(found, type),
    }
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def real() -> dict[str, dict[str, object] | None]:
    """What each listed name is."""
    pytest.importorskip("torch")
    asked = {name: sorted(HARMLESS_METHODS.get(name, ())) for name in LISTED}
    told = forks.run([sys.executable, "-I", "-c", ORACLE], text=json.dumps(asked), timeout=120, check=True)
    found: dict[str, dict[str, object] | None] = json.loads(told.stdout)
    return found


def test_everything_listed_exists(real: dict[str, dict[str, object] | None]) -> None:
    missing = {name for name, found in real.items() if found is None and not name.startswith(NEWEST)}
    assert missing <= NEWER


def test_listed_methods_exist(real: dict[str, dict[str, object] | None]) -> None:
    for name, methods in HARMLESS_METHODS.items():
        found = real[name]
        assert found is not None
        assert found["there"] == sorted(methods), name


def test_bases_without_names_have_none(real: dict[str, dict[str, object] | None]) -> None:
    for name, base in BASES.items():
        found = real[name]
        if base.bare and found is not None:
            assert not found["public"], name


def test_what_calls_by_another_method_is_a_base() -> None:
    assert HARMLESS_METHODS.keys() <= BASES.keys()
    assert not any("apply" in methods or "__call__" in methods for methods in HARMLESS_METHODS.values())


def test_what_is_harmless_calls_nothing_that_it_is_given() -> None:
    """Objects of classes with these bases are made, restored, filled and used as keys; methods get all kinds
    of arguments."""
    pytest.importorskip("torch")
    methods = {name: sorted(listed) for name, listed in HARMLESS_METHODS.items()}
    methods["torch.nn.Module"].append("apply")  # which shows that a call is noticed
    bases = [name for name, base in BASES.items() if not base.constructing and not name.startswith(NEWEST)]
    script = Path(__file__).with_name("harmless_oracle.py")
    text = json.dumps({"bases": bases, "methods": methods})
    told = forks.run([sys.executable, "-I", str(script)], text=text, timeout=120, check=True)
    called = {name for name, times in json.loads(told.stdout).items() if times}
    assert called == {"torch.nn.Module.apply"}
