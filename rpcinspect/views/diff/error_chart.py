"""A histogram of errors as a drawing: where bars, ticks and their texts stand.

In: how the elements of two tensors differ. Out: a `Chart` in the units of an SVG, which the page only has to
write down. The axis of errors is logarithmic; beside it stand the errors that have no place on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import Struct

from rpcinspect.equality.difference import Histogram
from rpcinspect.fields.phrases import counted

WIDTH, HEIGHT = 340, 112
LEFT, RIGHT, TOP, BOTTOM = 4, 4, 18, 20
ASIDE = 30
"""Width of the place of each kind of error that is on no scale."""
MIN_OCTAVES = 10
MAX_BARS = 40
MAX_TICKS = 6
MIN_BAR = 2.0
OCTAVES = math.log2(10)
"""In a decade."""


class HistogramBar(Struct, frozen=True):
    """A bar of the histogram of errors."""

    x: float
    y: float
    width: float
    height: float
    label: str
    aside: bool = False


class Tick(Struct, frozen=True):
    """A place on the axis."""

    x: float
    label: str
    line: bool = True


class Chart(Struct, frozen=True):
    """The drawing, and its content in words."""

    label: str
    most: str
    bars: tuple[HistogramBar, ...]
    ticks: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT
    base: int = HEIGHT - BOTTOM


def chart_of(histogram: Histogram) -> Chart:
    """Bars of equal width over the sizes that occur; more than fit are put together."""
    asides = [
        ("0", "different bits, same value", histogram.zero),
        ("∞", "an infinite error", histogram.infinite),
        ("NaN", "one or both are NaN", histogram.undefined),
    ]
    asides = [aside for aside in asides if aside[2]]
    left = LEFT + ASIDE * (bool(histogram.zero) if histogram.bins else 0)
    right = WIDTH - RIGHT - ASIDE * (len(asides) - bool(histogram.zero) if histogram.bins else 0)
    grouped, low, high = _grouped(histogram)
    most = max([count for _, _, count in grouped] + [count for _, _, count in asides], default=1)
    bars, ticks = [], []
    scale = (right - left) / (high - low)
    for start, end, count in grouped:
        words = f"{_power(start)} to {_power(end)}: {counted(count, 'element')}"
        bars.append(_bar(left + (start - low) * scale, (end - start) * scale, count, most, words))
    if grouped:
        ticks += [Tick(left + (k * OCTAVES - low) * scale, f"1e{k}") for k in _decades(low, high)]
    first = right if grouped else LEFT
    free = iter([first + ASIDE * n for n in range(len(asides))])
    for name, words, count in asides:
        x = LEFT if name == "0" and grouped else next(free)
        bars.append(_bar(x + 4, ASIDE - 8, count, most, f"{words}: {counted(count, 'element')}", aside=True))
        ticks.append(Tick(x + ASIDE / 2, name, line=False))
    return Chart(_words(histogram), f"{most:,}", tuple(bars), tuple(ticks))


def _grouped(histogram: Histogram) -> tuple[list[tuple[int, int, int]], int, int]:
    """(from, to, how many) in powers of two, and the ends of the axis."""
    if not histogram.bins:
        return [], 0, MIN_OCTAVES
    low, high = histogram.bins[0][0], histogram.bins[-1][0] + 1
    room = max(0, MIN_OCTAVES - (high - low))
    low, high = low - room // 2, high + (room + 1) // 2
    step = -(-(high - low) // MAX_BARS)
    counts: dict[int, int] = {}
    for n, count in histogram.bins:
        start = low + (n - low) // step * step
        counts[start] = counts.get(start, 0) + count
    high = low + -(-(high - low) // step) * step
    return [(start, start + step, count) for start, count in counts.items()], low, high


def _bar(x: float, width: float, count: int, most: int, label: str, *, aside: bool = False) -> HistogramBar:
    room = HEIGHT - TOP - BOTTOM
    height = max(MIN_BAR, room * count / most)
    return HistogramBar(x + 0.5, HEIGHT - BOTTOM - height, max(1.0, width - 1), height, label, aside)


def _decades(low: int, high: int) -> Iterator[int]:
    """Powers of ten within, a few of them."""
    first, last = math.ceil(low / OCTAVES), math.floor(high / OCTAVES)
    step = max(1, -(-(last - first + 1) // MAX_TICKS))
    return (k for k in range(first, last + 1) if k % step == 0)


def _words(histogram: Histogram) -> str:
    total = counted(histogram.total, "element")
    differ = "differs" if histogram.total == 1 else "differ"
    if not histogram.bins:
        return f"{total} that {differ}; none has a finite error"
    low, high = histogram.bins[0][0], histogram.bins[-1][0] + 1
    return f"{total} that {differ}, by the size of the absolute error: {_power(low)} to {_power(high)}"


def _power(n: int) -> str:
    """2^n in decimal; some are beyond what a float can be."""
    if -1074 <= n < 1024:
        return f"{2.0**n:.2g}"
    return f"2^{n}"
