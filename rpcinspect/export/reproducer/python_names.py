"""Names and literals of Python source and the comments of a reproducer: what captured pickles may make of a
script, checked and escaped; and source in lines that are not too long, as the usual formatters write it.

In: globals as pickles name them, places in values, text. Out: expressions, import statements, literals,
comments, all in ASCII. The user's modules must not take a name that the script has (`RESERVED`). A
name that is none, or that hides behind letters that look alike, raises `NoSourceError`.

`lay_out`: text, and brackets with items → the same on one line where that fits, otherwise one item per line
with a comma behind each, which is what black and `ruff format` leave as it is.
"""

from __future__ import annotations

import builtins
import keyword
import re
import textwrap
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct

from rpcinspect.pickles.places import ValuePath
from rpcinspect.pickles.safe_names import words_of
from rpcinspect.pickles.tree import Global
from rpcinspect.rpc.callee import REMOTE_FORWARD

WIDTH = 88
INDENT = "    "


class Brackets(Struct, frozen=True):
    """`open item, item close`."""

    open: str
    items: Sequence[SourceItem]
    close: str
    single_comma: bool = False
    """A comma behind an item that is the only one: a tuple's."""


class Item(Struct, frozen=True):
    """An item with what stands before it: `x=`, `"key": `."""

    prefix: str
    source: SourceItem


SourceItem: TypeAlias = str | Brackets | Item


def flat(source: SourceItem) -> str:
    """Returns the source on one line."""
    if isinstance(source, str):
        return source
    if isinstance(source, Item):
        return source.prefix + flat(source.source)
    inner = ", ".join(map(flat, source.items))
    comma = "," if source.single_comma and len(source.items) == 1 else ""
    return f"{source.open}{inner}{comma}{source.close}"


def lay_out(source: SourceItem, *, lead: str = "", tail: str = "", depth: int = 0) -> str:
    """`lead` + source + `tail` with `depth` levels of indentation; the first line is indented too."""
    return INDENT * depth + _lay(source, lead, tail, depth)


def _lay(source: SourceItem, lead: str, tail: str, depth: int) -> str:
    if isinstance(source, Item):
        return _lay(source.source, lead + source.prefix, tail, depth)
    line = lead + flat(source) + tail
    if isinstance(source, str) or not source.items or len(line) <= WIDTH - len(INDENT) * depth:
        return line
    indent = INDENT * (depth + 1)
    rows = [indent + _lay(item, "", ",", depth + 1) for item in source.items]
    return "\n".join([lead + source.open, *rows, INDENT * depth + source.close + tail])


class NoSourceError(Exception):
    """Why a value can't be written down."""


def quoted(text: str) -> str:
    """A literal in ASCII, with double quotes where that needs no escapes."""
    literal = ascii(text)
    if literal[0] == "'" and '"' not in literal and "\\'" not in literal:
        return f'"{literal[1:-1]}"'
    return literal


def quoted_bytes(raw: bytes) -> str:
    """Returns a literal for bytes, in the style of `quoted`."""
    return f"b{quoted(raw.decode('latin-1'))}"


def is_name(text: str) -> bool:
    """Returns whether a text is a name that can stand in source."""
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text)


class RemoteModuleTemplate(Struct, frozen=True):
    """What torch makes the module with the TorchScript functions of a scripted RemoteModule of."""

    interface: Global
    moves_tensors: bool
    """Between the CPU and a GPU on which the RemoteModule is."""

    @property
    def module(self) -> str:
        """The name of the module, as `instantiate_scriptable_remote_module_template` has it."""
        name = str(self.interface).removeprefix("__main__.").replace(".", "_")
        return f"_remote_module___torch___{name}"


INSTANTIATE = Global("torch.distributed.nn.jit.instantiator", "instantiate_scriptable_remote_module_template")
IMPORT_REMOTE_FORWARD = "import torch.distributed.nn.api.remote_module"
"""No file has the module of `REMOTE_FORWARD`: this one makes it."""


