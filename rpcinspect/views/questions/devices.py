"""Device maps: which were seen, which were needed, and the lines that would set them.

In: a run. Out: a table with a line for each caller and callee, then lines to paste; `device_map` lines of
JSON.
"""

from __future__ import annotations

from collections.abc import Iterator

from rpcinspect.fields.phrases import end_label, join_ends, printable
from rpcinspect.run.device_maps import DeviceMap, DevicePairs
from rpcinspect.run.run import RunModel
from rpcinspect.views.columns import Column, Links, Table, json_of, table
from rpcinspect.views.questions.question import Question
from rpcinspect.views.text.columns import Part


def _ends(one: DeviceMap, _: RunModel) -> str:
    return join_ends(end_label(one.caller), end_label(one.callee))


def _pairs(pairs: DevicePairs) -> str:
    return printable(", ".join(f"{a}→{b}" for a, b in pairs)) or "empty"


def _missing(one: DeviceMap, _: RunModel) -> Links:
    missing = [*one.uncovered, *(f"{device} in answers" for device in one.uncovered_answers)]
    return Links(one.messages, printable(", ".join(missing)))


COLUMNS = (
    Column(title="caller → callee", cell=_ends, gives_way=True),
    Column("job", title="job", right=True, unless="same"),
    *(Column(key) for key in ("caller", "callee")),
    Column(title="tensors", of="tensors", right=True),
    Column("seen", title="map seen", words=lambda maps: " or ".join(map(_pairs, maps)) or "none seen"),
    Column("used", title="devices used", words=_pairs),
    *(Column(key) for key in ("tensors", "uncovered", "uncovered_answers")),
    Column("messages", title="not covered", cell=_missing),
    Column("line"),
)
device_map_json = json_of(COLUMNS, "device_map")


def maps_table(run: RunModel, most: int | None = None) -> Table:
    """A line for each caller and callee."""
    return table(COLUMNS, run.device_maps, run, style=lambda one: "bad" if one.messages else "", most=most)


def needed_lines(run: RunModel) -> Iterator[tuple[str, str]]:
    """What sets the maps that are needed, to be pasted; and why there is nothing to set."""
    maps = run.device_maps
    needed = [one for one in maps if one.line is not None]
    if any(one.messages and one.line is None for one in maps):
        yield "a device map can't name the device meta: tensors on it can't be sent", "red"
    elif maps and not needed:
        yield "all tensors were on the CPU at both ends: no device map is needed", ""
    for one in needed:
        yield f"on {end_label(one.caller)}: {printable(one.line or '')}", "red" if one.messages else ""


def _show(run: RunModel, _: bool) -> Iterator[Part]:
    if not run.device_maps:
        yield "no tensor was sent", ""
        return
    yield maps_table(run)
    yield "", ""
    yield from needed_lines(run)


QUESTION = Question(
    noun="device map",
    kinds=("device_map",),
    count=lambda run, _: len(run.device_maps),
    show=_show,
    json=lambda run: map(device_map_json, run.device_maps),
)
