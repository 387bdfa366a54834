"""The plan of a replay: what would be sent, by whom, in what order, what can't be and why. Starts nothing.

In: a decoded session, its records, and what the user asked for. Out: a `Plan`. The modules beside this one
each answer one question: `calls` (what was exchanged), `causality` (why), `sessions` (who is played), `facts`
and `steps` (what is sent, answered, skipped), `gate` (what it would run), `order` (when), `wrapping` (in
which envelope).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.replayer.agent.passes import LOOSE, cannot, read_passes
from rpcinspect.replayer.planning.devices import named_devices
from rpcinspect.replayer.planning.facts import Id, JobFacts, read_facts, rrefs_in
from rpcinspect.replayer.planning.gate import Gate, Inspection
from rpcinspect.replayer.planning.helpers import rref_classes
from rpcinspect.replayer.planning.lacks import Lacks, read_lacks
from rpcinspect.replayer.planning.model import (
    Engine,
    Plan,
    PlannedSession,
    StandIn,
    Step,
    missing_allowances,
    some_of,
)
from rpcinspect.replayer.planning.order import arrivals, arrived_before, order, overlaps
from rpcinspect.replayer.planning.selection import select
from rpcinspect.replayer.planning.sessions import Cast, default_casts, group_kinds, named_casts, workers_of
from rpcinspect.replayer.planning.stand_ins import stand_ins
from rpcinspect.replayer.planning.steps import Beyond, Stage, Verdict, blocked_contexts, nothing_beyond
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.message import MessageType, type_name
from rpcinspect.rpc.questions import is_builtin, requires_grad
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.wrapping import envelope_types, habit, wrap_answer, wrap_request
from rpcinspect.run.causes import Causes
from rpcinspect.run.exchanges import Exchange, Exchanges, UnmatchedAnswer
from rpcinspect.run.run import Run
from rpcinspect.session.model import Session


class PlanOptions(Struct, frozen=True, kw_only=True):
    """What the command line says of a replay."""

    roles: tuple[str, ...] = ()
    """Workers to play, in one session; others are live."""
    live: tuple[str, ...] = ()
    """Workers to keep live, in one session; others are played. Not together with `roles`."""
    context: int | None = None
    """Only this autograd context and what it depends on."""
    trust: bool = False
    """Refuse nothing, whatever pickles name."""
    stand_ins: bool = False
    """Give live workers values for RRefs that are older than the capture, see `stand_ins`."""
    engine: Engine = "wire"
    """What will carry it out."""
    joins: bool = False
    """Live workers are those of a group that runs: nothing is sent to them in their own name."""


def plan(
    session: Session,
    messages: Sequence[RpcRecord],
    options: PlanOptions | None = None,
    gate: Gate | None = None,
) -> Plan:
    """The plan for a session; `messages` are its records in the order of time.

    Raises `PlanError` where a worker or a context that was named is not in the capture.
    """
    options, gate = options or PlanOptions(), gate or Gate()
    run = Run(session, messages)
    exchanges, causes = run.exchanges, run.causes.decided(options.roles)
    facts = read_facts(run)
    workers = workers_of(session)
    if options.roles or options.live:
        casts = named_casts(workers, options.roles, options.live)
    else:
        casts = default_casts(workers, exchanges.calls, causes)
    calls, left_out = _selected(exchanges, causes, facts, options)
    lacks = read_lacks(session, exchanges.calls)
    inspection = Inspection(gate, rref_classes(exchanges.calls), options.trust)
    indexes = {call.request.row: call.index for call in exchanges.calls}
    indexes |= {
        c.response.row: c.answer for c in exchanges.calls if c.response is not None and c.answer is not None
    }
    planner = _Planner(exchanges, causes, facts, options, lacks, inspection, indexes)
    sessions = []
    for number, cast in enumerate(casts):
        its = [call for call in calls if call.job == cast.job]
        lost = [orphan for orphan in exchanges.orphans if orphan.job == cast.job]
        known = facts.get(cast.job, JobFacts())
        holders = {rref: one.receiver for rref, one in known.mentions.items() if one.is_answer}
        holders |= {rref: one.sender for rref, one in known.makers.items()}
        holders = {rref: one for rref, one in holders.items() if known.owners.get(rref) not in cast.roles}
        beyond = (
            nothing_beyond if options.engine == "wire" else partial(cannot, roles=cast.roles, holders=holders)
        )
        sessions.append(planner.session(number, cast, its, [] if left_out else lost, beyond))
    planned = {step.message for one in sessions for step in one.steps}
    uses = inspection.uses()
    if not options.trust and any(not use.allowed for use in uses):
        # what depends on a refused message is skipped and not judged: all of it is told at once nevertheless
        whole = plan(session, messages, replace(options, trust=True), gate)
        spare = _spare_answers(whole)
        missing = missing_allowances(use for use in whole.globals if not spare.issuperset(use.messages))
    else:
        missing = ()
    return Plan(
        sessions=tuple(sessions),
        globals=uses,
        missing=missing,
        ambiguities=tuple(doubt for index, doubt in sorted(causes.doubts.items()) if index in planned),
        notes=(*_notes(session, exchanges), *lacks.notes),
        left_out=left_out,
        trusted=options.trust,
        captured_groups=group_kinds(exchanges.calls),
    )


def _spare_answers(made: Plan) -> set[int]:
    """Answers that live workers get only if they send what is not expected."""
    steps = [step for session in made.sessions for step in session.steps if step.answer is not None]
    spare = {step.answer for step in steps if step.spare is not None}
    given = {step.answer for step in steps if step.action == "answer"}
    return {index for index in spare - given if index is not None}


def _selected(
    exchanges: Exchanges, causes: Causes, facts: dict[int, JobFacts], options: PlanOptions
) -> tuple[list[Exchange], int]:
    """The requests to plan for, and how many were left out."""
    if options.context is None:
        return list(exchanges.calls), 0
    chosen = select(options.context, exchanges.calls, causes, facts)
    calls = [call for call in exchanges.calls if call.index in chosen]
    return calls, sum(not call.control for call in exchanges.calls) - len(calls)


class _Planner(Struct, eq=False):
    """Plans sessions one by one; what a message names is read once for all of them."""

    exchanges: Exchanges
    causes: Causes
    facts: dict[int, JobFacts]
    options: PlanOptions
    lacks: Lacks
    inspection: Inspection
    indexes: dict[int, int]
    """Index of each row of a request or an answer."""

    def session(
        self,
        number: int,
        cast: Cast,
        calls: Sequence[Exchange],
        orphans: Sequence[UnmatchedAnswer],
        beyond: Beyond,
    ) -> PlannedSession:
        """All steps of one session."""
        facts = self.facts.get(cast.job, JobFacts())
        by_index = {call.index: call for call in calls}
        found = stand_ins([call for call in self.exchanges.calls if call.job == cast.job], facts, cast.live)
        stage = self._judge(cast, calls, facts, frozenset(), beyond, found)
        if beyond is not nothing_beyond and (loose := _loose(stage, by_index, cast)):
            beyond = partial(_beyond_or_loose, beyond, loose)
            stage = self._judge(cast, calls, facts, frozenset(), beyond, found)
        blocked = blocked_contexts(stage, by_index, _within(facts, by_index), cast.roles)
        if blocked:
            stage = self._judge(cast, calls, facts, blocked, beyond, found)
        verdicts = stage.verdicts
        come = arrivals(calls, verdicts)
        times = [time for time, _ in come]
        ordered = order(calls, verdicts, self.causes.parents)
        steps = [self._step(call, verdicts[call.index], cast, times) for call in ordered]
        return PlannedSession(
            number=number,
            cast=cast,
            steps=_with_orphans(steps, orphans),
            arrivals=tuple(index for _, index in come),
            overlaps=tuple(overlaps(calls, verdicts)),
            stand_ins=self._used(found, calls, verdicts) if self.options.stand_ins else (),
            unheard=tuple(name for name in self.lacks.unheard.get(cast.job, ()) if name in cast.live),
        )

    def _used(
        self, found: Mapping[Id, StandIn], calls: Sequence[Exchange], verdicts: Mapping[int, Verdict]
    ) -> tuple[StandIn, ...]:
        """The stand-ins that something needs which takes place; what they name reaches a live process too."""
        needed = {rref for call in calls if verdicts[call.index].happens for rref in rrefs_in(call.request)}
        used = tuple(one for rref, one in found.items() if rref in needed)
        requests = {one.request for one in used}
        for call in self.exchanges.calls:
            if call.index in requests and call.response is not None:
                self._refusal(call.response, call.kind)
        return used

    def _step(self, call: Exchange, verdict: Verdict, cast: Cast, times: Sequence[int]) -> Step:
        role, to = call.caller, call.callee
        if verdict.action == "answer" or (call.caller not in cast.roles and call.callee in cast.roles):
            role, to = to, role
        return Step(
            message=call.index,
            type=call.type,
            role=role,
            to=to,
            sender=call.caller,
            action=verdict.action,
            code=verdict.code,
            text=verdict.text,
            causes=self._causes_of(call, cast),
            spare=verdict.spare,
            one_way=call.index in self.lacks.one_way,
            answer=call.answer,
            after=arrived_before(times, call) if verdict.action == "send" else 0,
            envelopes=_expected(call, verdict),
        )

    def _causes_of(self, call: Exchange, cast: Cast) -> tuple[int, ...]:
        parent, doubt = self.causes.parents.get(call.index), self.causes.doubts.get(call.index)
        if parent is None and call.caller in cast.roles:
            return ()  # it is sent as its own
        return doubt.parents if doubt is not None else () if parent is None else (parent,)

    def _judge(
        self,
        cast: Cast,
        calls: Sequence[Exchange],
        facts: JobFacts,
        blocked: frozenset[tuple[str, int]] | set[tuple[str, int]],
        beyond: Beyond,
        found: Mapping[Id, StandIn],
    ) -> Stage:
        stage = Stage(
            cast,
            self.causes,
            facts,
            self._refusal,
            blocked,
            beyond,
            joins=self.options.joins,
            stand_ins=found,
            give=self.options.stand_ins,
            unasked=self._unasked,
            one_way=self.lacks.one_way,
        )
        for call in calls:
            stage.judge(call)
        return stage

    def _unasked(self, record: RpcRecord, answers: int | None = None) -> str | None:
        """As `_refusal`, of an answer that nobody expects to be asked for: what it names is noted only where
        all of it may pass, since nobody should have to allow it."""
        return self.inspection.objection(record, answers) or self._refusal(record, answers)

    def _refusal(self, record: RpcRecord, answers: int | None = None) -> str | None:
        """What the gate refuses in a message that is about to reach a live process; notes what it names.
        `answers`: as the gate has it.
        """
        return self.inspection.refusal(record, self.indexes[record.row], answers)


def _loose(stage: Stage, calls: dict[int, Exchange], cast: Cast) -> set[int]:
    """Gradients of played workers for which torch's agent has nothing that would set them off."""
    happen = {index for index, verdict in stage.verdicts.items() if verdict.action != "skip"}
    return {index for role in cast.roles for index in read_passes(happen, calls, role).loose}


