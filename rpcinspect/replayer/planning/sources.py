"""What the user's own files define: functions, classes and values, and what is only an alias of something
else.

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
from pathlib import Path
from typing import Literal

from msgspec import Struct

from rpcinspect.errors import OutputError
from rpcinspect.replayer.planning.source_bindings import read_bindings, read_rebuilders
from rpcinspect.replayer.planning.source_files import SearchPath, SourceFile
from rpcinspect.replayer.planning.source_meaning import Meanings
from rpcinspect.replayer.planning.source_model import File, Meaning, OwnClass, alias, combined
from rpcinspect.replayer.planning.source_names import BASES, CONSTRUCTED, ITEMS, PAIRS, RESTORED

MAIN_NAMES = frozenset({"__main__", "__mp_main__"})
MAX_SOURCE_BYTES = 1 << 24
NO_ITEMS = "it defines no append, extend or add"
NO_PAIRS = "it defines no __setitem__"

Kind = Literal["function", "class", "value", "alias"]


class Definition(Struct, frozen=True):
    """What a file of the user's says about a name."""

    kind: Kind
    of: str = ""
    """Of an alias: what it is, as one says it: `subprocess.getoutput`, `decorated by click.command`."""
    literal: bool = False
    """Of a value: whether it is only data, so that nobody could call it."""
    rebuilds: bool = False
    """Of a function: whether a `__reduce__` of its file returns it, so that pickles call it."""


class ClassFacts(Struct, frozen=True):
    """What the objects of a class run. Each text is empty where that is only code of the user's files, or
    harmless code of its bases, else the reason of refusal.
    """

    constructing: str = ""
    """`cls(*args)`"""
    loading: str = ""
    """The same, while a pickle is loaded: it may give something else than an object of the class."""
    restoring: str = ""
    """A pickle's object of it: `__new__`, its state, its use as a key."""
    calling: str = ""
    """`obj(*args)`"""
    changing: str = ""
    """A pickle's state or items for what `cls(*args)` or `cls.__new__` gave: it may be no new object."""
    items: str = ""
    """A pickle's items: `append`, `extend`, `add`."""
    pairs: str = ""
    """A pickle's keys and values: `__setitem__`."""
    bases: tuple[str, ...] = ()
    """Classes of others that it inherits from, by full name."""
    bound: frozenset[str] = frozenset()
    """What its body, or that of a base in the files, binds, but for declared fields."""


REASONS = ("constructing", "loading", "restoring", "calling", "changing", "items", "pairs")
"""The texts of `ClassFacts`."""


