"""What names of the user's files stand for: the results of `source_meaning` and `sources`.

In: nothing; these are records. Out: `Meaning`, and what it refers to.

A meaning says whose code it is: a function, a class or a value of the files, or an alias of something else.
Where several places bind a name, their meanings are combined into the one that promises least.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from rpcinspect.replayer.planning.source_bindings import Binding, Scope


class ParsedFile(Struct, frozen=True, eq=False):
    """A parsed file with its bindings."""

    module: str
    path: Path
    named: bool
    """Whether the user named it. Of other files only their imports are followed."""
    scope: Scope
    submodules: Callable[[str], bool]
    """Whether it is a package with a submodule of that name."""
    rebuilders: frozenset[str] = frozenset()
    """Functions that its reducers name, see `read_rebuilders`."""


class OwnClass(Struct, frozen=True, eq=False):
    """A class that one of the files defines."""

    name: str
    file: ParsedFile
    definition: Binding | None = None
    """None where a call made it."""
    base: str = ""
    """Of one that a call made: what it inherits from."""

    @property
    def body(self) -> Scope:
        """Returns the bindings of the class body."""
        return self.definition.body if self.definition and self.definition.body else Scope()

    @property
    def keywords(self) -> list[ast.keyword]:
        """Returns the keywords of the class statement: a metaclass and its arguments."""
        node = self.definition.node if self.definition is not None else None
        return node.keywords if isinstance(node, ast.ClassDef) else []

    def bindings(self, name: str) -> list[Binding]:
        """Returns the bindings of a name in the class body, and the assignments to such an attribute of the
        class in the file; also of what may be the class or an object of it, if that changes what the body
        binds."""
        own, module = self.body.names.get(name, []), self.file.scope
        simple = self.name.rpartition(".")[2]
        patches = [
            patch
            for patch in module.patches.get(name, ())
            if patch.owner == simple or (own and patch.owner not in module.classes)
        ]
        return [*own, *patches]

    def binds(self, name: str) -> bool:
        """Returns whether the file sets this attribute of the class or of its objects."""
        return bool(self.bindings(name)) or name in self.body.attributes


class Meaning(Struct, frozen=True):
    """What a name or an expression stands for."""

    kind: Literal["function", "class", "value", "alias"]
    of: str = ""
    """Of an alias what it is, in words."""
    foreign: tuple[str, ...] = ()
    """Of an alias, if it is exactly a module, or something of another one: its full name. More than one if
    places differ: one release of torch has it here, another one there."""
    classes: tuple[OwnClass, ...] = ()
    """Of a class: more than one if several places define it."""
    literal: bool = False
    """Of a value: whether it is only data. Of a function: whether in some place it is a value instead."""
    definitions: tuple[ast.AST, ...] = ()
    """Of a function, where each place that binds it leads to one."""


FUNCTION, LITERAL, OBJECT = Meaning("function"), Meaning("value", literal=True), Meaning("value")


def alias(of: str) -> Meaning:
    """Returns the meaning of a name from outside the user's files; `of` describes it."""
    return Meaning("alias", of=of)


def foreign(name: str, of: str = "") -> Meaning:
    """The meaning of something of another module, by its full name."""
    return Meaning("alias", of=of or name, foreign=(name,))


def combined(meanings: Sequence[Meaning]) -> Meaning:
    """What a name stands for that is bound in several places, one or more."""
    if all(meaning == meanings[0] for meaning in meanings):
        return meanings[0]
    aliases = [meaning for meaning in meanings if meaning.kind == "alias"]
    if aliases:
        others = [meaning for meaning in meanings if meaning != LITERAL]  # None where an import fails
        if all(meaning.foreign for meaning in others):
            names = dict.fromkeys(name for meaning in others for name in meaning.foreign)
            return Meaning("alias", aliases[0].of, tuple(names))
        return alias(min(aliases, key=lambda meaning: len(meaning.foreign)).of)
    kinds = {meaning.kind for meaning in meanings if meaning != LITERAL}
    if len(kinds) > 1 and "class" in kinds:
        return alias("a class, or something else")
    classes = tuple(dict.fromkeys(own for meaning in meanings for own in meaning.classes))
    if classes:
        return Meaning("class", classes=classes)
    if kinds == {"function"}:
        literal = any(meaning.literal for meaning in meanings)
        known = all(meaning.definitions for meaning in meanings)
        definitions = dict.fromkeys(node for meaning in meanings for node in meaning.definitions)
        return Meaning("function", literal=literal, definitions=tuple(definitions) if known else ())
    return OBJECT if kinds else LITERAL
