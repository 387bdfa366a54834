"""The user's own files: which names they define. They are parsed, never imported.

In: the files and folders that the user named by `--main` and `--path`. Out: whether a module of that name
lies there and defines a name: a function, a class, a method in a class, or a name that is assigned. What a
file only imports it does not define, so that `mymodule.Popen` gets nowhere. Files are read when a pickle
names their module.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from rpcinspect.errors import OutputError

MAIN_NAMES = frozenset({"__main__", "__mp_main__"})
MAX_SOURCE_BYTES = 1 << 24
NOT_THE_USERS = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "builtins"}
"""A folder of the user's does not replace these in a live worker, which has imported them already."""


class Sources:
    """Definitions in the user's files."""

    def __init__(self, main: Path | None = None, paths: Sequence[Path] = ()) -> None:
        """Raises `OutputError` where a file that was named can't be read or parsed."""
        self._paths = tuple(paths)
        self._modules: dict[str, frozenset[str]] = {}
        for path in self._paths:
            if not path.exists():
                raise OutputError(f"{path}: there is no such file or folder")
        if main is not None:
            found = definitions(main)
            for name in MAIN_NAMES:
                self._modules[name] = found

    def define(self, module: str, name: str) -> bool:
        """Whether a file that the user named is this module and defines this name, or `Class.method`."""
        return name in self._defined(module)

    def _defined(self, module: str) -> frozenset[str]:
        known = self._modules.get(module)
        if known is None:
            file = self._file(module)
            known = self._modules[module] = definitions(file) if file is not None else frozenset()
        return known

    def _file(self, module: str) -> Path | None:
        parts = module.split(".")
        if parts[0] in NOT_THE_USERS or not all(part.isidentifier() for part in parts):
            return None
        for path in self._paths:
            if path.is_file():
                if path.stem == module:
                    return path
                continue
            place = path.joinpath(*parts)
            for candidate in (place / "__init__.py", place.with_name(f"{place.name}.py")):
                if candidate.is_file():
                    return candidate
        return None


def definitions(file: Path) -> frozenset[str]:
    """The names that a source file defines at its top level, and `Class.name` for what its classes define."""
    try:
        if file.stat().st_size > MAX_SOURCE_BYTES:
            raise OutputError(f"{file}: too large for a source file")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's code, which is not ours to judge
            tree = ast.parse(file.read_bytes(), str(file))
    except OSError as error:
        raise OutputError(f"{file}: can't be read: {error.strerror or error}") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise OutputError(f"{file}: can't be parsed as Python: {error}") from error
    return frozenset(_names(tree.body, ""))


def _names(body: Sequence[ast.stmt], prefix: str) -> Iterator[str]:
    """Definitions of a block, those under `if`, `try` and `with` included."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name
        elif isinstance(node, ast.ClassDef):
            yield prefix + node.name
            yield from _names(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign):
            yield from (prefix + t.id for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield prefix + node.target.id
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            for part in ("body", "orelse", "finalbody"):
                yield from _names(getattr(node, part, ()), prefix)
            for handler in getattr(node, "handlers", ()):
                yield from _names(handler.body, prefix)
