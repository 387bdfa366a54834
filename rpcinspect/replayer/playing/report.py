"""What a replay came to, in numbers and one word. Counting only.

In: a `ReplayOutcome`. Out: a `Report`, the fields of the contract's last line and what people ask beside
them.

A step of a replay that was repeated counts with the worst that came of it in any run. A captured gradient and
a captured answer count once over all sessions, again with the worst; one that was skipped in a session and
sent in another was sent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from rpcinspect.equality.difference import Difference
from rpcinspect.equality.rules import Rules
from rpcinspect.replayer.planning.model import GlobalUse, PlannedSession
from rpcinspect.replayer.playing.outcome import (
    AMBIGUOUS,
    AMBIGUOUS_SENDER,
    InboundOutcome,
    ReplayOutcome,
    Result,
    StepOutcome,
    not_played,
)

ReplayVerdict: TypeAlias = Literal[
    "identical", "tolerance", "different", "failed", "refused", "nothing-to-replay"
]

RESULTS: tuple[Result, ...] = ("identical", "tolerance", "different", "unanswered", "failed")
"""From the best to the worst."""
RANK = {result: rank for rank, result in enumerate(RESULTS)}

STRICT = Rules(strict=True)
"""Which differences count in a replay: identical means the same form too."""
GRADIENT = "BACKWARD_AUTOGRAD_REQ"

NO_LOSS = frozenset({"control", "nested-in-answer"})
"""Reasons for which a skip takes nothing away: the agents' own calls, and what happens by itself or is in an
answer."""


class Counts(Struct, frozen=True, kw_only=True):
    """Captured messages by what came of them; `expected` is all of them."""

    expected: int = 0
    identical: int = 0
    tolerance: int = 0
    different: int = 0
    unanswered: int = 0
    failed: int = 0
    skipped: int = 0

    @classmethod
    def of(cls, results: Iterable[Result | None]) -> Counts:
        """Counts results; None stands for a skipped step, or housekeeping that did not come."""
        by = Counter(results)
        return cls(
            expected=by.total(),
            skipped=by[None],
            **{result: by[result] for result in RESULTS},
        )

    @property
    def alike(self) -> int:
        """Identical, or within the tolerance that was given."""
        return self.identical + self.tolerance

    @property
    def wrong(self) -> int:
        """Returns the number of steps that came otherwise, or not at all."""
        return self.different + self.unanswered + self.failed


class SessionResult(Struct, frozen=True):
    """A session of the plan with the worst that came of each step."""

    planned: PlannedSession
    steps: tuple[StepOutcome, ...]


class Report(Struct, frozen=True, kw_only=True):
    """The outcome in numbers."""

    verdict: ReplayVerdict
    engine: str
    device: str
    roles: tuple[str, ...]
    sent: int
    """`send` steps that were sent."""
    answered: int
    """`answer` steps: requests of live workers that came and got the captured answer."""
    failed: int
    unanswered: int
    """Steps for which nothing came in time: answers to what was sent, requests of live workers."""
    skipped: Mapping[str, int]
    """Steps by reason, as in the plan, but for those that live workers sent all the same."""
    responses: Counts
    """Answers to what played workers sent."""
    requests: Counts
    """Requests that live workers sent, apart from gradients."""
    gradients: Counts
    """Gradients between a played and a live worker, in both directions."""
    gradients_back: Counts
    """Of these, those that live workers sent."""
    not_observed: int
    """Gradients between two live workers in every session."""
    self_calls: int
    """Gradients of a worker to itself."""
    out_of_reach: int
    """All other gradients: both ends are played in some session, or nothing tells the name of one."""
    gradients_left: Mapping[int, str]
    """These three, by message, with the reason why no session compares them."""
    not_replayed: Mapping[str, int]
    """Requests that no session sent or answered, each once, by reason."""
    unexpected: int
    """Requests of live workers like which nothing was captured, over all runs."""
    ambiguous: int
    """Requests that live workers did not send, where the capture does not tell whether they had to; and those
    that differ, where nobody tells who has sent them."""
    runs: int
    identical_runs: int
    """Runs in which everything was identical, or within the tolerance."""
    wall_s: float
    captured_wall_s: float
    messages_wall_s: float
    """From the first to the last message of each session, summed over the sessions and runs."""
    interrupted: bool
    refused: tuple[GlobalUse, ...]
    missing: tuple[str, ...]
    """As of the plan: what `--allow` lacks."""

    @property
    def same(self) -> bool:
        """Whether what was asked for holds."""
        return self.verdict in ("identical", "tolerance") and not self.interrupted

    @property
    def lost(self) -> int:
        """Requests that `--require-all` misses."""
        return sum(count for code, count in self.not_replayed.items() if code not in NO_LOSS)


def report(outcome: ReplayOutcome) -> Report:
    """Returns the outcome of a replay in numbers."""
    sessions = merged(outcome)
    steps = [one for session in sessions for one in session.steps]
    sent = [one for one in steps if one.step.action == "send"]
    asked = [one for one in steps if one.step.action == "answer"]
    sends, answers = (Counts.of(one.result for one in its) for its in (sent, asked))
    gradients = _Gradients(sessions)
    return Report(
        verdict=_verdict(outcome, sessions),
        engine=outcome.engine,
        device=outcome.device,
        roles=outcome.plan.roles,
        # of what has no result, what took place: the capture has too little to compare it with
        sent=sends.expected - sends.failed - sum(one.result is None and one.text is None for one in sent),
        answered=answers.alike
        + answers.different
        + sum(one.result is None and one.same_payload is not None for one in asked),
        failed=sends.failed + answers.failed,
        unanswered=sends.unanswered + answers.unanswered,
        skipped=dict(
            Counter(one.step.code or "" for one in steps if one.step.action == "skip").most_common()
        ),
        responses=Counts.of(worst_by_message(sent).values()),
        requests=Counts.of(
            one.result for one in asked if one.step.type != GRADIENT and one.result is not None
        ),
        gradients=gradients.counts(),
        gradients_back=gradients.counts(back=True),
        not_observed=len(gradients.not_observed),
        self_calls=len(gradients.self_calls),
        out_of_reach=len(gradients.out_of_reach),
        gradients_left=gradients.left(sessions),
        not_replayed=not_replayed(sessions),
        unexpected=sum(one.captured is None and one.result is not None for one in _inbound(outcome)),
        ambiguous=sum(one.text in (AMBIGUOUS, AMBIGUOUS_SENDER) for one in steps),
        runs=len(outcome.runs),
        identical_runs=_identical_runs(outcome),
        wall_s=outcome.wall_s,
        captured_wall_s=outcome.captured_wall_s,
        messages_wall_s=sum(session.wall_s for run in outcome.runs for session in run),
        interrupted=outcome.interrupted,
        refused=outcome.plan.refused,
        missing=outcome.plan.missing,
    )


def merged(outcome: ReplayOutcome) -> tuple[SessionResult, ...]:
    """Returns every session of the plan with the worst of its runs."""
    found = []
    for planned in outcome.plan.sessions:
        runs = [one.steps for run in outcome.runs for one in run if one.planned.number == planned.number]
        steps = tuple(worst(same) for same in zip(*runs, strict=True)) if runs else never(outcome, planned)
        found.append(SessionResult(planned, steps))
    return tuple(found)


def never(outcome: ReplayOutcome, planned: PlannedSession) -> tuple[StepOutcome, ...]:
    """The steps of a session that was not begun: they failed, unless nothing was to be started at all."""
    if outcome.plan.refused and not outcome.runs:
        return tuple(StepOutcome(step=step, result=None) for step in planned.steps)
    return not_played(planned, "it was not started")


def worst(outcomes: Iterable[StepOutcome]) -> StepOutcome:
    """The worst, of equals the first."""
    return max(outcomes, key=lambda one: -1 if one.result is None else RANK[one.result])


def first_difference(differences: Sequence[Difference], result: Result | None) -> Difference | None:
    """The first that made the result what it is: beyond the tolerance, if any is. An error comes before the
    autograd envelope that it lacks."""
    counting = [one for one in differences if STRICT.counts(one.code)]
    if result == "tolerance":
        return next((one for one in counting if one.tolerated), None)
    if result in ("different", "failed"):
        beyond = [one for one in counting if not one.tolerated]
        return min(beyond, key=lambda one: one.code != "error", default=None)
    return None


def not_replayed(sessions: Sequence[SessionResult]) -> dict[str, int]:
    """Returns reason → number of requests that every session skips, each counted once, the most frequent
    reason first. Of the reasons in several sessions the one about the request itself counts."""
    reasons: dict[int, list[str]] = defaultdict(list)
    replayed = set()
    for session in sessions:
        for one in session.steps:
            if one.step.action == "skip":
                reasons[one.step.message].append(one.step.code or "")
            else:
                replayed.add(one.step.message)
    counts = Counter(_telling(codes) for message, codes in reasons.items() if message not in replayed)
    return dict(counts.most_common())


def _telling(codes: Sequence[str]) -> str:
    """`nested-in-answer` says that it takes place; `driver-not-live`, `both-played` are about the cast."""
    if "nested-in-answer" in codes:
        return "nested-in-answer"
    return next((code for code in codes if code not in ("driver-not-live", "both-played")), codes[0])


LEAST_TELLING = {"driver-not-live": 1, "self-call": 2, "both-played": 3}
"""Reasons that are about who is live in a session; that of another session may tell more."""


class _Gradients:
    """The captured gradients, each once, by who is at their ends."""

    def __init__(self, sessions: Sequence[SessionResult]) -> None:
        self._results: dict[int, Result | None] = {}
        """Of those between a played and a live worker."""
        self._back: set[int] = set()
        self.self_calls: set[int] = set()
        others: dict[int, bool] = {}
        """Whether they were between two live workers in every session so far."""
        for session in sessions:
            cast = session.planned.cast
            for one in session.steps:
                step = one.step
                if step.type != GRADIENT:
                    continue
                ends = {step.role, step.to}
                if len(ends) == 1:
                    if step.action == "skip":
                        self.self_calls.add(step.message)
                    else:
                        self._add(one, back=step.action == "answer")
                elif len(ends.intersection(cast.roles)) == len(ends.intersection(cast.live)) == 1:
                    self._add(one, back=step.sender in cast.live)
                else:
                    live = ends.issubset(cast.live)
                    others[step.message] = others.get(step.message, True) and live
        self.self_calls -= self._results.keys()
        elsewhere = {message: live for message, live in others.items() if message not in self._results}
        self.not_observed = {message for message, live in elsewhere.items() if live}
        self.out_of_reach = elsewhere.keys() - self.not_observed

    def left(self, sessions: Sequence[SessionResult]) -> dict[int, str]:
        """Returns the gradients that no session compares, each with the reason that tells most."""
        left = self.self_calls | self.not_observed | self.out_of_reach
        reasons: dict[int, tuple[int, str]] = {}
        for session in sessions:
            for step in (one.step for one in session.steps):
                if step.message in left:
                    reason = (LEAST_TELLING.get(step.code or "", 0), step.text or step.code or "")
                    reasons[step.message] = min(reasons.get(step.message, reason), reason)
        return {message: text for message, (_, text) in sorted(reasons.items())}

    def _add(self, one: StepOutcome, *, back: bool) -> None:
        message = one.step.message
        self._results[message] = _worst([self._results.get(message), one.result])
        if back:
            self._back.add(message)

    def counts(self, *, back: bool = False) -> Counts:
        """Counts all gradients; `back`: only those that live workers send."""
        return Counts.of(
            result for message, result in self._results.items() if not back or message in self._back
        )


def worst_by_message(steps: Iterable[StepOutcome]) -> dict[int, Result | None]:
    """Returns message → the worst that came of it over all sessions; None: it took place in none."""
    found: dict[int, Result | None] = {}
    for one in steps:
        found[one.step.message] = _worst([found.get(one.step.message), one.result])
    return found


def _worst(results: Iterable[Result | None]) -> Result | None:
    """The worst of results; None, a skip, is none."""
    return max((one for one in results if one is not None), key=RANK.__getitem__, default=None)


def _inbound(outcome: ReplayOutcome) -> Iterator[InboundOutcome]:
    for run in outcome.runs:
        for session in run:
            yield from session.inbound


def _verdict(outcome: ReplayOutcome, sessions: Sequence[SessionResult]) -> ReplayVerdict:
    plan = outcome.plan
    if plan.refused and not outcome.runs:
        return "refused"
    if not plan.count("send"):
        return "nothing-to-replay"
    failures = [one.failure for run in outcome.runs for one in run]
    results = [one.result for session in sessions for one in session.steps]
    results += [one.result for one in _inbound(outcome)]
    if any(failures):
        results.append("failed")
    word = _word(results)
    compared = any(one.result for session in sessions for one in session.steps)
    if word in ("identical", "tolerance") and not compared:
        return "nothing-to-replay"  # whatever came, the capture has nothing to compare it with
    return word


def _word(results: Iterable[Result | None]) -> Literal["identical", "tolerance", "different", "failed"]:
    """The verdict of all results together: an answer that does not come counts as a difference."""
    worst_of_all = _worst(results)
    if worst_of_all is None:
        return "identical"
    return "different" if worst_of_all == "unanswered" else worst_of_all


def _identical_runs(outcome: ReplayOutcome) -> int:
    count = 0
    for run in outcome.runs:
        results: list[Result | None] = [one.result for session in run for one in session.steps]
        results += [one.result for session in run for one in session.inbound]
        complete = len(run) == len(outcome.plan.sessions) and not any(session.failure for session in run)
        count += complete and _word(results) in ("identical", "tolerance")
    return count