def _beyond_or_loose(beyond: Beyond, loose: Collection[int], call: Exchange) -> str | None:
    return LOOSE if call.index in loose else beyond(call)


def _within(facts: JobFacts, calls: dict[int, Exchange]) -> JobFacts:
    """The facts of the requests that are planned for: `--context` leaves others out."""
    edges = {edge: carrier for edge, carrier in facts.edges.items() if carrier.request in calls}
    gradients = {edge: [i for i in its if i in calls] for edge, its in facts.gradients.items()}
    return replace(facts, edges=edges, gradients=gradients)


def _expected(call: Exchange, verdict: Verdict) -> tuple[str, ...]:
    """The envelopes of the live message that a step brings, as the wrapping rule has them."""
    types = envelope_types(call.request)
    if verdict.action == "send" and call.response is not None:
        failed = message_type_of(call.response.rpc.command) == MessageType.EXCEPTION
        wrapped = wrap_answer(types, requires_grad=requires_grad(call.response), failed=failed)
    elif verdict.action == "answer":
        wrapped = wrap_request(
            habit(call.kind, builtin=is_builtin(call.request.rpc.command)),
            in_context=MessageType.FORWARD_AUTOGRAD_REQ in types,
            requires_grad=requires_grad(call.request),
            profiling=MessageType.RUN_WITH_PROFILING_REQ in types,
        )
    else:
        return ()
    return tuple(MessageType(kind).name for kind in wrapped)