class Sources:
    """Definitions in the user's files."""

    def __init__(self, main: Path | None = None, paths: Sequence[Path] = ()) -> None:
        """Raises `OutputError` where a file that was named can't be read or parsed."""
        for path in paths:
            if not path.exists():
                raise OutputError(f"{path}: there is no such file or folder")
        # As workers.workers has it for live workers.
        self._search = SearchPath(paths, main, [Path(folder) for folder in sys.path if folder])
        self._files: dict[str, File | SourceFile | None] = {}
        self._meanings = Meanings(self._parsed)
        self.has_main = main is not None
        """Whether the names of `__main__` are those of a file."""
        self._found_names: dict[tuple[str, str], Meaning | None] = {}
        if main is not None:
            script = _parse(SourceFile(main), "__main__", self._search)
            self._files.update(dict.fromkeys(MAIN_NAMES, script))

    def find(self, module: str, name: str) -> Definition | None:
        """What a file of the user's says of a name, which may be `Class.method`; None where no file of the
        user's is this module, or none binds the name.

        Raises `OutputError` for a file that can't be read or parsed.
        """
        file = self._of(module)
        if file is None or not file.named:
            return None
        if isinstance(file, SourceFile):
            return Definition("alias", f"in {file.path.name}, which is compiled")
        found = self._found(file, name)
        return None if found is None else _defined(found, name.rpartition(".")[2] in file.rebuilders)

    def class_facts(self, module: str, name: str) -> ClassFacts | None:
        """What the objects of a class run; None where the name is no class that the files define."""
        file = self._parsed(module)
        found = self._found(file, name) if file is not None else None
        if found is None or found.kind != "class":
            return None
        facts = [self._facts(own) for own in found.classes]
        return ClassFacts(  # of all places that may define it
            **{name: _first(getattr(one, name) for one in facts) for name in REASONS},
            bases=tuple(dict.fromkeys(base for one in facts for base in one.bases)),
            bound=frozenset(name for one in facts for name in one.bound),
        )

    def has_method(self, name: str) -> bool:
        """Whether a class of a file that was looked at defines a method of this name."""
        scopes = [file.scope for file in self._files.values() if isinstance(file, File) and file.named]
        classes = [
            one.body for scope in scopes for places in scope.names.values() for one in places if one.body
        ]
        return any(place.how == "def" for body in classes for place in body.names.get(name, ()))

    def files(self) -> dict[str, str]:
        """The modules that were looked up, with the source files that they must be imported from."""
        files = [(name, file) for name, file in self._files.items() if name not in MAIN_NAMES]
        return {name: str(file.path) for name, file in files if isinstance(file, File) and file.named}

    # --- files ----------------------------------------------------------------------------------------------

    def _of(self, module: str) -> File | SourceFile | None:
        """A parsed file, or one that can't be parsed since it is compiled."""
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

    def _parsed(self, module: str) -> File | None:
        file = self._of(module)
        return file if isinstance(file, File) else None

    # --- names ----------------------------------------------------------------------------------------------

    def _found(self, file: File, name: str) -> Meaning | None:
        """The meaning of a name with dots; what a file imports is an alias, of its own files too."""
        key = (file.module, name)
        if key not in self._found_names:
            self._found_names[key] = self._look_up(file, name)
        return self._found_names[key]

    def _look_up(self, file: File, name: str) -> Meaning | None:
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

    def _facts(self, own: OwnClass) -> ClassFacts:
        order = self._meanings.order(own)
        bases = tuple(kind for kind in order if isinstance(kind, str))
        unknown = next((f"it inherits from {base}" for base in bases if base not in BASES), "")
        known = [BASES[base] for base in bases if base in BASES]
        call = self._meanings.member(own, "__call__")
        calling = f"its __call__ is {call.of}" if call is not None and call.kind == "alias" else ""
        new = "its __new__ may give something else" if self._meanings.gives_anything(own) else ""
        collects = {base.collects for base in known}
        has_items = "items" in collects or self._bound(own, ITEMS)
        has_pairs = "pairs" in collects or self._bound(own, PAIRS)
        return ClassFacts(
            constructing=unknown or _first(b.constructing for b in known) or self._foreign(own, CONSTRUCTED),
            loading=new or self._meanings.own_metaclass(own),
            restoring=unknown or _first(b.restoring for b in known) or self._foreign(own, RESTORED) or new,
            calling=calling if call is not None else "it defines no __call__",
            changing=self._meanings.shared(own),
            items=unknown or self._foreign(own, ITEMS) or ("" if has_items else NO_ITEMS),
            pairs=unknown or self._foreign(own, PAIRS) or ("" if has_pairs else NO_PAIRS),
            bases=bases,
            bound=frozenset(name for kind in order if isinstance(kind, OwnClass) for name in _bound(kind)),
        )

    def _foreign(self, own: OwnClass, names: Iterable[str]) -> str:
        """Why not all that the class, or a base of it in the files, binds to these names is the user's."""
        found = self._bound(own, names)
        return _first(f"its {name} is {of.of}" for name, of in found.items() if of.kind == "alias")

    def _bound(self, own: OwnClass, names: Iterable[str]) -> dict[str, Meaning]:
        """Which of these names the class, or a base of it in the files, binds, and to what."""
        mine = [kind for kind in self._meanings.order(own) if isinstance(kind, OwnClass)]
        bound = [name for name in names if any(kind.binds(name) for kind in mine)]
        found = {name: self._meanings.member(own, name) for name in bound}
        return {name: meaning for name, meaning in found.items() if meaning is not None}


def _bound(own: OwnClass) -> Iterable[str]:
    """Names that the body of a class binds, without those that it only declares: fields of dataclasses."""
    declared = own.body.attributes
    return (name for name in own.body.names if not any(one.how == "other" for one in declared.get(name, ())))


def _first(reasons: Iterable[str]) -> str:
    return next((reason for reason in reasons if reason), "")


def _defined(found: Meaning, rebuilds: bool) -> Definition:
    if found.kind == "module":
        return Definition("alias", f"the module {found.of}")
    return Definition(found.kind, found.of, found.literal, rebuilds and found.kind == "function")


def _parse(source: SourceFile, module: str, search: SearchPath) -> File:
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
    return File(
        module, path, source.named, scope, lambda name: search.has_submodule(source, name), rebuilders
    )