class Imports:
    """The names that a script imports; a name that is taken gets another one."""

    def __init__(
        self,
        main: str | None = None,
        templates: Mapping[str, RemoteModuleTemplate] = MappingProxyType({}),
    ) -> None:
        """`main`: the module that the job's script is, to be imported in its place; `templates`: what makes
        the modules of scripted RemoteModules."""
        self._templates = templates
        self._made: dict[str, tuple[str, str]] = {}
        """Module that a template makes → its variable, and the statement that makes it."""
        self._reserved = set(RESERVED)
        self._main = main
        self._names: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()
        self.modules: set[str] = set()
        """Modules that are imported whole."""

    def reserve(self, name: str) -> None:
        """A name that the script itself has."""
        self._reserved.add(name)

    def expression(self, name: Global) -> str:
        """Returns the script's expression for a global, and adds its import."""
        module, words = self._module(name.module), name.name.split(".")
        if not all(is_name(word) for word in words):
            raise NoSourceError(f"{name.name[:80]!a} is not a name")
        if module == "builtins":
            if words[0] not in vars(builtins):
                raise NoSourceError(f"{name.name[:80]!a} is not built in")
            return ".".join(words)
        if module == "torch":
            return f"torch.{name.name}"
        if module in self._templates:
            return ".".join([self._make(module), *words])
        return ".".join([self._import(module, words[0]), *words[1:]])

    def _module(self, module: str) -> str:
        if module in MAINS:
            if self._main is None:
                raise NoSourceError("it names the job's script: --main FILE tells which it is")
            return self._main
        if not all(is_name(word) for word in module.split(".")):
            raise NoSourceError(f"{module[:80]!a} is not the name of a module")
        return module

    def _make(self, module: str) -> str:
        """The variable of a module that torch makes for the interface of a scripted RemoteModule."""
        if module not in self._made:
            template = self._templates[module]
            variable = f"remote_module_{len(self._made) + 1}"
            given = [self.expression(template.interface), str(template.moves_tensors)]
            makes = Brackets(f"{self.expression(INSTANTIATE)}(", given, ")")
            self._made[module] = variable, lay_out(makes, lead=f"{variable} = ")
        return self._made[module][0]

    def _import(self, module: str, name: str) -> str:
        known = self._names.get((module, name))
        if known is not None:
            return known
        chosen, number = name, 1
        while self.is_taken(chosen):
            last = module.rpartition(".")[2]
            chosen = f"{last}_{name}" if number == 1 else f"{last}_{name}_{number}"
            number += 1
        self._names[module, name] = chosen
        self._taken.add(chosen)
        return chosen

    def is_taken(self, name: str) -> bool:
        """Whether a name is the script's own, Python's, or that of something else that is imported."""
        own = name in self._reserved or VARIABLE.fullmatch(name) is not None
        return own or name in self._taken or hasattr(builtins, name)

    def lines(self) -> list[str]:
        """The import statements, in the order of modules."""
        plain: dict[str, list[str]] = {}
        others: dict[str, list[str]] = {}
        for (module, name), chosen in sorted(self._names.items(), key=lambda item: _as_sorted(*item[0])):
            if chosen == name:
                plain.setdefault(module, []).append(name)
            else:
                others.setdefault(module, []).append(f"from {module} import {name} as {chosen}")
        lines = [IMPORT_REMOTE_FORWARD] if REMOTE_FORWARD.module in plain.keys() | others.keys() else []
        for module in sorted({*plain, *others}):
            line = f"from {module} import " + ", ".join(plain.get(module, ()))
            if len(line) > WIDTH:
                rows = "\n".join(f"    {name}," for name in plain[module])
                line = f"from {module} import (\n{rows}\n)"
            lines += [line] if module in plain else []
            lines += others.get(module, ())
        return lines

    def statements(self) -> list[str]:
        """What makes modules that no file has, to stand behind the imports."""
        return [statement for _, statement in self._made.values()]


def _as_sorted(module: str, name: str) -> tuple[str, int, str]:
    """Constants, classes, then everything else, as the usual tools sort imports."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return module, kind, name


MAINS = frozenset({"__main__", "__mp_main__"})


def accessor(place: ValuePath) -> str:
    """Returns a path as source, such as `[0]["x"].y`."""
    text = ""
    for step in place:
        key = quoted(step.key) if isinstance(step.key, str) else str(step.key)
        text += f".{step.key}" if step.attribute else f"[{key}]"
    return text


def comment_text(text: str) -> str:
    """Captured text for a comment or a docstring: ASCII, on one line."""
    return ascii(text)[1:-1]


def comment(line: str) -> str:
    """Comment lines of a sentence."""
    plain = comment_text(line)
    indent = "#   " if plain.startswith("  ") else "# "
    return "\n".join(textwrap.wrap(plain.strip(), 86, initial_indent=indent, subsequent_indent=indent)) or "#"


HELPERS = ("recorded", "through", "make_object", "rref_of", "skip_contexts", "at_once")
STANDARD = words_of(
    "contextlib functools json mmap multiprocessing os socket struct sys tempfile time traceback types"
)
RESERVED = STANDARD | words_of(
    """
    torch dist dist_autograd rpc Path HERE TIMEOUT DEADLINE GROUPS GRADIENTS ANSWERS AWAITED Recorded recorded
    through make_object RRefOf skip_contexts at_once Check wait_until difference tensor_difference parts
    bits_difference as_bytes load build work run run_group main t check context_id entered others numpy
    threading random SEEDS reproduce
    """
)
"""Names that the script itself has."""
VARIABLE = re.compile(r"(out|future|rref|in|own|context_|remote_module_)\d+")
"""Names of what belongs to one message, by its number."""
