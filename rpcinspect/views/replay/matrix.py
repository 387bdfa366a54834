"""What came of one replay in several environments, as a table and as JSON Lines.

In: results of combinations. Out: a row, or a `combination` line, for each; then the worst verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rpcinspect.fields.phrases import counted, printable, shorten
from rpcinspect.fields.plain import Json, plain
from rpcinspect.replayer.matrix import CombinationResult, FirstDifference, worst_verdict
from rpcinspect.replayer.playing.outcome import error_line
from rpcinspect.views.columns import Column, json_of, table
from rpcinspect.views.difference import told
from rpcinspect.views.jsonl.lines import lines
from rpcinspect.views.replay.replay_json import difference_json
from rpcinspect.views.text.columns import Part, show_lines
from rpcinspect.views.text.console import TextConsole

MAX_VALUE = 24
"""Of a value in a cell."""
MAX_ERROR = 60
ALIKE = ("identical", "tolerance")
"""Verdicts of what came as captured."""


def show_matrix(results: Sequence[CombinationResult], console: TextConsole) -> None:
    """Prints the table, then why combinations failed, and the likely reasons of differences."""
    show_lines(_parts(results), console)


def _parts(results: Sequence[CombinationResult]) -> Iterator[Part]:
    yield table(COLUMNS, results, style=lambda one: "" if one.verdict in ALIKE else "bad")
    errors = dict.fromkeys((one.environment, one.error) for one in results if one.error is not None)
    for name, error in errors:
        first, *rest = (error or "").splitlines() or [""]
        yield f"{printable(name)}: {printable(first)}", "red"
        yield from ((f"  {printable(line)}", "") for line in rest)
    reasons = dict.fromkeys((one.first.message, one.first.text) for one in results if one.first is not None)
    for message, reason in reasons:
        if reason:
            yield f"#{message}: {printable(reason)}", ""
    worst = worst_verdict(results)
    good = sum(one.verdict in ALIKE for one in results)
    words = f"{worst}: {good} of {counted(len(results), 'combination')} as captured"
    yield words, "bold green" if good == len(results) else "bold red"


def _place(first: FirstDifference) -> str:
    """`#12 tensors[0].elements[5]: 0.5 → 0.25`."""
    if first.difference is None:
        return f"#{first.message}"
    now = first.difference.b_value
    if first.difference.code == "error" and isinstance(now, str):
        return f"#{first.message} {printable(shorten(error_line(now), MAX_ERROR))}"
    its = told(first.difference, MAX_VALUE)
    values = "" if its.values is None else f": {' → '.join(its.values)}"
    return f"#{first.message} {its.path}{values}"


def matrix_lines(results: Sequence[CombinationResult]) -> bytes:
    """Returns all lines of JSON."""
    return lines(_objects(results))


def _objects(results: Sequence[CombinationResult]) -> Iterator[Json]:
    yield from map(json_of(COLUMNS, "combination"), results)
    verdicts = [one.verdict for one in results]
    yield {"kind": "matrix", "verdict": worst_verdict(results), "combinations": len(verdicts)}


def first_json(first: FirstDifference) -> Json:
    """The first message that is not as captured."""
    its = first.difference
    shown = None if its is None else difference_json([its], "tolerance" if its.tolerated else "different")
    return {"message": first.message, "code": first.code, "difference": shown, "text": plain(first.text)}


def _number(title: str, count: Callable[[CombinationResult], int]) -> Column:
    """How many; nothing where nothing could be started."""
    return Column(title=title, of=lambda one: count(one) if one.error is None else None, right=True)


def _why(one: CombinationResult, _: object) -> str:
    return "not started" if one.error is not None else "" if one.first is None else one.first.code


COLUMNS = (
    Column("environment", title="environment", words=printable),
    Column("interpreter", of="interpreter.program"),
    Column("python", of="interpreter.python"),
    Column("torch", of="interpreter.torch", title="torch", words=printable),
    Column("threads", title="threads", words=str, right=True),
    Column("verdict", title="verdict", words=str),
    *(Column(key, of=f"counts.{key}") for key in ("expected", "identical", "tolerance", "different")),
    *(Column(key, of=f"counts.{key}") for key in ("unanswered", "failed")),
    Column("unexpected"),
    _number("identical", lambda one: one.counts.identical),
    _number("tolerance", lambda one: one.counts.tolerance),
    _number("different", lambda one: one.counts.different + one.unexpected),
    _number("failed", lambda one: one.counts.failed + one.counts.unanswered),
    Column("first", of=lambda one: None if one.first is None else first_json(one.first)),
    Column(title="first difference", of="first", words=_place, gives_way=True),
    Column(title="why", cell=_why),
    Column("error"),
)
"""A combination, for people and in JSON."""
