"""Whose code names of modules really are: a throw-away process that imports them and looks. Used as a script.

In: lines of JSON on standard input, [folders to search, module, names]. Out: a line for each, name → where
what CPython finds by that name comes from: `function FILE`, `class MODULE`, `literal`, `object MODULE` (of a
class of that module), `other`; names that aren't there are left out. None: the module can't be imported.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import types
import typing  # noqa: F401  (forks that import it begin with it)
import warnings

LITERALS = (type(None), bool, int, float, complex, str, bytes, type(...))


def whose(found: object) -> str:
    """Where something comes from, behind what only calls it."""
    while True:
        if isinstance(found, functools.partial):
            found = found.func
        elif isinstance(found, (staticmethod, classmethod, types.MethodType)):
            found = found.__func__
        elif hasattr(found, "__wrapped__") and not isinstance(found, type):
            found = found.__wrapped__
        else:
            break
    if isinstance(found, types.FunctionType):
        return f"function {found.__code__.co_filename}"
    if isinstance(found, type):
        return f"class {found.__module__}"
    if isinstance(found, LITERALS):
        return "literal"
    if type(found) in (list, tuple, set, dict):
        parts = [*found.keys(), *found.values()] if isinstance(found, dict) else [*found]
        return "literal" if all(whose(part) != "other" for part in parts) else "other"
    return f"object {type(found).__module__}"


def resolved(module: str, names: list[str]) -> dict[str, str] | None:
    """As an unpickler looks names up."""
    try:
        top = importlib.import_module(module)
    except Exception:
        return None
    told = {}
    for name in names:
        found = top
        try:
            for part in name.split("."):
                found = getattr(found, part)
        except AttributeError:
            continue
        told[name] = whose(found)
    return told


def in_a_fork(folders: list[str], module: str, names: list[str]) -> bytes:
    """The answer of a process that ends with it."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            sys.path[:0] = folders
            os.write(write, json.dumps(resolved(module, names)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


def main() -> None:
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")  # about what was made up
    for line in sys.stdin:
        print(in_a_fork(*json.loads(line)).decode() or "null", flush=True)


if __name__ == "__main__":
    main()
