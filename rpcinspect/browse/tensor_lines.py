"""A tensor as lines: what it is, what its elements come to, how they are spread, and all of them.

In: the tensors of a message, one of which is looked at; what was worked out of it. Out: lines on demand: only
elements on the screen are read. What was not captured is a question mark.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TypeAlias

from msgspec import Struct

from rpcinspect.browse.lines import LineLook, LineSource, ListLine
from rpcinspect.errors import RpcInspectError
from rpcinspect.fields.body import tensor_text
from rpcinspect.fields.phrases import amount, counted, printable, shorten
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.elements import Bins, Statistics
from rpcinspect.run.message import Tensor
from rpcinspect.views.message_parts import tensor_facts

BINS = 12
BAR = 40
MAX_TEXT = 400
DIGITS = 8
"""Of a float."""
MOST = 16
"""Elements of a line."""
MIN_INDEX = 6


class Worked(Struct, frozen=True):
    """What was worked out of all elements of a tensor."""

    statistics: Statistics | None = None
    bins: Bins | None = None
    sha256: str | None = None
    note: str = ""
    """Why there is no more; or that it is being worked out."""


TensorFact: TypeAlias = tuple[str, LineLook]


class ElementLines:
    """The elements of one tensor, some in a line; a line ends with a row of the last dimension."""

    def __init__(self, tensor: Tensor, width: int) -> None:
        self._tensor = tensor
        self._shape = tensor.shape
        self._row = self._shape[-1] if self._shape else 1
        count = math.prod(self._shape)
        self._index_width = max(MIN_INDEX, len(self._index(max(0, count - 1))))
        self._cell = cell_width(tensor.dtype)
        room = (width - 1 - self._index_width - 2) // (self._cell + 2)
        self._per_line = max(1, min(MOST, room, self._row or 1))
        self._lines = -(-self._row // self._per_line)
        """Of a row."""
        self.count = count // self._row * self._lines if count else 0

    def line(self, at: int) -> ListLine:
        """Returns some elements, behind the index of the first of them."""
        row, part = divmod(at, self._lines)
        start = row * self._row + part * self._per_line
        many = min(self._per_line, self._row - part * self._per_line)
        index = self._index(start).rjust(self._index_width)
        try:
            values = self._tensor.elements(start, many)
        except (RpcInspectError, OSError) as error:
            return ListLine(f"{index}  {printable(str(error))}", "bad")
        cells = [element_words(value).rjust(self._cell) for value in values]
        wrong = any(is_nonfinite(value) for value in values)
        lost = any(value is None for value in values)
        return ListLine(
            f"{index}  {'  '.join(cells)}", "bad" if wrong else "odd" if lost else "", "!" if wrong else ""
        )

    def _index(self, number: int) -> str:
        found = []
        for size in reversed(self._shape):
            number, place = divmod(number, size or 1)
            found.append(place)
        return f"[{','.join(map(str, reversed(found)))}]"


class TensorLines(LineSource):
    """The lines for a width."""

    def __init__(
        self, record: RpcRecord, tensors: tuple[Tensor, ...], number: int, worked: Worked, width: int
    ) -> None:
        tensor = tensors[number]
        self._blocks: list[list[TensorFact] | ElementLines] = [
            [*_facts(record, tensor), *_worked(tensor, worked), *_bars(worked)],
        ]
        shown = [number] if tensor.meta.storage is not None else []
        for one in [*shown, *(part for _, part in tensor.meta.parts)]:
            part = tensors[one]
            name = "values" if one == number else f"{part.part}, {_words(record, part)}"
            title = f"{name}: {counted(math.prod(part.shape), 'element')}"
            self._blocks += [[("", ""), (title, "title")], ElementLines(part, width)]
        self._starts = [0]
        for block in self._blocks:
            self._starts.append(
                self._starts[-1] + (block.count if isinstance(block, ElementLines) else len(block))
            )

    def __len__(self) -> int:
        return self._starts[-1]

    def line(self, at: int, width: int) -> ListLine:
        place = bisect_right(self._starts, at) - 1
        block, at = self._blocks[place], at - self._starts[place]
        if isinstance(block, ElementLines):
            return block.line(at)
        text, look = block[at]
        return ListLine(text, look)


def _words(record: RpcRecord, tensor: Tensor) -> str:
    return printable(tensor_text(tensor.number, tensor.meta, parameter=tensor.parameter))


def _facts(record: RpcRecord, tensor: Tensor) -> list[TensorFact]:
    elements = counted(math.prod(tensor.shape), "element")
    facts: list[TensorFact] = [
        (_words(record, tensor), "title"),
        (f"shape      {list(tensor.shape)}, {elements}, {amount(tensor.nbytes)}", ""),
        (f"dtype      {tensor.dtype}", ""),
        (f"grad       {'required' if tensor.requires_grad else 'not required'}", ""),
    ]
    for name, told in tensor_facts(record, tensor.meta):
        look: LineLook = "odd" if name == "storage" and tensor.is_missing else ""
        facts.append((f"{name:<10} {shorten(printable(told[:MAX_TEXT]), MAX_TEXT)}", look))
    return facts


def _worked(tensor: Tensor, worked: Worked) -> list[TensorFact]:
    facts: list[TensorFact] = []
    if worked.sha256 is not None:
        facts.append((f"sha256     {worked.sha256}", ""))
    told = worked.statistics
    if told is not None:
        absolute = " of absolute values" if tensor.dtype.startswith("complex") else ""
        numbers = {"min": told.minimum, "max": told.maximum, "mean": told.mean, "norm": told.norm}
        words = [f"{name} {number:.6g}" for name, number in numbers.items() if number is not None]
        facts.append((f"finite     {', '.join(words) or 'none'}{absolute if words else ''}", ""))
        wrong = told.nan or told.infinite
        facts.append(
            (
                f"of {told.count:,}".ljust(10)
                + f" {told.nan:,} NaN, {told.infinite:,} Inf, {told.zero:,} zero",
                "bad" if wrong else "",
            )
        )
    if worked.note:
        facts.append((f"statistics {printable(worked.note)}", "dim"))
    return facts


def _bars(worked: Worked) -> list[TensorFact]:
    """The histogram: a bar for each range."""
    bins = worked.bins
    if bins is None:
        return []
    most = max(bins.counts)
    edges = [f"{edge:.6g}" for edge in bins.edges]
    wide = max(map(len, edges))
    facts: list[TensorFact] = [("", ""), ("histogram of the finite elements", "title")]
    for at, count in enumerate(bins.counts):
        low, high = edges[at].rjust(wide), "" if bins.single else f" … {edges[at + 1].rjust(wide)}"
        bar = "█" * (-(-count * BAR // most) if most else 0)
        facts.append((f"{low}{high}  {bar.ljust(BAR)}  {count:,}", ""))
    return facts


def is_nonfinite(value: object) -> bool:
    """Returns whether an element is NaN or infinite, or a part of it."""
    if isinstance(value, tuple):
        return any(map(is_nonfinite, value))
    if isinstance(value, complex):
        return not (math.isfinite(value.real) and math.isfinite(value.imag))
    return isinstance(value, float) and not math.isfinite(value)


def element_words(value: object) -> str:
    """Returns an element in few characters; a question mark for one that was not captured."""
    if value is None:
        return "?"
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}".replace("nan", "NaN").replace("inf", "Inf")
    if isinstance(value, complex):
        return f"{value.real:.{DIGITS}g}{value.imag:+.{DIGITS}g}j".replace("nan", "NaN").replace("inf", "Inf")
    if isinstance(value, tuple):
        return "/".join(map(element_words, value))
    return str(value)


def cell_width(dtype: str) -> int:
    """Returns how wide a column for elements of a type is, at least."""
    if dtype.startswith("complex"):
        return 30
    if dtype.startswith(("float", "bfloat")):
        return 14 if dtype in ("float32", "float64", "bfloat16") else 12
    if dtype == "bool":
        return 5
    return {"int64": 20, "uint64": 20, "int32": 11, "uint32": 11, "qint32": 11}.get(dtype, 6)
