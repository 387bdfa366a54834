"""What values a filter's fields have: how a value is written, which operators it knows, how two are compared.

In: the words of a filter. Out: values that can be compared with those of messages; `ValueError` with a reason
for what is none. `write` is the way back: `read(write(value)) == value`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, TypeAlias

from msgspec import Struct

from rpcinspect.late_pattern import late
from rpcinspect.rpc.message import TYPE_NAMES
from rpcinspect.rpc.types import unpack_id
from rpcinspect.session.words import packed, read_packed

Word: TypeAlias = Any
"""A value as a filter holds it: str, int, bool or a tuple; what `read` gives."""

EQUALITY = frozenset({"==", "!=", "in"})
ORDER = EQUALITY | {"<", "<=", ">", ">="}
TEXTUAL = EQUALITY | {"~"}

MAX_DIGITS = 40
"""Of a number: far more than 64 bits need, and a short time to read."""

DURATIONS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}
SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
SIZES |= {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

_NUMBER = late(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?)([A-Za-zµ]*)", re.ASCII)
_WHOLE = late(r"[+-]?\d+", re.ASCII)
_PLAIN = late(r"[A-Za-z_][\w.:/-]*", re.ASCII)
RESERVED = {"and", "or", "not", "in"}


class Kind(Struct, frozen=True):
    """A kind of value, with its operators and literals in filters."""

    name: str
    unit: str
    """What may stand behind a number, or how the value is written; for people."""
    operators: frozenset[str]
    read: Callable[[str], Word]
    write: Callable[[Word], str]
    quoted: bool = True
    """Whether the value may stand in quotes."""


def quote(text: str) -> str:
    """A text as a filter has it: bare where it can be, else in double quotes."""
    if _PLAIN.fullmatch(text) and text not in RESERVED:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def unquote(token: str) -> str:
    """The text of a token in quotes. In double ones a backslash makes a quote or a backslash an ordinary
    character and is one itself before anything else; in single ones nothing is special."""
    inner = token[1:-1]
    return inner if token[0] == "'" else _ESCAPED.sub(r"\1", inner)


_ESCAPED = late(r'\\(["\\])')


def _whole(word: str) -> int:
    if not _WHOLE.fullmatch(word) or len(word) > MAX_DIGITS:
        raise ValueError("expects a whole number")
    return int(word)


def _scaled(word: str, units: dict[str, int], wanted: str) -> int:
    """A number with a unit, as a whole number of the smallest; what lies between two is rounded down."""
    found = _NUMBER.fullmatch(word)
    if found is None or len(found[1]) > MAX_DIGITS:
        raise ValueError(wanted)
    number, unit = Decimal(found[1]), found[2]
    if unit not in units:
        if not number and not unit:
            return 0
        raise ValueError(wanted)
    value = int((number * units[unit]).to_integral_value("ROUND_FLOOR"))
    if abs(value) >= 10 ** (MAX_DIGITS - 1):  # what is written of it could not be read again
        raise ValueError(wanted)
    return value


def _duration(word: str) -> int:
    return _scaled(word, DURATIONS, "expects a time with its unit (ns, us, ms, s or min), as 50ms")


def _size(word: str) -> int:
    return _scaled(
        word, SIZES, "expects a number of bytes, with B, KB, MB, GB, KiB, MiB, GiB or none, as 1MB"
    )


def _with_unit(units: dict[str, int]) -> Callable[[int], str]:
    def write(value: int) -> str:
        if not value:
            return "0"
        whole = [(factor, unit) for unit, factor in units.items() if value % factor == 0]
        factor, unit = max(whole, key=lambda item: item[0])
        return f"{value // factor}{unit}"

    return write


def _type(word: str) -> str:
    name = word.upper()
    if name in _TYPES:
        return name
    if re.fullmatch(r"0x[0-9a-f]{1,8}", word.lower()):
        return f"0x{int(word, 16):03x}"
    near = get_close_matches(name, _TYPES, 3, 0.5)
    hint = f"; near: {', '.join(near)}" if near else ""
    raise ValueError(f"no type of message has that name{hint}")


def _flag(word: str) -> bool:
    if word not in ("true", "false"):
        raise ValueError("expects true or false")
    return word == "true"


def _pair(word: str) -> tuple[int, int]:
    creator, colon, counter = word.partition(":")
    if colon and all(_WHOLE.fullmatch(part) and len(part) <= MAX_DIGITS for part in (creator, counter)):
        return int(creator), int(counter)
    return unpack_id(_context(word))


def _context(word: str) -> int:
    number = read_packed(word)
    if number is None:
        raise ValueError("expects an id, as 3 or 0:3")
    return number


def _shape(word: str) -> tuple[int | None, ...]:
    """`[3,*,4]`: None stands for any size."""
    if not (word.startswith("[") and word.endswith("]")):
        raise ValueError("expects a shape, as [3,4], [*,4] or []")
    inner = word[1:-1].strip()
    sizes = [size.strip() for size in inner.split(",")] if inner else []
    if not all(
        size == "*" or (size.isascii() and size.isdigit() and len(size) < MAX_DIGITS) for size in sizes
    ):
        raise ValueError("the sizes of a shape are whole numbers or *")
    return tuple(None if size == "*" else int(size) for size in sizes)


def _write_shape(value: tuple[int | None, ...]) -> str:
    return f"[{', '.join('*' if size is None else str(size) for size in value)}]"


def same_shape(shape: tuple[int, ...], pattern: tuple[int | None, ...]) -> bool:
    """Whether a shape is the one that is wanted."""
    return len(shape) == len(pattern) and all(
        want is None or want == size for size, want in zip(shape, pattern, strict=True)
    )


_TYPES = frozenset(TYPE_NAMES.values())

TEXT = Kind("text", "text, in quotes where it is more than a word", TEXTUAL, str, quote)
TYPE = Kind("type", "a name of MessageType, in any case; 0x… for others", TEXTUAL, _type, str)
NUMBER = Kind("number", "a whole number", ORDER, _whole, str, quoted=False)
SIZE = Kind("bytes", "B KB MB GB TB (1000), KiB MiB GiB TiB (1024)", ORDER, _size, _with_unit(SIZES), False)
DURATION = Kind("time", "ns us ms s min", ORDER, _duration, _with_unit(DURATIONS), quoted=False)
CONTEXT = Kind("id", "3 or 0:3 (creator:counter)", EQUALITY, _context, packed, quoted=False)
PAIR = Kind("id", "3 or 0:3 (worker:counter)", EQUALITY, _pair, lambda pair: f"{pair[0]}:{pair[1]}", False)
FLAG = Kind("flag", "true or false; alone: is true", EQUALITY, _flag, lambda flag: str(flag).lower(), False)
SHAPE = Kind("shape", "[3, 4]; * is any size", EQUALITY, _shape, _write_shape, quoted=False)

KINDS: tuple[Kind, ...] = (TEXT, TYPE, NUMBER, SIZE, DURATION, CONTEXT, PAIR, FLAG, SHAPE)
