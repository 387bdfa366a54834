"""What the names of a plan permit: which Python functions of the test's modules may run, which torch calls.

In: the names that a plan has as allowed, all of them in modules that are imported. Out: code objects.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CANARY, USERS = str(HERE / "elsewhere" / "canary.py"), str(HERE / "src" / "job.py")
Codes = set[types.CodeType]


def permitted(named: frozenset[str], strict: bool) -> frozenset[types.CodeType]:
    """Of `job` and `canary`: what the names are, with the bodies of their classes.

    `strict`: nothing of `canary` but what makes and restores objects of the user's classes.
    """
    found: Codes = {sys.modules["job"].__getattr__.__code__}  # Python asks it for whatever is not there
    for dotted in named:
        if dotted.startswith(("job.", "canary.")):
            module, *chain = dotted.split(".")
            value: Any = sys.modules[module]
            for part in chain:
                value = getattr(value, part, None)
            _add(value, found, strict, ())
    return frozenset(found)


def _add(value: Any, found: Codes, strict: bool, seen: tuple[Any, ...]) -> None:
    if any(value is one for one in seen):
        return
    seen = (*seen, value)
    value = getattr(value, "__func__", value)
    parts: list[Any] = []
    if isinstance(value, property):
        parts = [value.fget]
    elif isinstance(value, types.FunctionType):
        if value.__code__.co_filename != CANARY or not strict:
            found.add(value.__code__)
        parts = [vars(value).get("__wrapped__")]
    elif type(value) in (list, tuple):
        parts = list(value)
    elif type(value) is dict:
        parts = list(value.values())
    elif isinstance(value, type):
        parts = _bodies(value, found, strict)
    elif type(value).__module__ == "job":
        parts = [type(value)]
    for part in parts:
        _add(part, found, strict, seen)


def _bodies(cls: type, found: Codes, strict: bool) -> list[Any]:
    """What a class and its bases define."""
    parts: list[Any] = []
    for base in cls.__mro__:
        if base.__module__ == "job" or (base.__module__ == "canary" and not strict):
            parts += vars(base).values()
        elif base.__module__ == "canary" and base is not cls:
            found |= {vars(base)[name].__code__ for name in ("__init__", "__new__") if name in vars(base)}
    return parts


def called_by_rpc(named: frozenset[str]) -> dict[types.CodeType, str]:
    """Functions of torch that only torch itself calls, by rpc, and their names."""
    found = {}
    for dotted in named:
        module, _, name = dotted.rpartition(".")
        value = getattr(sys.modules.get(module), name, None)
        of_rpc = module.startswith(("torch.distributed", "_remote_module")) and not name.endswith("_receiver")
        if of_rpc and isinstance(value, types.FunctionType):
            found[value.__code__] = dotted
    return found
