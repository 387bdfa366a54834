"""Histograms as drawings: every error is in a bar, every bar in the drawing."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.equality.difference import Histogram
from rpcinspect.views.diff.error_chart import HEIGHT, MAX_BARS, MAX_TICKS, WIDTH, Chart, chart_of

SIZES = st.dictionaries(st.integers(-1074, 1023), st.integers(1, 10**9), max_size=80)
ASIDE = st.integers(0, 1000)


def counts(chart: Chart) -> list[int]:
    """What the labels of the bars say."""
    found = [re.search(r": ([\d,]+) elements?$", bar.label) for bar in chart.bars]
    return [int(match[1].replace(",", "")) for match in found if match is not None]


@given(SIZES, ASIDE, ASIDE, ASIDE)
def test_all_errors_are_in_bars_within_the_drawing(
    sizes: dict[int, int], zero: int, infinite: int, undefined: int
) -> None:
    bins = tuple(sorted(sizes.items()))
    histogram = Histogram(bins=bins, zero=zero, infinite=infinite, undefined=undefined)
    chart = chart_of(histogram)
    assert sum(counts(chart)) == histogram.total
    assert len(chart.bars) <= MAX_BARS + 3
    for bar in chart.bars:
        assert 0 <= bar.x <= bar.x + bar.width <= WIDTH
        assert 0 < bar.y < bar.y + bar.height <= HEIGHT
    ends = sorted((bar.x, bar.x + bar.width) for bar in chart.bars)
    assert all(a[1] <= b[0] for a, b in pairwise(ends))
    scale = [tick for tick in chart.ticks if tick.line]
    assert len(scale) <= MAX_TICKS + 1
    assert all(0 <= tick.x <= WIDTH for tick in chart.ticks)


def test_heights_are_to_scale() -> None:
    chart = chart_of(Histogram(bins=((0, 100), (1, 50), (5, 25))))
    heights = [bar.height for bar in chart.bars]
    assert heights[0] == pytest.approx(2 * heights[1]) == pytest.approx(4 * heights[2])
    assert chart.most == "100"


def test_ticks_stand_where_their_numbers_are() -> None:
    chart = chart_of(Histogram(bins=((-4, 1), (-3, 1), (6, 1))))
    places = {tick.label: tick.x for tick in chart.ticks}
    bars = {bar.label.partition(" ")[0]: bar for bar in chart.bars}
    assert bars["0.062"].x < places["1e-1"] < bars["0.12"].x
    assert places["1e0"] - places["1e-1"] == pytest.approx(places["1e1"] - places["1e0"])
    assert chart.label == "3 elements that differ, by the size of the absolute error: 0.062 to 1.3e+02"


def test_only_errors_without_a_size() -> None:
    chart = chart_of(Histogram(bins=(), zero=3))
    assert [bar.label for bar in chart.bars] == ["different bits, same value: 3 elements"]
    assert [tick.label for tick in chart.ticks] == ["0"]
    assert chart.label == "3 elements that differ; none has a finite error"
