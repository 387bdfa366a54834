"""The plan of a replay: what would be sent, by whom, in what order, what can't be and why. Starts nothing.

In: a run, which tells what was exchanged and why, and what the user asked for. Out: a `Plan`. Each module
beside this one answers one question: `sessions` (who is played), `facts` and `steps` (what is sent, answered,
skipped), `gate` (what it would run), `order` (when); `rpc.wrapping` tells in which envelope.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import asdict, replace

from rpcinspect.pickles.verdicts import Named
from rpcinspect.replayer.agent.passes import LOOSE, cannot, read_passes
from rpcinspect.replayer.planning.devices import named_devices
from rpcinspect.replayer.planning.facts import JobFacts, read_facts, rrefs_in
from rpcinspect.replayer.planning.gate import ExecutionPolicy, Inspection
from rpcinspect.replayer.planning.model import (
    Decision,
    Ending,
    Engine,
    NeededObject,
    Plan,
    PlannedSession,
    StandIn,
    Step,
    ValueLoad,
    missing_allowances,
    some_of,
)
from rpcinspect.replayer.planning.order import arrivals, order, overlaps
from rpcinspect.replayer.planning.provisions import (
    checkpoint_loads,
    is_older,
    parameter_loads,
    provisions,
    stand_ins,
)
from rpcinspect.replayer.planning.random_numbers import random_note
from rpcinspect.replayer.planning.recording_gaps import RecordingGaps, read_gaps
from rpcinspect.replayer.planning.selection import select
from rpcinspect.replayer.planning.sessions import (
    PlanError,
    RoleAssignment,
    default_casts,
    every_casts,
    group_kinds,
    named_casts,
    workers_of,
)
from rpcinspect.replayer.planning.steps import StepClassifier, blocked_contexts
from rpcinspect.replayer.planning.torch_helpers import rref_classes
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.message import MessageType, type_name
from rpcinspect.rpc.questions import CLEAN_UP, is_builtin, requires_grad
from rpcinspect.rpc.wrapping import envelope_types, wrap_answer, wrap_request
from rpcinspect.run.causes import Causes
from rpcinspect.run.exchanges import Exchange, UnmatchedAnswer
from rpcinspect.run.run import RunModel
from rpcinspect.session.provenance import Id


class PlanOptions(Struct, frozen=True, kw_only=True):
    """Options for planning a replay."""

    roles: tuple[str, ...] = ()
    """Workers to play, in one session; others are live."""
    live: tuple[str, ...] = ()
    """Workers to keep live, in one session; others are played. Not together with `roles`."""
    every_worker: bool = False
    """Run each worker live once, alone, all others played."""
    context: int | None = None
    """Replay only this autograd context and what it depends on."""
    trust: bool = False
    """Refuse nothing, whatever pickles name."""
    stand_ins: bool = False
    """Give live workers values for RRefs that are older than the capture, see `provisions`."""
    provide: tuple[tuple[Id, str], ...] = ()
    """(RRef that is older than the capture, how its live owner makes an object for it), see `provisions`."""
    checkpoints: tuple[tuple[Id, str], ...] = ()
    """(RRef, a file with the state of its object)."""
    restore_parameters: bool = False
    """Put tensors of RRefs into live workers as the capture shows them."""
    engine: Engine = "wire"
    """What will carry it out."""
    joins: bool = False
    """Live workers are those of a group that runs: nothing is sent to them in their own name."""


def plan(
    run: RunModel,
    options: PlanOptions | None = None,
    gate: ExecutionPolicy | None = None,
    *,
    named: dict[int, tuple[Named, ...]] | None = None,
) -> Plan:
    """Plans the replay of a run; without a `gate`, only what is harmless may run. `named`: by row what this
    gate has said of some messages already.

    Raises `PlanError` where a worker or a context that was named is not in the capture.
    """
    options, gate = options or PlanOptions(), gate or ExecutionPolicy()
    every = run.exchanges.calls
    causes, facts, workers = run.causes.decided(options.roles), read_facts(run), workers_of(run.session)
    if options.roles or options.live:
        casts = named_casts(workers, options.roles, options.live)
    elif options.every_worker:
        casts = every_casts(workers, every)
    else:
        casts = default_casts(workers, every, causes)
    calls = list(every)
    if options.context is not None:
        chosen = select(options.context, every, causes, facts)
        calls = [call for call in every if call.index in chosen]
    left_out = 0 if options.context is None else sum(not call.control for call in every) - len(calls)
    orphans = () if left_out else run.exchanges.orphans
    gaps = read_gaps(run.session, every)
    inspection = Inspection(
        gate, rref_classes(every), options.trust, run.session, {} if named is None else named
    )
    planner = _Planner(run, calls, orphans, causes, facts, options, gaps, inspection)
    sessions = tuple(planner.session(number, cast) for number, cast in enumerate(casts))
    _check_given(options, sessions)
    planned = {step.message for one in sessions for step in one.steps}
    uses, missing = inspection.uses(), tuple[str, ...]()
    if not options.trust and any(not use.allowed for use in uses):
        # what depends on a refused message is skipped and not judged: all of it is told at once nevertheless
        whole = plan(run, replace(options, trust=True), gate, named=inspection.judged)
        spare = _spare_answers(whole)
        missing = missing_allowances(use for use in whole.globals if not spare.issuperset(use.messages))
    steps = [step for one in sessions for step in one.steps]
    return Plan(
        sessions=sessions,
        globals=uses,
        missing=missing,
        ambiguities=tuple(doubt for index, doubt in sorted(causes.doubts.items()) if index in planned),
        notes=(*_notes(run), *gaps.notes),
        random=random_note(uses, steps, run.calls, facts, gate.sources),
        left_out=left_out,
        trusted=options.trust,
        captured_groups=group_kinds(every),
    )


def _check_given(options: PlanOptions, sessions: Sequence[PlannedSession]) -> None:
    """Raises `PlanError` where something was given for an RRef and nothing can be done with it."""
    provided = {one.rref for session in sessions for one in session.provided}
    loaded = {one.rref for session in sessions for one in session.loads}
    for name, given, used in (
        ("--provide", options.provide, provided),
        ("--checkpoint", options.checkpoints, loaded),
    ):
        for rref, _ in given:
            if rref not in used:
                raise PlanError(
                    f"{name} {rref[0]}:{rref[1]}: no live worker has an RRef of this id that it could be "
                    "for; --plan lists those that are needed"
                )


def _spare_answers(made: Plan) -> set[int]:
    """Answers that live workers get only if they send what is not expected."""
    steps = [step for session in made.sessions for step in session.steps if step.answer is not None]
    spare = {step.answer for step in steps if step.spare is not None}
    given = {step.answer for step in steps if step.action == "answer"}
    return {index for index in spare - given if index is not None}


class _Planner(Struct, eq=False):
    """Plans sessions one by one; reads the names in a message once for all of them."""

    run: RunModel
    calls: Sequence[Exchange]
    """Calls to plan for."""
    orphans: Sequence[UnmatchedAnswer]
    """Answers without a request to tell of."""
    causes: Causes
    facts: dict[int, JobFacts]
    options: PlanOptions
    gaps: RecordingGaps
    inspection: Inspection

    def session(self, number: int, cast: RoleAssignment) -> PlannedSession:
        """Returns all steps of one session."""
        facts = self.facts[cast.job]
        calls = [call for call in self.calls if call.job == cast.job]
        whole = [call for call in self.run.exchanges.calls if call.job == cast.job]
        could = stand_ins(whole, facts, cast.live)
        provided = provisions(dict(self.options.provide), whole, facts, cast.live)
        steps = StepClassifier(
            cast,
            self.causes,
            facts,
            self.inspection.refusal,
            joins=self.options.joins,
            programs=self.options.engine == "wire" and not self.options.joins,
            stand_ins=could,
            substitutes={**(could if self.options.stand_ins else {}), **provided},
            unasked=self.inspection.unasked_refusal,
            one_way=self.gaps.one_way,
        )
        if self.options.engine == "agent":
            steps.beyond = _beyond_agent(calls, facts, cast.roles)
        steps.classify_all(calls)
        if self.options.engine == "agent" and (loose := _loose(steps)):
            steps.beyond = {**steps.beyond, **dict.fromkeys(loose, LOOSE)}
            steps.classify_all(calls)
        steps.blocked = blocked_contexts(steps)
        if steps.blocked:
            steps.classify_all(calls)
        come = arrivals(calls, steps.decisions)
        times = [time for time, _ in come]
        ordered = order(calls, steps.decisions, self.causes.parents)
        return PlannedSession(
            number=number,
            cast=cast,
            steps=(
                *(self._step(call, steps, cast, times) for call in ordered),
                *(_orphan_step(orphan) for orphan in self.orphans if orphan.job == cast.job),
            ),
            arrivals=tuple(index for _, index in come),
            overlaps=tuple(overlaps(calls, steps.decisions)),
            stand_ins=self._used(steps),
            provided=tuple(provided.values()),
            loads=tuple(self._loads(whole, facts, steps)),
            needed=tuple(_needed(steps)),
            unheard=tuple(name for name in self.gaps.unheard.get(cast.job, ()) if name in cast.live),
            endings=() if self.options.joins else tuple(self._endings(cast, times)),
        )

    def _endings(self, cast: RoleAssignment, times: Sequence[int]) -> Iterator[Ending]:
        """Yields the workers whose processes ended while somebody waited for something."""
        its = [call for call in self.calls if call.job == cast.job and call.kind not in CLEAN_UP]
        awaited = {call.index for call in its} - self.gaps.one_way
        for one in self.run.closings.departures:
            in_flight = awaited.intersection((*one.unanswered, *one.waiting))
            if one.job == cast.job and one.worker in (*cast.roles, *cast.live) and in_flight:
                yield Ending(
                    worker=one.worker,
                    time_ns=one.time_ns,
                    after=bisect_left(times, one.time_ns),
                    unanswered=tuple(index for index in one.unanswered if index in awaited),
                    reset=one.reset > 0,
                )

    def _used(self, steps: StepClassifier) -> tuple[StandIn, ...]:
        """The stand-ins that something needs which takes place; what they name reaches a live process too."""
        happening = [call.request for call in steps.calls.values() if steps.happens(call.index)]
        needed = {rref for request in happening for rref in rrefs_in(request)}
        used = tuple(
            one for rref, one in steps.substitutes.items() if isinstance(one, StandIn) and rref in needed
        )
        for one in used:
            fetch = self.run.calls[one.request]
            if fetch.response is not None:
                self.inspection.refusal(fetch.response, fetch.kind)
        return used

    def _loads(
        self, whole: Sequence[Exchange], facts: JobFacts, steps: StepClassifier
    ) -> Iterator[ValueLoad]:
        """Yields what is put into objects of live workers that they have: given, or made by what happens."""
        live, given = steps.cast.live, dict(self.options.checkpoints)
        found = checkpoint_loads(given, facts, live)
        if self.options.restore_parameters:
            others = steps.stand_ins if self.options.stand_ins else {}
            found += [one for one in parameter_loads(whole, facts, live, others) if one.rref not in given]
        for one in found:
            there = is_older(one.rref, facts) and one.rref in steps.substitutes
            if there or (one.after is not None and steps.happens(one.after)):
                yield one

    def _step(
        self, call: Exchange, steps: StepClassifier, cast: RoleAssignment, times: Sequence[int]
    ) -> Step:
        decision, role, to = steps.decisions[call.index], call.caller, call.callee
        if decision.action == "answer" or (call.caller not in cast.roles and call.callee in cast.roles):
            role, to = to, role
        return Step(
            message=call.index,
            type=call.type,
            role=role,
            to=to,
            sender=call.caller,
            causes=self._causes_of(call, cast),
            doubt=self._doubt(call, steps) if decision.action == "answer" else "",
            one_way=call.index in self.gaps.one_way,
            answer=call.answer,
            after=bisect_left(times, call.begin_ns) if decision.action == "send" else 0,
            envelopes=_expected(call, decision),
            **asdict(decision),
        )

    def _doubt(self, call: Exchange, steps: StepClassifier) -> str:
        doubt = self.causes.doubts.get(call.index)
        if doubt is None:
            return ""
        elsewhere = doubt.unseen or not all(steps.happens(one) for one in doubt.parents)
        return doubt.text if elsewhere else ""

    def _causes_of(self, call: Exchange, cast: RoleAssignment) -> tuple[int, ...]:
        if call.caller in cast.roles and call.index not in self.causes.parents:
            return ()  # it is sent as its own
        return self.causes.of(call.index)[0]


def _needed(steps: StepClassifier) -> Iterator[NeededObject]:
    """Yields what the user would have to give for the requests that are skipped for it."""
    for rref, users in sorted(steps.needed.items()):
        made = steps.stand_ins.get(rref)
        yield NeededObject(
            rref=rref,
            owner=steps.facts.owners[rref],
            users=tuple(user.index for user in users),
            functions=tuple(dict.fromkeys(user.function for user in users if user.function is not None)),
            type=steps.facts.type_of(rref),
            stand_in=None if made is None else made.message,
        )


def _beyond_agent(calls: Iterable[Exchange], facts: JobFacts, roles: Collection[str]) -> dict[int, str]:
    """Request → why torch's agent can't replay it."""
    holders = {rref: one.receiver for rref, one in facts.mentions.items() if one.is_answer}
    holders |= {rref: one.sender for rref, one in facts.makers.items()}
    holders = {rref: one for rref, one in holders.items() if facts.owners.get(rref) not in roles}
    reasons = {call.index: cannot(call, roles, holders) for call in calls}
    return {index: reason for index, reason in reasons.items() if reason is not None}


def _loose(steps: StepClassifier) -> set[int]:
    """Gradients of played workers for which torch's agent has nothing that would set them off."""
    happen = {index for index, decision in steps.decisions.items() if decision.action != "skip"}
    passes = [read_passes(happen, steps.calls, steps.facts.edges, role) for role in steps.cast.roles]
    return {index for one in passes for index in one.loose}


