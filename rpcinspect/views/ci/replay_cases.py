"""A replay as tests: a case for each kind of captured message that live workers had to give again, by who
gives it to whom: answers, requests, gradients.

In: an outcome, its report, the run that was replayed, and the exit code. Out: a suite whose first case, the
verdict, fails where the exit code is not 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rpcinspect.fields.phrases import counted, end_label, join_ends
from rpcinspect.replayer.planning.model import REASONS, Step
from rpcinspect.replayer.playing.outcome import ReplayOutcome, StepOutcome
from rpcinspect.replayer.playing.report import GRADIENT, NO_LOSS, Report, merged, worst
from rpcinspect.run.run import RunModel
from rpcinspect.views.ci.suite import (
    VERDICT,
    Annotation,
    CaseOutcome,
    CaseResult,
    SuiteResult,
    about,
    some_lines,
)
from rpcinspect.views.replay.replay_steps import outcome_lines
from rpcinspect.views.replay.replay_table import report_lines, verdict_line

WRONG = ("different", "unanswered", "failed")


def replay_suite(
    outcome: ReplayOutcome, made: Report, run: RunModel, *, failed: bool, require_all: bool, error: str | None
) -> SuiteResult:
    """Returns the verdict, and what came of the messages by kind. `failed`: the exit code says so;
    `require_all`: what was skipped is wrong, too; `error`: why nothing could be started."""
    paths = [capture.path for capture in run.session.captures]
    verdict = verdict_line(made)[0] if error is None else error.partition("\n")[0]
    lines = tuple(line for line, _ in report_lines(outcome, made, error))
    cases = tuple(_cases(outcome, run, require_all=require_all)) if outcome.runs else ()
    return SuiteResult(
        command="replay",
        about=about(paths),
        cases=(
            CaseResult(name=VERDICT, outcome=_verdict(made, failed), message=verdict, lines=lines),
            *cases,
        ),
        annotations=tuple(_annotations(verdict, lines, cases)) if failed else (),
        properties={
            "captures": ", ".join(paths),
            "verdict": made.verdict,
            "engine": made.engine,
            "device": made.device,
            "played": ", ".join(made.roles),
        },
        seconds=outcome.wall_s,
    )


def _verdict(made: Report, failed: bool) -> CaseOutcome:
    if not failed:
        return "passed"
    return "failure" if made.verdict in ("different", "identical", "tolerance") else "error"


def _cases(outcome: ReplayOutcome, run: RunModel, *, require_all: bool) -> Iterator[CaseResult]:
    """Yields one for each kind, in the order of the capture. What the agents do by themselves, and what is in
    another answer, is none."""
    messages: dict[int, StepOutcome] = {}
    for session in merged(outcome):
        for one in session.steps:
            known = messages.get(one.step.message)
            messages[one.step.message] = one if known is None else _sooner(known, one)
    kinds: dict[str, list[StepOutcome]] = {}
    for _, one in sorted(messages.items()):
        if one.step.action != "skip" or one.step.code not in NO_LOSS:
            kinds.setdefault(_name(one.step, run), []).append(one)
    for name, its in kinds.items():
        yield _case(name, its, require_all=require_all)


def _sooner(known: StepOutcome, other: StepOutcome) -> StepOutcome:
    """Returns what counts of a message that two sessions have: one that took place, of two the worse."""
    if (known.step.action == "skip") != (other.step.action == "skip"):
        return other if known.step.action == "skip" else known
    return worst((known, other))


def _name(step: Step, run: RunModel) -> str:
    call = run.calls.get(step.message)
    what = step.type if call is None else call.what
    receiver = step.role if step.sender == step.to else step.to
    there, back = (
        join_ends(*map(end_label, ends)) for ends in ((step.sender, receiver), (receiver, step.sender))
    )
    if step.type == GRADIENT:
        return f"gradients {there}"
    return f"request {there} {what}" if step.action == "answer" else f"answer {back} {what}"


def _case(name: str, its: Sequence[StepOutcome], *, require_all: bool) -> CaseResult:
    wrong = [one for one in its if one.result in WRONG]
    skipped = [one for one in its if one.step.action == "skip"]
    compared = [one for one in its if one.result is not None]
    seconds = sum(one.latency_s or 0.0 for one in its)
    outcome: CaseOutcome = "passed"
    if wrong:
        outcome = "error" if any(one.result == "failed" for one in wrong) else "failure"
        head, *why = outcome_lines(wrong[0])
        message = "; ".join([f"{len(wrong):,} of {len(compared):,} not as captured, first {head}", *why])
    elif skipped and require_all:
        outcome, message = "failure", f"{counted(len(skipped), 'request')} skipped: {_reasons(skipped)}"
    elif not compared:
        outcome, message = "skipped", _reasons(skipped) or "the capture has too little to compare with"
    else:
        message = ""
    lines = [line for one in wrong for line in _indented(outcome_lines(one))]
    lines = [*some_lines(lines), f"{len(compared) - len(wrong):,} of {len(its):,} as captured"]
    near = sum(one.result == "tolerance" for one in compared)
    lines += [f"{near:,} of these within the tolerance"] if near else []
    lines += [f"{len(skipped):,} skipped: {_reasons(skipped)}"] if skipped else []
    return CaseResult(name=name, outcome=outcome, message=message, lines=tuple(lines), seconds=seconds)


def _indented(lines: Sequence[str]) -> list[str]:
    return [lines[0], *(f"    {line}" for line in lines[1:])]


def _reasons(skipped: Sequence[StepOutcome]) -> str:
    codes = Counter(one.step.code or "" for one in skipped)
    return "; ".join(f"{code}: {REASONS.get(code, code)}" for code, _ in codes.most_common())


def _annotations(verdict: str, lines: Sequence[str], cases: Sequence[CaseResult]) -> Iterator[Annotation]:
    """Yields the verdict, and the kinds that are not as captured; without any, what there is to say."""
    bad = [case for case in cases if case.bad]
    told = (verdict,) if bad else tuple(dict.fromkeys((verdict, *lines)))
    yield Annotation(level="error", title="rpcinspect replay", lines=told)
    for case in bad:
        yield Annotation(level="error", title=f"rpcinspect replay: {case.name}", lines=(case.message,))
