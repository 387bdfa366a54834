"""The tables of a page about a run, as plain data: captures, pipes, latency, references, device maps.

In: results of a session and of a `Run`. Out: `Table`s; all of their text is printable, none of it is escaped
for HTML. What is too much for a page is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rpcinspect.errors import Problem
from rpcinspect.fields.phrases import amount, duration, path_label, printable, shorten
from rpcinspect.run.device_maps import DeviceMap, DevicePairs
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.latency import Latency, LatencyGroup, Straggler
from rpcinspect.session.model import CaptureInfo, RRef, Session
from rpcinspect.views.html.kit import Table, links, row, table
from rpcinspect.views.text.latency import MEASURES, group_cells, group_label, straggler_cells
from rpcinspect.views.text.rrefs import value_words
from rpcinspect.views.text.summary import moment, place_words
from rpcinspect.views.text.table import end_label, join_ends

MAX_PIPES = 200
MAX_PROBLEMS = 50
MAX_GROUPS = 100
MAX_STRAGGLERS = 50
MAX_RREFS = 300
MAX_MAPS = 200


def captures_table(captures: Sequence[CaptureInfo]) -> Table:
    rows = []
    for info in captures:
        kind = f"{info.format}, {info.compression}" if info.compression else info.format
        begin = took = ""
        if info.first_time_ns is not None and info.last_time_ns is not None:
            begin, took = moment(info.first_time_ns, 6), duration(info.last_time_ns - info.first_time_ns)
        rows.append(row(path_label(info.path), kind, f"{info.packets:,}", amount(info.bytes), begin, took))
    return table(("capture", "format", "packets", "size", "first packet", "lasts"), rows, (2, 3, 5))


def pipes_table(session: Session) -> Table:
    rows = []
    pipes = [pipe for pipe in session.pipes if not pipe.logged]
    for pipe in pipes[:MAX_PIPES]:
        number = pipe.number
        channels = dict.fromkeys(name for _, name in pipe.channels)
        rows.append(
            row(
                str(number),
                join_ends(end_label(session.clients[number]), end_label(session.servers[number])),
                printable(pipe.transport),
                shorten(printable(", ".join(channels)), 60),
                pipe.visible.value,
                shorten(printable(pipe.reason or ""), 300),
                style="" if pipe.visible.value == "full" else "odd",
            )
        )
    header = ("pipe", "client → server", "transport", "channels", "visible", "why not all of it")
    return table(header, rows, (0,), len(pipes) - len(rows))


def problems_table(problems: Sequence[Problem]) -> Table:
    """Those that belong to no message."""
    rows = []
    for problem in problems[:MAX_PROBLEMS]:
        place = ", ".join(place_words(problem.location))
        rows.append(row(problem.layer, shorten(printable(problem.reason), 300), place))
    return table(("layer", "problem", "where"), rows, (), len(problems) - len(rows))


def groups_table(name: str, groups: Sequence[LatencyGroup], latency: Latency) -> Table:
    several = len({group.job for group in latency.functions}) > 1
    rows = []
    for group in groups[:MAX_GROUPS]:
        rows.append(
            row(
                group_label(group, several),
                f"{group.count:,}",
                _count(group.count - group.answered),
                _count(group.failed),
                *group_cells(group),
                style="bad" if group.failed else "odd" if group.answered < group.count else "",
            )
        )
    header = (name, "count", "open", "failed", *MEASURES)
    return table(header, rows, range(1, len(header)), len(groups) - len(rows))


def _count(count: int) -> str:
    return f"{count:,}" if count else ""


def stragglers_table(stragglers: Sequence[Straggler]) -> Table:
    rows = [
        row(links((one.timing.call.index,)), *straggler_cells(one), style="odd")
        for one in stragglers[:MAX_STRAGGLERS]
    ]
    header = ("straggler", "took", "of the median", "from → to", "function", "")
    return table(header, rows, (1, 2), len(stragglers) - len(rows))


def rrefs_table(stories: Sequence[RRef], calls: Mapping[int, Exchange]) -> Table:
    rows = []
    for story in stories[:MAX_RREFS]:
        creator = "?" if story.creator is None else end_label(story.creator)
        alive = ", ".join(
            f"{f.fork_id[0]}:{f.fork_id[1]} at {end_label(f.holder or '?')}" for f in story.alive
        )
        rows.append(
            row(
                f"{story.rref_id[0]}:{story.rref_id[1]}",
                "?" if story.owner is None else end_label(story.owner),
                links(() if story.created is None else (story.created,), creator),
                value_words(story, calls),
                f"{len(story.forks):,}",
                shorten(alive, 120),
                links(story.fetches),
                links(story.backwards),
                style="bad" if story.failed else "odd" if story.alive else "",
            )
        )
    header = ("rref", "owner", "made by", "value of", "forks", "alive at the end", "fetched", "backward")
    return table(header, rows, (4,), len(stories) - len(rows))


def maps_table(maps: Sequence[DeviceMap]) -> Table:
    rows = []
    for one in maps[:MAX_MAPS]:
        missing = [*one.uncovered, *(f"{device} in answers" for device in one.uncovered_answers)]
        rows.append(
            row(
                join_ends(end_label(one.caller), end_label(one.callee)),
                f"{one.tensors:,}",
                " or ".join(_pairs(pairs) for pairs in one.seen) or "none seen",
                _pairs(one.used),
                links(one.messages, shorten(printable(", ".join(missing)), 200)),
                style="bad" if one.messages else "",
            )
        )
    header = ("caller → callee", "tensors", "map seen", "devices used", "not covered")
    return table(header, rows, (1,), len(maps) - len(rows))


def _pairs(pairs: DevicePairs) -> str:
    return shorten(printable(", ".join(f"{a}→{b}" for a, b in pairs)), 200) or "empty"
