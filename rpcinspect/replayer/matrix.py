"""One replay in several environments: other releases of torch, other numbers of threads.

In: a plan, and the combinations. Out: for each, what came of it, counted by message, with the first that is
not as captured. A combination that can't be started fails, and the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.equality.difference import Difference
from rpcinspect.errors import ReplayError
from rpcinspect.replayer.options import ReplayOptions
from rpcinspect.replayer.playing.outcome import ReplayOutcome, StepOutcome
from rpcinspect.replayer.playing.report import (
    Counts,
    ReplayVerdict,
    Report,
    first_difference,
    merged,
    report,
    worst_by_message,
)
from rpcinspect.replayer.workers.interpreters import Interpreter, examine

CarryOut = Callable[[ReplayOptions, str], tuple[ReplayOutcome, str | None]]
"""Carries a plan out with these options, for which a name stands; returns what came of it, and why nothing
could be started."""
ORDER: tuple[ReplayVerdict, ...] = (
    "identical",
    "tolerance",
    "nothing-to-replay",
    "different",
    "failed",
    "refused",
)
"""Verdicts, the worst last."""


class Environment(Struct, frozen=True, kw_only=True):
    """A Python to replay in, as the user names it."""

    name: str
    make: Callable[[], str]
    """Returns its program; may raise `ReplayError`, and may have to make it first."""


class FirstDifference(Struct, frozen=True, kw_only=True):
    """The first message that is not as captured."""

    message: int
    code: str
    """Of the difference; where there is none to show, what came of the message instead: `unanswered`."""
    difference: Difference | None
    text: str | None
    """The likely reason, in words."""


class CombinationResult(Struct, frozen=True, kw_only=True):
    """What came of one combination."""

    environment: str
    interpreter: Interpreter | None
    """None where there is none that live workers can run in."""
    threads: int
    verdict: ReplayVerdict
    counts: Counts = Counts()
    """Of captured messages, each once."""
    unexpected: int = 0
    first: FirstDifference | None = None
    error: str | None = None
    """Why nothing could be started."""
    report: Report | None = None


def run_matrix(
    environments: Sequence[Environment], threads: Sequence[int], options: ReplayOptions, carry_out: CarryOut
) -> Iterator[CombinationResult]:
    """Yields the result of each combination, once it is there; ends early where one is interrupted."""
    for environment in environments:
        try:
            interpreter = examine(environment.make())
        except ReplayError as error:
            for count in threads:
                yield CombinationResult(
                    environment=environment.name,
                    interpreter=None,
                    threads=count,
                    verdict="failed",
                    error=str(error),
                )
            continue
        for count in threads:
            workers = replace(options.workers, interpreter=interpreter, threads=count)
            label = f"{environment.name}, {count} thread{'s' * (count != 1)}"
            outcome, failure = carry_out(replace(options, workers=workers), label)
            found = _result(environment.name, interpreter, count, outcome, failure)
            yield found
            if outcome.interrupted:
                return


def worst_verdict(results: Sequence[CombinationResult]) -> ReplayVerdict:
    """Returns the worst verdict of all."""
    return max((one.verdict for one in results), key=ORDER.index, default="nothing-to-replay")


def _result(
    name: str, interpreter: Interpreter, threads: int, outcome: ReplayOutcome, error: str | None
) -> CombinationResult:
    made = report(outcome)
    steps = [one for session in merged(outcome) for one in session.steps]
    results = worst_by_message(steps).values()
    return CombinationResult(
        environment=name,
        interpreter=interpreter,
        threads=threads,
        verdict=made.verdict,
        counts=Counts.of(one for one in results if one is not None),
        unexpected=made.unexpected,
        first=None if error is not None else first_of(steps),
        error=error,
        report=made,
    )


def first_of(steps: Sequence[StepOutcome]) -> FirstDifference | None:
    """Returns the first step that did not come as captured; one that is within a tolerance, if none else."""
    for accepted in (("identical", "tolerance", None), ("identical", None)):
        bad = [one for one in steps if one.result not in accepted]
        if bad:
            one = min(bad, key=lambda step: step.step.message)
            difference = first_difference(one.differences, one.result)
            code = (one.result or "") if difference is None else difference.code
            return FirstDifference(message=one.step.message, code=code, difference=difference, text=one.text)
    return None
