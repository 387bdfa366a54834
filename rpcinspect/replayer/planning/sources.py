"""What the user's own files define: functions, classes and values, and aliases of anything else.

In: the files and folders that the user named by `--main` and `--path`. Out: of a name in one of these
modules, whether only code of these files would run if it were called, else whose it is; of a class, what
making, restoring and calling its objects would run. Files are parsed when a name in them is asked for, never
imported.

The rule is written down in docs/replay.md. A name may be bound in several places of a file: it is an alias as
soon as one of them makes it one. What is not the user's own and harmless all the same stands in
`source_names`.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rpcinspect.errors import OutputError
from rpcinspect.pickles.verdicts import NameRuling
from rpcinspect.replayer.planning.source_bindings import read_bindings, read_rebuilders
from rpcinspect.replayer.planning.source_files import SearchPath, SourceFile
from rpcinspect.replayer.planning.source_meaning import Meanings
from rpcinspect.replayer.planning.source_model import Meaning, OwnClass, ParsedFile, alias, combined
from rpcinspect.replayer.planning.source_names import BASES, CONSTRUCTED, ITEMS, PAIRS, RESTORED

MAIN_NAMES = frozenset({"__main__", "__mp_main__"})
MAX_SOURCE_BYTES = 1 << 24
NO_ITEMS = "it defines no append, extend or add"
NO_PAIRS = "it defines no __setitem__"

REASONS = ("constructing", "loading", "restoring", "calling", "changing", "items", "pairs")
"""Fields of `NameRuling` that say why a use of a class is refused."""


class Sources:
    """Definitions in the user's files."""

    def __init__(self, main: Path | None = None, paths: Sequence[Path] = ()) -> None:
        """Raises `OutputError` where a file that was named can't be read or parsed."""
        for path in paths:
            if not path.exists():
                raise OutputError(f"{path}: there is no such file or folder")
        # As workers.workers has it for live workers.
        self._search = SearchPath(paths, main, [Path(folder) for folder in sys.path if folder])
        self._files: dict[str, ParsedFile | SourceFile | None] = {}
        self._meanings = Meanings(self._parsed)
        self.has_main = main is not None
        """Whether the names of `__main__` are those of a file."""
        self._found = cache(self._look_up)
        if main is not None:
            script = _parse(SourceFile(main), "__main__", self._search)
            self._files.update(dict.fromkeys(MAIN_NAMES, script))

    def find(self, module: str, name: str) -> Meaning | None:
        """Returns the meaning of a name, which may be `Class.method`, in the user's files: code of the file,
        a value, or an alias, also for a module. None where no file of the user's is this module, or the file
        does not bind the name.

        Raises `OutputError` for a file that can't be read or parsed.
        """
        file = self._of(module)
        if file is None or not file.named:
            return None
        if isinstance(file, SourceFile):
            return alias(f"in {file.path.name}, which is compiled")
        return self._found(file, name)

    def is_rebuilder(self, module: str, name: str) -> bool:
        """Returns whether a `__reduce__` of the file returns the function, so that pickles call it."""
        file = self._parsed(module)
        return file is not None and name.rpartition(".")[2] in file.rebuilders

    def class_standing(self, module: str, name: str) -> NameRuling | None:
        """Returns what the objects of a class may be used for; None where the files define no such class.

        A reason is empty where only code of the user's files would run, or harmless code of its bases.
        """
        file = self._parsed(module)
        found = self._found(file, name) if file is not None else None
        if found is None or found.kind != "class":
            return None
        places = [self._standing(own) for own in found.classes]
        reasons: dict[str, Any] = {name: _first(getattr(one, name) for one in places) for name in REASONS}
        return NameRuling(True, "class", bound=frozenset().union(*(one.bound for one in places)), **reasons)

    def has_method(self, name: str) -> bool:
        """Whether a class of a file that was looked at defines a method of this name."""
        scopes = [file.scope for file in self._files.values() if isinstance(file, ParsedFile) and file.named]
        classes = [
            one.body for scope in scopes for places in scope.names.values() for one in places if one.body
        ]
        return any(place.how == "def" for body in classes for place in body.names.get(name, ()))

    def path_of(self, module: str) -> Path | None:
        """Returns the file of a module that the user named; None where it is none of these."""
        file = self._parsed(module)
        return file.path if file is not None and file.named else None

    def files(self) -> dict[str, str]:
        """The modules that were looked up, with the source files that they must be imported from."""
        files = [(name, file) for name, file in self._files.items() if name not in MAIN_NAMES]
        return {name: str(file.path) for name, file in files if isinstance(file, ParsedFile) and file.named}

    # --- files ----------------------------------------------------------------------------------------------

    def _of(self, module: str) -> ParsedFile | SourceFile | None:
        """Returns a parsed file, or one that can't be parsed since it is compiled."""
        if module not in self._files:
            source = self._search.find(module)
            try:
                file = source if source is None or source.compiled else _parse(source, module, self._search)
            except OutputError:
                if source is not None and source.named:
                    raise
                file = None
            self._files[module] = file
        return self._files[module]

    def _parsed(self, module: str) -> ParsedFile | None:
        file = self._of(module)
        return file if isinstance(file, ParsedFile) else None

    # --- names ----------------------------------------------------------------------------------------------

    def _look_up(self, file: ParsedFile, name: str) -> Meaning | None:
        """Returns the meaning of a name with dots; imports are aliases, those of the user's own files too."""
        first, *others = name.split(".")
        for binding in file.scope.names.get(first, ()):
            if binding.how == "import":
                return alias(".".join([binding.text, *others]))
        found = self._meanings.name(file, first)
        for part in others:
            if found is None or found.kind == "alias":
                return found
            known = [self._meanings.member(own, part) for own in found.classes]
            there = [one for one in known if one is not None]
            found = combined(there) if there else None
        return found

    def _standing(self, own: OwnClass) -> NameRuling:
        bases = [kind for kind in self._meanings.order(own) if isinstance(kind, str)]
        unknown = next((f"it inherits from {base}" for base in bases if base not in BASES), "")
        known = [BASES[base] for base in bases if base in BASES]
        call = self._meanings.member(own, "__call__")
        calling = f"its __call__ is {call.of}" if call is not None and call.kind == "alias" else ""
        new = "its __new__ may give something else" if self._meanings.gives_anything(own) else ""
        collects = {base.collects for base in known}
        has_items = "items" in collects or self._bound(own, ITEMS)
        has_pairs = "pairs" in collects or self._bound(own, PAIRS)
        return NameRuling(
            True,
            constructing=unknown or _first(b.constructing for b in known) or self._foreign(own, CONSTRUCTED),
            loading=new or self._meanings.own_metaclass(own),
            restoring=unknown or _first(b.restoring for b in known) or self._foreign(own, RESTORED) or new,
            calling=calling if call is not None else "it defines no __call__",
            changing=self._meanings.shared(own),
            items=unknown or self._foreign(own, ITEMS) or ("" if has_items else NO_ITEMS),
            pairs=unknown or self._foreign(own, PAIRS) or ("" if has_pairs else NO_PAIRS),
            bound=frozenset(name for kind in self._meanings.own_order(own) for name in _bound(kind)),
        )

    def _foreign(self, own: OwnClass, names: Iterable[str]) -> str:
        """The reason why not all that the class, or a base of it in the files, binds to these names is the
        user's; empty where all is.
        """
        found = self._bound(own, names)
        return _first(f"its {name} is {of.of}" for name, of in found.items() if of.kind == "alias")

    def _bound(self, own: OwnClass, names: Iterable[str]) -> dict[str, Meaning]:
        """Returns which of these names the class, or a base of it in the files, binds, and to what."""
        mine = self._meanings.own_order(own)
        bound = [name for name in names if any(kind.binds(name) for kind in mine)]
        found = {name: self._meanings.member(own, name) for name in bound}
        return {name: meaning for name, meaning in found.items() if meaning is not None}


def _bound(own: OwnClass) -> Iterable[str]:
    """Names that the body of a class binds, without those that it only declares: fields of dataclasses."""
    declared = own.body.attributes
    return (name for name in own.body.names if not any(one.how == "other" for one in declared.get(name, ())))


def _first(reasons: Iterable[str]) -> str:
    return next((reason for reason in reasons if reason), "")


def _parse(source: SourceFile, module: str, search: SearchPath) -> ParsedFile:
    """The bindings of a source file. Raises `OutputError` where it can't be read or parsed."""
    path = source.path
    try:
        if path.stat().st_size > MAX_SOURCE_BYTES:
            raise OutputError(f"{path}: too large for a source file")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's code, which is not ours to judge
            tree = ast.parse(path.read_bytes(), str(path))
        scope = read_bindings(tree, module, package=source.package is not None)
    except OSError as error:
        raise OutputError(f"{path}: can't be read: {error.strerror or error}") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise OutputError(f"{path}: can't be parsed as Python: {error}") from error
    rebuilders = read_rebuilders(tree)
    return ParsedFile(
        module, path, source.named, scope, lambda name: search.has_submodule(source, name), rebuilders
    )