def _with_orphans(steps: list[Step], orphans: Sequence[UnmatchedAnswer]) -> tuple[Step, ...]:
    """Answers without a request stand at the end: nothing can be done about them."""
    lost = [
        Step(
            message=orphan.index,
            type=type_name(orphan.record.rpc.message.type),
            role=orphan.source,
            to=orphan.destination,
            sender=orphan.source,
            action="skip",
            code="missing-bytes",
            text="an answer whose request was not captured",
        )
        for orphan in orphans
    ]
    return (*steps, *lost)


def _notes(session: Session, exchanges: Exchanges) -> list[str]:
    """What the plan can't see, in sentences."""
    notes = []
    first: dict[tuple[int, str], int] = {}
    for call in exchanges.calls:
        key = (call.job, call.caller)
        first[key] = min(first.get(key, call.request.rpc.message.id), call.request.rpc.message.id)
    late = [
        f"{name} ({count} request{'' if count == 1 else 's'})"
        for (_, name), count in sorted(first.items())
        if count > 0
    ]
    if late:
        notes.append(
            f"The capture begins after the job: earlier requests of {', '.join(late)} are not in it, "
            "and what they left in workers is missing in the replay."
        )
    named = {name for names in workers_of(session).values() for name in names}
    ends = {end for call in exchanges.calls for end in (call.caller, call.callee)}
    if ends - named:
        unnamed = ", ".join(sorted(ends - named))
        notes.append(
            f"Nothing tells the names of the workers at {unnamed}: they can't be played or started. "
            "Capture from before the start of the job."
        )
    for device, messages in named_devices(exchanges.calls).items():
        shown = some_of([f"#{index}" for index in messages], 5)
        notes.append(f"Arguments name {device} ({shown}): it is passed on as it is, wherever tensors are.")
    if len(session.captures) > 1:
        notes.append("The order is that of the captures' own clocks, taken as one.")
    return notes