def _expected(call: Exchange, decision: Decision) -> tuple[str, ...]:
    """The envelopes of the live message that a step brings, as the wrapping rule has them."""
    types = envelope_types(call.request)
    if decision.action == "send" and call.response is not None:
        failed = message_type_of(call.response.rpc.command) == MessageType.EXCEPTION
        wrapped = wrap_answer(types, requires_grad=requires_grad(call.response), failed=failed)
    elif decision.action == "answer":
        wrapped = wrap_request(
            call.kind,
            builtin=is_builtin(call.request.rpc.command),
            in_context=MessageType.FORWARD_AUTOGRAD_REQ in types,
            requires_grad=requires_grad(call.request),
            profiling=MessageType.RUN_WITH_PROFILING_REQ in types,
        )
    else:
        return ()
    return tuple(MessageType(kind).name for kind in wrapped)


def _orphan_step(orphan: UnmatchedAnswer) -> Step:
    """An answer without a request: nothing can be done about it."""
    return Step(
        message=orphan.index,
        type=type_name(orphan.record.rpc.message.type),
        role=orphan.source,
        to=orphan.destination,
        sender=orphan.source,
        action="skip",
        code="missing-bytes",
        text="an answer whose request was not captured",
    )


def _notes(run: RunModel) -> list[str]:
    """What the plan can't see, in sentences."""
    notes, calls = [], run.exchanges.calls
    first: dict[tuple[int, str], int] = {}
    for call in calls:
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
    named = {name for names in workers_of(run.session).values() for name in names}
    ends = {end for call in calls for end in (call.caller, call.callee)}
    if ends - named:
        unnamed = ", ".join(sorted(ends - named))
        notes.append(
            f"No message names the workers at {unnamed}: they can't be played or started. "
            "Capture from before the start of the job."
        )
    by_id = sorted(one.id for one in run.workers if one.name is None and one.id is not None)
    if by_id:
        options = " ".join(f"--worker {number}=NAME" for number in by_id)
        notes.append(
            f"The capture does not tell the names of workers with the ids {', '.join(map(str, by_id))}: the "
            f"replay makes names up, such as worker:{by_id[0]}. Give those of the job if its code uses them: "
            f"{options}"
        )
    for device, messages in named_devices(calls).items():
        shown = some_of([f"#{index}" for index in messages], 5)
        notes.append(f"Arguments name {device} ({shown}): it is passed on unchanged, wherever tensors are.")
    if len(run.session.captures) > 1:
        notes.append("The order assumes that the captures' clocks agree.")
    return notes
