"""What came of a replay as JSON Lines: the contract's `step`, `inbound` and `report` lines.

In: an outcome and its report. Out: bytes that end with a line: run by run, session by session, the steps in
the order of the plan, then the requests of live workers as they came, then, if that was asked for, what live
workers hold (`gradients` lines, an addition); the report last. Fields beyond the contract stand behind its
own; a difference has all that is known of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from rpcinspect.equality.difference import Difference
from rpcinspect.fields.plain import Json, Picked, picked, plain, text
from rpcinspect.replayer.peers.traffic_pcap import NOT_RECORDED
from rpcinspect.replayer.planning.model import PlannedSession
from rpcinspect.replayer.planning.sessions import LIVE
from rpcinspect.replayer.playing.outcome import (
    InboundOutcome,
    ReplayOutcome,
    Result,
    SeedSearch,
    SessionOutcome,
    StepOutcome,
    TrafficRecording,
)
from rpcinspect.replayer.playing.report import Report, first_difference, never
from rpcinspect.replayer.workers.live_group import LeafGradient
from rpcinspect.views.jsonl.lines import lines
from rpcinspect.views.replay.plan_json import global_json, stand_ins_json, step_json

SIDES = {
    "a_value": "captured",
    "b_value": "live",
    "b_path": "live_path",
    "a_bits": "captured_bits",
    "b_bits": "live_bits",
}
"""What the fields of a difference are called where the first message is the captured one."""


def replay_lines(outcome: ReplayOutcome, made: Report, error: str | None = None) -> bytes:
    """Returns all lines. `error`: why nothing could be started."""
    return lines(_objects(outcome, made, error))


def _objects(outcome: ReplayOutcome, made: Report, error: str | None) -> Iterator[Json]:
    for number, run in enumerate(outcome.runs or ((),)):
        carried_out = {session.planned.number: session for session in run}
        for planned in outcome.plan.sessions:
            session = carried_out.get(planned.number)
            steps = session.steps if session is not None else never(outcome, planned)
            for step in steps:
                yield outcome_json(step, planned, number)
            if session is not None:
                for one in session.inbound:
                    yield inbound_json(one, planned, number)
                yield from _held(session, number)
    yield report_json(outcome, made, error)


def outcome_json(one: StepOutcome, planned: PlannedSession, run: int) -> Json:
    """Returns a `step` line with its result."""
    return {
        **step_json(one.step, planned),
        "result": one.result,
        "difference": difference_json(one.differences, one.result),
        "differences": len(one.differences),
        **picked("same_payload latency_s text")(one),
        "run": run,
    }


def inbound_json(one: InboundOutcome, planned: PlannedSession, run: int) -> Json:
    """An `inbound` line."""
    return {
        "kind": "inbound",
        **picked("captured type from=sender result")(one),
        "difference": difference_json(one.differences, one.result),
        "session": planned.number,
        **picked("role")(one),
        "differences": len(one.differences),
        **picked("same_payload text")(one),
        "run": run,
    }


def difference_json(differences: Sequence[Difference], result: Result | None) -> Json | None:
    """The first difference that counts; null where none does."""
    first = first_difference(differences, result)
    if first is None:
        return None
    fields = {SIDES.get(name, name): value for name, value in first.as_json().items()}
    return {name: fields[name] for name in ("path", "captured", "live")} | fields


def _held(session: SessionOutcome, run: int) -> Iterator[Json]:
    """Yields the gradients that live workers accumulated, one line for each context."""
    for worker, contexts in (session.gradients or {}).items():
        for context, gradients in contexts.items():
            yield {
                "kind": "gradients",
                "worker": text(worker),
                "context_id": context,
                "gradients": [gradient_json(gradient) for gradient in gradients],
                "session": session.planned.number,
                "run": run,
            }


def gradient_json(gradient: LeafGradient) -> Json:
    """A leaf's gradient; `sha256` as of decoded tensors, null where its bytes are too many."""
    return {
        **picked("dtype shape layout parameter name")(gradient),
        "sha256": None if gradient.data is None else hashlib.sha256(gradient.data).hexdigest(),
    }


def report_json(outcome: ReplayOutcome, made: Report, error: str | None = None) -> Json:
    """The `report` line."""
    return {
        "kind": "report",
        **picked("verdict engine device roles sent answered failed skipped responses gradients")(made),
        **picked("wall_s captured_wall_s unanswered gradients_back not_observed self_calls")(made),
        **picked("out_of_reach not_replayed unexpected ambiguous runs identical_runs")(made),
        **picked("messages_wall_s interrupted")(made),
        "failures": [*_failures(outcome, error)],
        "recording": recording_json(outcome.recording),
        "groups": {"captured": list(outcome.plan.captured_groups), "live": LIVE},
        "stand_ins": [one for session in outcome.plan.sessions for one in stand_ins_json(session)],
        "seed_search": [search_json(one) for one in outcome.searches],
        **picked("notes")(outcome.plan),
        "refused": [global_json(use) for use in made.refused],
        "missing": [one or None for one in made.missing],
        "trusted": outcome.plan.trusted,
    }


def recording_json(made: TrafficRecording | None) -> Json | None:
    """The capture of the replay, and what is not in it."""
    if made is None:
        return None
    return {"path": text(str(made.path)), **picked("failure")(made), "not_recorded": NOT_RECORDED}


def search_json(made: SeedSearch) -> Json:
    """What came of looking for seeds in a session."""
    return {
        **picked("session from=tries.start to=tries.stop tried wall_s found")(made),
        "missing": [{"worker": text(name), "message": message} for name, message in made.missing.items()],
        **picked("out_of_time failure")(made),
    }


def _failures(outcome: ReplayOutcome, error: str | None) -> Iterator[Json]:
    """Why sessions ended early, the processes that ended, and the end of what these wrote."""
    if error is not None:
        yield {"session": None, "run": None, "text": text(error), "output": {}, "ended": []}
    for number, run in enumerate(outcome.runs):
        for session in run:
            if session.failure is not None or session.ended:
                yield {
                    "session": session.planned.number,
                    "run": number,
                    "text": plain(session.failure),
                    "output": {text(one.worker or one.who): text(one.output) for one in session.ended},
                    "ended": [ended_json(one) for one in session.ended],
                }


ended_json = Picked(
    "worker signal=exit.signal exit_code=exit.code last_message memory_bytes peak_bytes=exit.peak_bytes "
    "no_memory oom_kills text"
)
"""A process that ended early."""
