"""What may stand next in a filter that is being typed: fields, operators, values that the run has.

In: the text up to the cursor, and a capture that is being read. Out: words, and where the one begins that
they would replace. The language is that of `filter.grammar`; here is only what helps to write it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.fields.kinds import FLAG
from rpcinspect.fields.table import BY_NAME
from rpcinspect.filter.selection import ORDERS
from rpcinspect.rpc.message import MessageType

MAX_NAMES = 5000
MAX_WORDS = 40
MAX_WORD = 200
"""Characters."""
OPERATORS = (*ORDERS, "~", "in")
JOINS = ("and", "or", "not")
WORD = re.compile(r"""[^\s()\[\]{}"',=!<>~&|]*$""")
VALUE = re.compile(
    r"""([A-Za-z_.]+)\s*(?:==|!=|~|in\s*\{(?:[^{}]*,)?)\s*("[^"]*|[^\s()\[\]{}"',=!<>~&|]*)$"""
)
PLAIN = re.compile(r"""[^\s()\[\]{}"',=!<>~&|]+""")

FieldValues = Mapping[str, Callable[[], Sequence[str]]]
"""Field → what gives the values that it has in the run."""


class FilterCompletion(Struct, frozen=True):
    """Words that fit, and the place of the text from which one of them would stand."""

    start: int
    words: tuple[str, ...]


def complete(text: str, values: FieldValues) -> FilterCompletion:
    """Returns what may stand at the end of a text."""
    value = VALUE.search(text)
    if value is not None and value[1] in values:
        begun = value[2].lstrip('"').lower()
        found = [one for one in values[value[1]]() if begun in one.lower() and _can_be_typed(one)]
        found.sort(key=lambda one: (not one.lower().startswith(begun), one))
        return FilterCompletion(value.start(2), tuple(map(_quoted, found[:MAX_WORDS])))
    word = WORD.search(text)
    assert word is not None
    begun, before = word[0], text[: word.start()].rstrip()
    if not begun and _ends_with_field(before):
        return FilterCompletion(len(text), OPERATORS)
    last = before.rpartition(" ")[2].rpartition("(")[2]
    if not begun and last and last not in JOINS and not last.endswith(("!", "&&", "||")):
        return FilterCompletion(len(text), ("and", "or"))
    names = [name for name in BY_NAME if name.startswith(begun)]
    names += [name for name in BY_NAME if begun in name and name not in names] if begun else []
    return FilterCompletion(word.start(), tuple(names[:MAX_WORDS]))


def _ends_with_field(text: str) -> bool:
    """Returns whether an operator comes next: a flag stands for itself."""
    name = text.rpartition(" ")[2].lstrip("(!")
    before = text[: len(text) - len(name)].rstrip()
    compared = before.endswith((*ORDERS, "~", "{", ","))
    return name in BY_NAME and BY_NAME[name].kind is not FLAG and not compared


def _can_be_typed(value: str) -> bool:
    return value.isprintable() and len(value) <= MAX_WORD


def _quoted(value: str) -> str:
    """Returns a value as a filter has it."""
    if PLAIN.fullmatch(value) and value not in (*JOINS, "in"):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def values_of(reading: GrowingRun) -> FieldValues:
    """Returns field → what gives its values."""

    def workers() -> Sequence[str]:
        return sorted({end for pipe in reading.known_labels for end in pipe})

    def types() -> Sequence[str]:
        return [kind.name for kind in MessageType]

    def calls() -> Sequence[str]:
        if reading.run is None:
            return ()
        return sorted({name.short for name in reading.names.values()})[:MAX_NAMES]

    def findings() -> Sequence[str]:
        return () if reading.run is None else sorted({one.code for one in reading.run.findings})

    return {
        **dict.fromkeys(("src", "dst", "worker", "from", "to"), workers),
        "type": types,
        "call": calls,
        "finding": findings,
    }
