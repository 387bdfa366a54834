"""A comparison of two runs as tests: a case for each kind of message, by who sends it to whom and what it is.

A case fails where such a message makes the runs different, and says whether the runs part there or whether it
follows from another one. The verdict is the first case. Marks are for the places at which the runs part.

In: a comparison and its runs. Out: a suite.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rpcinspect.diff.model import Aligned, Comparison, Found, Side
from rpcinspect.fields.phrases import counted, end_label, join_ends, packed
from rpcinspect.run.run import RunModel
from rpcinspect.views.ci.suite import VERDICT, Annotation, CaseResult, SuiteResult, about, some_lines
from rpcinspect.views.diff.table import difference_line, other_messages, summary_lines, where
from rpcinspect.views.diff.words import numbers, verdict_line


def diff_suite(comparison: Comparison, runs: tuple[RunModel, RunModel]) -> SuiteResult:
    """Returns the verdict, and what differs by kind of message."""
    return SuiteResult(
        command="diff",
        about=f"{_about(comparison.a)} and {_about(comparison.b)}",
        cases=(_verdict(comparison, runs), *_cases(comparison)),
        annotations=tuple(_annotations(comparison)),
        properties={
            "a": ", ".join(comparison.a.paths),
            "b": ", ".join(comparison.b.paths),
            "messages": str(len(comparison.messages)),
            "different": str(comparison.different),
        },
    )


def _about(side: Side) -> str:
    return about(side.paths) + ("" if side.context is None else f" {packed(side.context)}")


def _verdict(comparison: Comparison, runs: tuple[RunModel, RunModel]) -> CaseResult:
    return CaseResult(
        name=VERDICT,
        outcome="passed" if comparison.same else "failure",
        message=verdict_line(comparison),
        lines=tuple(line for line, _ in summary_lines(comparison, runs, show_all=False)),
    )


def _cases(comparison: Comparison) -> Iterator[CaseResult]:
    """Yields one for each kind of message, in the order in which they come first; of the agents' own messages
    those that differ."""
    kinds: dict[str, list[Found]] = {}
    places: defaultdict[int, list[Found]] = defaultdict(list)
    for found in comparison.found:
        places[found.message].append(found)
    for place, message in enumerate(comparison.messages):
        if not message.control or any(found.counts for found in places[place]):
            kinds.setdefault(_name(message), []).extend(places[place])
    for name, its in kinds.items():
        counting = [found for found in its if found.counts]
        yield CaseResult(
            name=name,
            outcome="failure" if counting else "passed",
            message=_why(counting, comparison) if counting else "",
            lines=some_lines([_line(found, comparison) for found in counting or its]),
        )


def _name(message: Aligned) -> str:
    ends = join_ends(end_label(message.source), end_label(message.destination))
    return f"{ends} {message.type}{f' {message.call}' if message.call else ''}"


def _why(counting: Sequence[Found], comparison: Comparison) -> str:
    """Returns where the first of these messages stands among all that differ."""
    first = comparison.first
    differing = counted(len({found.message for found in counting}), "message")
    if first is None:
        return f"{differing} without a partner"
    if any(found.message == comparison.found[first.found].message for found in counting):
        return f"the runs part here: likely {first.likely}: {first.text}"
    if any(found.message in first.alike for found in counting):
        return f"{differing}: the same differs as in the first difference"
    if any(found.follows is None for found in counting):
        return f"{differing} that do not follow from the first difference"
    follows = counting[0].follows
    assert follows is not None
    return f"{differing}, the first follows from {numbers(comparison.messages[follows])}"


def _line(found: Found, comparison: Comparison) -> str:
    follows = "" if found.follows is None else f", follows {numbers(comparison.messages[found.follows])}"
    counts = "" if found.counts else ", not counted"
    return f"{numbers(comparison.messages[found.message])}  {difference_line(found)}{follows}{counts}"


def _annotations(comparison: Comparison) -> Iterator[Annotation]:
    """Yields the first difference, and those that do not follow from it."""
    first = comparison.first
    if first is None:
        if comparison.unrelated:
            yield Annotation(level="error", title="rpcinspect diff", lines=(verdict_line(comparison),))
        return
    place = comparison.found[first.found].message
    lines = [
        where(comparison.messages[place], comparison),
        *_lines_of(place, comparison),
        f"likely {first.likely}: {first.text}",
    ]
    if comparison.different > 1:
        lines.append(other_messages(comparison))
    yield Annotation(level="error", title="rpcinspect diff: first difference", lines=tuple(lines))
    for other in first.beside:
        if other not in first.alike:
            told = (where(comparison.messages[other], comparison), *_lines_of(other, comparison))
            title = "rpcinspect diff: independent difference"
            yield Annotation(level="error", title=title, lines=told)


def _lines_of(place: int, comparison: Comparison) -> tuple[str, ...]:
    its = [difference_line(found) for found in comparison.found if found.message == place and found.counts]
    return some_lines(its, 4)
