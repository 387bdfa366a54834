"""What came of one replay in several environments, as a table and as JSON Lines.

In: results of combinations. Out: a row, or a `combination` line, for each; then the worst verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rpcinspect.fields.phrases import counted, printable, shorten
from rpcinspect.fields.plain import Json, picked, plain, text
from rpcinspect.replayer.matrix import CombinationResult, FirstDifference, worst_verdict
from rpcinspect.replayer.playing.outcome import error_line
from rpcinspect.views.columns import Column, Style, Table
from rpcinspect.views.difference import told
from rpcinspect.views.jsonl.lines import lines
from rpcinspect.views.replay.replay_json import difference_json
from rpcinspect.views.text.columns import Part, show_lines
from rpcinspect.views.text.console import TextConsole

MAX_VALUE = 24
"""Of a value in a cell."""
MAX_ERROR = 60
COLUMNS = (
    Column(title="environment"),
    Column(title="torch"),
    Column(title="threads", right=True),
    Column(title="verdict"),
    Column(title="identical", right=True),
    Column(title="tolerance", right=True),
    Column(title="different", right=True),
    Column(title="failed", right=True),
    Column(title="first difference", gives_way=True),
    Column(title="why"),
)


def show_matrix(results: Sequence[CombinationResult], console: TextConsole) -> None:
    """Prints the table, then why combinations failed, and the likely reasons of differences."""
    show_lines(_parts(results), console)


def _parts(results: Sequence[CombinationResult]) -> Iterator[Part]:
    rows = [[*_row(one)] for one in results]
    styles: list[Style] = ["" if one.verdict in ("identical", "tolerance") else "bad" for one in results]
    yield Table(columns=COLUMNS, rows=rows, styles=styles)
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
    good = sum(one.verdict in ("identical", "tolerance") for one in results)
    words = f"{worst}: {good} of {counted(len(results), 'combination')} as captured"
    yield words, "bold green" if good == len(results) else "bold red"


def _row(one: CombinationResult) -> Iterator[str]:
    yield printable(one.environment)
    yield "" if one.interpreter is None else printable(one.interpreter.torch)
    yield str(one.threads)
    yield one.verdict
    counts = one.counts
    failed = counts.failed + counts.unanswered
    for number in (counts.identical, counts.tolerance, counts.different + one.unexpected, failed):
        yield f"{number:,}" if one.error is None else ""
    yield "" if one.first is None else _place(one.first)
    yield "not started" if one.error is not None else "" if one.first is None else one.first.code


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
    for one in results:
        yield combination_json(one)
    verdicts = [one.verdict for one in results]
    yield {"kind": "matrix", "verdict": worst_verdict(results), "combinations": len(verdicts)}


def combination_json(one: CombinationResult) -> Json:
    """A `combination` line."""
    its, counts, first = one.interpreter, one.counts, one.first
    return {
        "kind": "combination",
        "environment": text(one.environment),
        "interpreter": None if its is None else text(its.program),
        "python": None if its is None else its.python,
        "torch": None if its is None else text(its.torch),
        "threads": one.threads,
        "verdict": one.verdict,
        **picked("expected identical tolerance different unanswered failed")(counts),
        "unexpected": one.unexpected,
        "first": None if first is None else first_json(first),
        "error": plain(one.error),
    }


def first_json(first: FirstDifference) -> Json:
    """The first message that is not as captured."""
    its = first.difference
    shown = None if its is None else difference_json([its], "tolerance" if its.tolerated else "different")
    return {"message": first.message, "code": first.code, "difference": shown, "text": plain(first.text)}
