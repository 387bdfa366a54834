"""Device maps on a terminal: which were seen, which were needed, and the lines that would set them.

In: `DeviceMap`s. Out: lines of printable text on a console.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from rpcinspect.fields.phrases import printable
from rpcinspect.run.device_maps import DeviceMap, DevicePairs
from rpcinspect.views.text.columns import Columns, Line, show_lines
from rpcinspect.views.text.table import end_label, join_ends

HEADER = ("caller → callee", "tensors", "map seen", "devices used", "not covered")


def show_device_maps(maps: Sequence[DeviceMap], console: Console) -> None:
    """Prints everything."""
    show_lines(_lines(maps), console)


def _lines(maps: Sequence[DeviceMap]) -> Iterator[Line | Columns]:
    if not maps:
        yield "no tensor was sent", ""
        return
    several = len({one.job for one in maps}) > 1
    styles = ["red" if one.messages else "" for one in maps]
    yield Columns(HEADER, [_row(one, several) for one in maps], right=(1,), styles=styles)
    yield "", ""
    needed = [one for one in maps if one.line is not None]
    if any(one.messages and one.line is None for one in maps):
        yield "a device map can't name the device meta: tensors on it can't be sent", "red"
    elif not needed:
        yield "all tensors were on the CPU at both ends: no device map is needed", ""
    for one in needed:
        yield f"on {end_label(one.caller)}: {printable(one.line or '')}", "red" if one.messages else ""


def _row(one: DeviceMap, several: bool) -> tuple[str, ...]:
    ends = join_ends(end_label(one.caller), end_label(one.callee))
    missing = [*one.uncovered, *(f"{device} in answers" for device in one.uncovered_answers)]
    return (
        f"{ends} (job {one.job})" if several else ends,
        f"{one.tensors:,}",
        " or ".join(_pairs(pairs) for pairs in one.seen) or "none seen",
        _pairs(one.used),
        printable(", ".join(missing)),
    )


def _pairs(pairs: DevicePairs) -> str:
    return printable(", ".join(f"{a}→{b}" for a, b in pairs)) or "empty"
