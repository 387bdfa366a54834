"""Two replays of one capture, by the sources as they were and by others, message by message.

In: what came of both. Out: each message with both results and a verdict; whether two live messages that both
differ from the captured one are equal is found by comparing them, where both were kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct

from rpcinspect.equality.difference import Difference, verdict
from rpcinspect.equality.ids import IdMap
from rpcinspect.equality.messages import compare_messages
from rpcinspect.equality.rules import Rules
from rpcinspect.replayer.planning.model import Step
from rpcinspect.replayer.playing.outcome import ReplayOutcome, Result, StepOutcome
from rpcinspect.replayer.playing.report import Report, merged

KEPT_BYTES = 1 << 28
"""Of the live messages of each replay that differ; more are not compared with each other."""
AGREED: tuple[Result, ...] = ("identical", "tolerance")

PairVerdict = Literal[
    "same",
    "first-differs",
    "second-differs",
    "both-differ-alike",
    "all-differ",
    "both-differ",
    "not-compared",
]
"""`both-differ-alike`: from the capture, and the two live ones are equal; `all-differ`: no two are equal;
`both-differ`: from the capture, and nothing is known of the two; `not-compared`: one of them was not compared
with the captured one."""


class SourceResult(Struct, frozen=True, kw_only=True):
    """The replay by one of the sources."""

    label: str
    """What was given for it."""
    outcome: ReplayOutcome
    report: Report
    error: str | None
    """Why nothing could be started."""


class MessagePair(Struct, frozen=True, kw_only=True):
    """What came of one captured message in both replays."""

    session: int
    step: Step
    first: StepOutcome | None
    """None: the replay has no such step."""
    second: StepOutcome | None
    verdict: PairVerdict
    apart: Difference | None = None
    """Of `all-differ`: the first difference between the two live ones."""

    @property
    def differs(self) -> bool:
        """Whether the message did not come as captured in one replay at least."""
        return any(_is_bad(one) for one in (self.first, self.second))


def pairs(first: SourceResult, second: SourceResult, rules: Rules) -> Iterator[MessagePair]:
    """Yields each message that takes place in one replay at least, session by session, in the order of the
    first plan; none where one of the two was not started."""
    if first.error is not None or second.error is not None:
        return
    ours, theirs = _steps(first.outcome), _steps(second.outcome)
    ids: dict[int, IdMap] = {}
    for key in dict.fromkeys([*ours, *theirs]):
        a, b = ours.get(key), theirs.get(key)
        word, apart = _judge(a, b, rules, ids.setdefault(key[0], IdMap()))
        step = next(one.step for one in (a, b) if one is not None)
        if any(one is not None and one.step.action != "skip" for one in (a, b)):
            yield MessagePair(session=key[0], step=step, first=a, second=b, verdict=word, apart=apart)


def _steps(outcome: ReplayOutcome) -> Mapping[tuple[int, int], StepOutcome]:
    """Returns (session, message) → the worst that came of it."""
    return {
        (session.planned.number, one.step.message): one
        for session in merged(outcome)
        for one in session.steps
    }


def _judge(
    first: StepOutcome | None, second: StepOutcome | None, rules: Rules, ids: IdMap
) -> tuple[PairVerdict, Difference | None]:
    if first is None or second is None or first.result is None or second.result is None:
        return "not-compared", None
    if not _is_bad(second):
        return ("first-differs" if _is_bad(first) else "same"), None
    if not _is_bad(first):
        return "second-differs", None
    if first.result != second.result:
        return "all-differ", None
    if first.result == "unanswered" or (first.result == "failed" and first.text == second.text):
        return "both-differ-alike", None
    if first.live is None or second.live is None:
        return "both-differ", None
    one, other = first.live, second.live
    found = compare_messages(one.record, other.record, one.read, other.read, rules, ids)
    if verdict(found, rules) == "different":
        counting = [each for each in found if rules.counts(each.code) and not each.tolerated]
        return "all-differ", next(iter(counting), None)
    return "both-differ-alike", None


def _is_bad(one: StepOutcome | None) -> bool:
    return one is not None and one.result is not None and one.result not in AGREED
