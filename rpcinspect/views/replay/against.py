"""Two replays of one capture, message by message, as a table and as JSON Lines.

In: both results and the pairs of messages. Out: a row, or a `pair` line, for each message where the captured
one and the two live ones are not all the same; then both verdicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rpcinspect.fields.phrases import counted, printable
from rpcinspect.fields.plain import Json, plain, text
from rpcinspect.replayer.against import MessagePair, SourceResult
from rpcinspect.replayer.playing.outcome import StepOutcome, error_line
from rpcinspect.replayer.playing.report import first_difference
from rpcinspect.views.columns import Column, Table
from rpcinspect.views.difference import told
from rpcinspect.views.jsonl.lines import lines
from rpcinspect.views.replay.plan_json import step_json
from rpcinspect.views.replay.plan_table import step_ends
from rpcinspect.views.replay.replay_json import difference_json, report_json
from rpcinspect.views.replay.replay_table import verdict_line
from rpcinspect.views.text.columns import Part, show_lines
from rpcinspect.views.text.console import TextConsole

MAX_VALUE = 40
"""Of a value in a cell."""
COLUMNS = (
    Column(title="#", right=True),
    Column(title="from → to"),
    Column(title="message"),
    Column(title="where", gives_way=True),
    Column(title="capture"),
    Column(title="first"),
    Column(title="second"),
    Column(title="verdict"),
)
WORDS = {
    None: "not compared",
    "unanswered": "nothing came",
    "failed": "failed",
    "tolerance": "within tolerance",
}
"""Results of which no value is shown."""


def show_against(
    first: SourceResult,
    second: SourceResult,
    pairs: Sequence[MessagePair],
    console: TextConsole,
    *,
    every: bool,
) -> None:
    """Prints the table, and the verdict of each replay. `every`: messages that are all the same too."""
    show_lines(_parts(first, second, pairs, every=every), console)


def _parts(
    first: SourceResult, second: SourceResult, pairs: Sequence[MessagePair], *, every: bool
) -> Iterator[Part]:
    shown = [one for one in pairs if every or one.differs]
    if shown:
        several = len({one.session for one in pairs}) > 1
        rows = [[*_row(one, several=several)] for one in shown]
        yield Table(columns=COLUMNS, rows=rows, styles=["bad" if one.differs else "" for one in shown])
    for number, source in (("first", first), ("second", second)):
        line, style = verdict_line(source.report)
        yield f"{number} ({printable(source.label)}): {line}", style
        if source.error is not None:
            yield from ((f"  {printable(row)}", "") for row in source.error.splitlines())
    differing = Counter(one.verdict for one in pairs if one.differs)
    if differing:
        kinds = ", ".join(f"{count:,} {word}" for word, count in differing.most_common())
        yield f"{counted(differing.total(), 'message')} not as captured: {kinds}", "bold"
    elif pairs:
        yield "every message is as captured in both", "bold green"


def _row(pair: MessagePair, *, several: bool) -> Iterator[str]:
    sides = (pair.first, pair.second)
    paths = [_path(one) for one in sides]
    where = paths[0] or paths[1]
    session = f" (session {pair.session + 1})" if several else ""
    yield str(pair.step.message)
    yield step_ends(pair.step)
    yield f"{pair.step.type}{session}"
    yield where
    captured = [_values(one)[0] for one in sides if one is not None and _path(one) == where]
    yield captured[0] if captured and where else ""
    for one, path in zip(sides, paths, strict=True):
        yield f"{path}: {_live(one)}" if path not in ("", where) else _live(one)
    yield pair.verdict


def _path(one: StepOutcome | None) -> str:
    first = None if one is None else first_difference(one.differences, one.result)
    return "" if first is None else told(first, MAX_VALUE).path


def _values(one: StepOutcome) -> tuple[str, str]:
    """What was captured at the first difference, and what came."""
    first = first_difference(one.differences, one.result)
    if first is None:
        return "", ""
    if first.code == "error" and first.a_value is None and isinstance(first.b_value, str):
        return "a result", printable(error_line(first.b_value))
    its = told(first, MAX_VALUE)
    return its.values or ("", its.kind or first.code)


def _live(one: StepOutcome | None) -> str:
    if one is None:
        return "not planned"
    if one.result == "identical":
        return "as captured"
    return _values(one)[1] or WORDS.get(one.result, one.result or "")


def against_lines(first: SourceResult, second: SourceResult, pairs: Sequence[MessagePair]) -> bytes:
    """Returns all lines of JSON."""
    return lines(_objects(first, second, pairs))


def _objects(first: SourceResult, second: SourceResult, pairs: Sequence[MessagePair]) -> Iterator[Json]:
    planned = {one.number: one for one in first.outcome.plan.sessions}
    for pair in pairs:
        step = step_json(pair.step, planned[pair.session])
        apart = None if pair.apart is None else difference_json([pair.apart], "different")
        yield {
            "kind": "pair",
            **{name: step[name] for name in ("message", "type", "role", "to", "action", "session")},
            "verdict": pair.verdict,
            "first": _side_json(pair.first),
            "second": _side_json(pair.second),
            "apart": None if apart is None else {"path": apart["path"], **_named(apart)},
        }
    yield {
        "kind": "against",
        "first": {
            "source": text(first.label),
            "report": report_json(first.outcome, first.report, first.error),
        },
        "second": {
            "source": text(second.label),
            "report": report_json(second.outcome, second.report, second.error),
        },
        "verdicts": dict(Counter(one.verdict for one in pairs)),
    }


def _named(apart: Json) -> Json:
    """The two values, by which replay they are of."""
    return {"code": apart["code"], "first": apart["captured"], "second": apart["live"]}


def _side_json(one: StepOutcome | None) -> Json | None:
    if one is None:
        return None
    return {
        "result": one.result,
        "difference": difference_json(one.differences, one.result),
        "text": plain(one.text),
    }
