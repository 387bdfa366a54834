"""Which file a module would be imported from by a live worker: the search of CPython's FileFinder and
PathFinder.

In: the files and folders of `--path`, and what a live worker searches after them. Out: the source file of a
module that lies where the user said, or why there is none. Nothing is imported. Mirrors
`importlib._bootstrap_external`: within a folder a package goes before compiled modules, those before source,
that before byte code, and all before a folder without `__init__`; of folders the first that has it, but one
without `__init__` only if no other has a module of the name.

Assumes that no import of the user's code changes `sys.path` or `sys.meta_path`; a live worker checks what it
imported against the file that was read (`workers.worker_imports`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

COMPILED_FIRST = (".so", ".pyd", ".dylib")
NOT_THE_USERS = (
    frozenset(sys.stdlib_module_names)
    | frozenset(sys.builtin_module_names)
    | {"torch", "numpy", "rpcinspect", "__main__", "__mp_main__", "sitecustomize", "usercustomize"}
    | {"__hello__", "__hello_alias__", "__hello_only__", "__phello__", "__phello_alias__"}
)
"""What a live worker has imported before it searches the user's folders, or finds without searching."""


class SourceFile(Struct, frozen=True):
    """Where a module comes from."""

    path: Path
    package: Path | None = None
    """The folder of a package, whose `__init__` this is."""
    compiled: bool = False
    """Whether it is machine or byte code, of which nothing can be read."""
    named: bool = True
    """Whether the user named it. Otherwise it lies beside his script, and tells what names stand for that the
    script imports from it."""


class _Folder(Struct, frozen=True):
    """Where modules are searched."""

    path: Path
    named: bool
    """Whether the user named it, or a folder around it, as one whose modules are his."""
    beside: bool = False
    """Whether the script lies in it."""

    def inner(self, name: str) -> _Folder:
        """Returns a folder inside."""
        return _Folder(self.path / name, self.named, self.beside)


class SearchPath:
    """Folders in the order in which a live worker searches them."""

    def __init__(self, paths: Sequence[Path], script: Path | None = None, after: Sequence[Path] = ()) -> None:
        """`script`: that of `--main`, whose folder comes after those of the user; `after` comes last."""
        files = [path for path in paths if os.path.isfile(path)]
        self._files = frozenset(path.parent.resolve() / path.name for path in files)
        named = {path.resolve() for path in paths if path not in files}
        beside = [] if script is None else [script.resolve().parent]
        own = [(path.parent if path in files else path).resolve() for path in paths]
        order = [*own, *beside, *(path.resolve() for path in after)]
        self._folders = tuple(_Folder(path, path in named, path in beside) for path in dict.fromkeys(order))
        self._names = cache(_names)

    def find(self, module: str) -> SourceFile | None:
        """The file of a module; None where it is not one of the user's."""
        parts = module.split(".")
        if parts[0] in NOT_THE_USERS or not all(part.isidentifier() for part in parts):
            return None
        found, folders = None, self._folders
        for part in parts:
            found, folders = self._in(folders, part)  # of a module that is no package, there are no folders
        return found

    def has_submodule(self, package: SourceFile, name: str) -> bool:
        """Whether importing something sets this attribute of a package: its submodule of that name."""
        if package.package is None:
            return False
        found, portions = self._in((_Folder(package.package, package.named),), name)
        return found is not None or bool(portions)

    def _in(self, folders: Sequence[_Folder], name: str) -> tuple[SourceFile | None, tuple[_Folder, ...]]:
        """Returns a module in these folders, and the folders in which its submodules are searched."""
        portions: list[_Folder] = []
        for folder in folders:
            inner = folder.path / name
            is_folder = name in self._names(folder.path) and os.path.isdir(inner)
            package = self._file(inner, "__init__") if is_folder else None
            if package is not None:
                return self._users(package, folder, inner), (folder.inner(name),)
            module = self._file(folder.path, name)
            if module is not None:
                return self._users(module, folder), ()
            if is_folder:
                portions.append(folder.inner(name))
        return None, tuple(portions)

    def _users(self, file: Path, folder: _Folder, package: Path | None = None) -> SourceFile | None:
        """Returns the file if it is the user's, else nothing."""
        named = folder.named or file in self._files
        return SourceFile(file, package, file.suffix != ".py", named) if named or folder.beside else None

    def _file(self, folder: Path, stem: str) -> Path | None:
        names = self._names(folder)
        compiled = sorted(n for n in names if n.startswith(f"{stem}.") and n.endswith(COMPILED_FIRST))
        for name in (*compiled, f"{stem}.py", f"{stem}.pyc"):
            if name in names and os.path.isfile(folder / name):
                return folder / name
        return None


def _names(folder: Path) -> frozenset[str]:
    """What lies in a folder, spelt as there: on some systems a file is there by other spellings too."""
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()
