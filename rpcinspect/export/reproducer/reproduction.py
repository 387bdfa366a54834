"""What goes into a reproducer: the calls that workers made of their own, which a script makes again.

In: a decoded session, its records, and what the user asked for. Out: a `Reproduction`: the requests that the
script sends, what it expects to come back, and what it leaves out with the reason. All workers are real
processes there, each of which does what it did of its own; whatever they sent while serving others they send
by themselves, and so they do cleanup and housekeeping.

What a worker computed itself is in no message. Gradients that it sent for answers are given as they were
recorded, so that a gradient counts as the worker's own whenever it is for an answer to one of these calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field

from rpcinspect.export.reproducer.model import (
    Gradient,
    Reproduction,
    RRefHandle,
    Skipped,
    needing_gradient,
)
from rpcinspect.pickles.places import rref_places, tensor_places
from rpcinspect.replayer.planning.facts import JobFacts, edge_of, read_facts, rrefs_in
from rpcinspect.replayer.planning.gate import ExecutionPolicy, Inspection
from rpcinspect.replayer.planning.selection import needed, select
from rpcinspect.replayer.planning.sessions import PlanError, workers_of
from rpcinspect.replayer.planning.torch_helpers import rref_classes
from rpcinspect.rpc.command import PropagateGradientsReq, UnknownCommand
from rpcinspect.rpc.message import MessageType, is_request
from rpcinspect.rpc.questions import (
    FETCHES,
    HOUSEKEEPING,
    created,
    is_whole,
    result_of,
    rref_of,
)
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import unpack_id
from rpcinspect.run.causes import Causes
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import Session, Worker
from rpcinspect.session.provenance import Id

Unwritable = Callable[[RpcRecord], "str | None"]
"""Why a message can't be written down as source; None where it can."""


class ReproductionOptions(Struct, frozen=True, kw_only=True):
    """Options of the command line."""

    message: int | None = None
    """Only this message and what it depends on."""
    context: int | None = None
    """Replay only this autograd context and what it depends on."""
    roles: tuple[str, ...] = ()
    """Only what these workers did of their own."""
    live: tuple[str, ...] = ()
    """Nothing of what these workers did of their own."""
    trust: bool = False


def reproduction(
    session: Session,
    messages: Sequence[RpcRecord],
    options: ReproductionOptions,
    gate: ExecutionPolicy,
    unwritable: Unwritable,
) -> Reproduction:
    """Raises `PlanError` where a message, a context or a worker is not in the capture."""
    run = RunModel(session, messages)
    exchanges, causes = run.exchanges, run.causes.decided(options.roles)
    facts = read_facts(run)
    chosen = _chosen(exchanges.calls, causes, facts, options)
    _check_names(session, options)
    made = Reproduction(trusted=options.trust)
    inspection = Inspection(gate, rref_classes(exchanges.calls), options.trust, session)
    names = {(worker.job, worker.id): worker.name for worker in session.workers}
    judge = _Judge(made, causes, facts, inspection, unwritable, options, workers_of(session), names)
    taken = [call for call in exchanges.calls if call.index in chosen and not call.control]
    for call in taken:
        judge.judge(call)
    judge.finish()
    made.left_out = sum(not call.control for call in exchanges.calls if call.index not in chosen)
    made.workers = _workers(session, made, taken)
    return made


def _chosen(
    calls: Sequence[Exchange], causes: Causes, facts: Mapping[int, JobFacts], options: ReproductionOptions
) -> frozenset[int]:
    if options.context is not None:
        return select(options.context, calls, causes, facts)
    if options.message is None:
        return frozenset(call.index for call in calls)
    for call in calls:
        if options.message in (call.index, call.answer):
            return needed([call.index], calls, causes, facts)
    raise PlanError(f"the capture has no request #{options.message}, and no answer of that number to one")


def _check_names(session: Session, options: ReproductionOptions) -> None:
    names = sorted({worker.name for worker in session.workers if worker.name is not None})
    for name in (*options.roles, *options.live):
        if name not in names:
            raise PlanError(f"no worker is called {name}: the capture has {', '.join(names) or 'none'}")


def _workers(
    session: Session, made: Reproduction, taken: Iterable[Exchange]
) -> dict[int, tuple[Worker, ...]]:
    """By job: those that take part, and all whose ids are lower than theirs, since ids are places."""
    ends: dict[int, set[str]] = {call.job: set() for call in made.calls.values()}
    for call in taken:
        if call.job in ends:
            ends[call.job] |= {call.caller, call.callee}
    found: dict[int, dict[str, Worker]] = {job: {} for job in sorted(ends)}
    for worker in session.workers:
        if worker.job in found and worker.name is not None:
            found[worker.job].setdefault(worker.name, worker)
    out = {}
    for job, its in found.items():
        last = max(_rank(worker) for name, worker in its.items() if name in ends[job])
        out[job] = tuple(sorted((w for w in its.values() if _rank(w) <= last), key=_rank))
    return out


def _rank(worker: Worker) -> tuple[bool, int, str]:
    return worker.id is None, worker.id or 0, worker.name or ""


MAX_MAKERS = 100
"""RRefs of which one makes the next, that are followed."""


class _Judge(Struct, eq=False):
    """Takes requests in the order in which they began."""

    made: Reproduction
    causes: Causes
    facts: Mapping[int, JobFacts]
    inspection: Inspection
    unwritable: Unwritable
    options: ReproductionOptions
    workers: Mapping[int, Sequence[str]]
    names: Mapping[tuple[int, int | None], str | None]
    """(job, id) → name."""
    skipped: dict[int, Skipped] = field(default_factory=dict)
    by_index: dict[int, Exchange] = field(default_factory=dict)
    deciding: set[int] = field(default_factory=set)
    fetched: dict[tuple[int, str, Id], Exchange] = field(default_factory=dict)
    """(job, owner, RRef) → a fetch that the owner answered."""
    waiting: list[Exchange] = field(default_factory=list)
    """Requests that may use an RRef of their sender whose value only a later fetch tells."""

    def judge(self, call: Exchange) -> None:
        """Decides about one request."""
        if call.kind in HOUSEKEEPING or call.kind == MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ:
            return
        if call.kind in FETCHES and call.response is not None and is_whole(call.response):
            rref = rref_of(call.request)
            if rref is not None:
                self.fetched.setdefault((call.job, call.callee, rref), call)
        self.waiting.append(call)

    def finish(self) -> None:
        """Decides; only now all fetches are known."""
        self.by_index = {call.index: call for call in self.waiting}
        for call in self.waiting:
            if call.kind == MessageType.BACKWARD_AUTOGRAD_REQ:
                self._gradient(call)
            else:
                self._own(call)
        self._drop_blocked()
        self.made.skipped = tuple(self.skipped[index] for index in sorted(self.skipped))
        self.made.globals = self.inspection.uses()

    # --- calls ----------------------------------------------------------------------------------------------

    def _own(self, call: Exchange) -> None:
        """Decides about a call, but first about those that made its RRefs: they may have begun later on the
        wire, since each pipe has its own pace."""
        if not self.causes.own(call.index) or call.index in self.made.calls or call.index in self.skipped:
            return
        for rref in rrefs_in(call.request):
            maker = self.facts[call.job].makers.get(rref)
            if maker is not None and maker.request in self.by_index and maker.request != call.index:
                self._own_once(self.by_index[maker.request])
        reason = self._against(call)
        if reason is not None:
            self._skip(call, *reason)
            return
        self.made.calls[call.index] = call
        made = created(call.request)
        if made is not None:
            self.made.handles.setdefault((call.job, call.caller, made[0]), RRefHandle("made", call.index))
        if call.response is None:
            return
        if not is_whole(call.response):
            self.made.uncompared[call.index] = "not all bytes of the answer were captured"
            return
        refused = self.inspection.refusal(call.response)
        unwritable = self.unwritable(call.response)
        if refused is None and unwritable is not None:
            self.made.uncompared[call.index] = unwritable
        value = result_of(call.response)
        for rref, place in rref_places(value).items():
            self.made.handles.setdefault(
                (call.job, call.caller, rref), RRefHandle("answer", call.index, place)
            )

    def _own_once(self, call: Exchange) -> None:
        """A hostile capture may have RRefs that make each other."""
        if call.index not in self.deciding and len(self.deciding) < MAX_MAKERS:
            self.deciding.add(call.index)
            self._own(call)
            self.deciding.discard(call.index)

    def _against(self, call: Exchange) -> tuple[str, str] | None:
        request, options = call.request, self.options
        if call.caller in options.live or (options.roles and call.caller not in options.roles):
            return "driver-not-live", f"{call.caller} does nothing of its own here"
        for name in (call.caller, call.callee):
            if name not in self.workers[call.job]:
                return "unsupported", f"nothing gives the name of the worker at {name}"
        if not is_whole(request):
            return "missing-bytes", "bytes of the request were not captured"
        if isinstance(request.rpc.command, UnknownCommand) or not is_request(call.kind):
            return "unsupported", "this type is unknown, or it could not be read"
        if call.context is not None and not self._created_here(call):
            return "unsupported", "its sender did not create its autograd context"
        for rref in rrefs_in(request):
            lacking = self._without(call, rref)
            if lacking is not None:
                return lacking
        refused = self.inspection.refusal(request)
        if refused is not None:
            return "not-allowed", refused
        unwritable = self.unwritable(request)
        return None if unwritable is None else ("unsupported", unwritable)

    def _created_here(self, call: Exchange) -> bool:
        assert call.context is not None
        name = self.names.get((call.job, unpack_id(call.context)[0]))
        return name is None or name == call.caller

    def _without(self, call: Exchange, rref: Id) -> tuple[str, str] | None:
        """Why the sender does not have an RRef in the script."""
        key = (call.job, call.caller, rref)
        title = f"RRef {rref[0]}:{rref[1]}"
        if key in self.made.handles:
            return None
        facts = self.facts[call.job]
        if facts.owners.get(rref) == call.caller:
            fetch = self.fetched.get(key)
            if fetch is not None and self._writable(fetch):
                self.made.handles[key] = RRefHandle("owned", fetch.index)
                self.made.fetched[fetch.index] = fetch
                return None
            return "outside-rpc", f"the value of {title}, which its sender owns, is in no message"
        for carrier in (facts.makers.get(rref), facts.mentions.get(rref)):
            known = self.skipped.get(carrier.request) if carrier is not None else None
            if known is not None:
                return known.code, f"{title} came with #{known.call.index}, which is not in here"
        if rref in facts.makers:
            return "outside-rpc", f"its sender got {title} while it served others"
        return "older-rref", f"{title} was made before the capture began"

    def _writable(self, fetch: Exchange) -> bool:
        """Whether the answer can be written down."""
        assert fetch.response is not None
        allowed = self.inspection.refusal(fetch.response) is None
        return allowed and self.unwritable(fetch.response) is None

    # --- gradients ------------------------------------------------------------------------------------------

    def _gradient(self, call: Exchange) -> None:
        """One that a worker sends for an answer that it got, or that comes back for what it sent."""
        edge = edge_of(call.request)
        carrier = self.facts[call.job].edges.get(edge) if edge is not None else None
        if carrier is None:
            if self.causes.own(call.index):
                self._skip(call, "older-state", "what it is for was sent before the capture began")
            return
        ours, lost = self.made.calls.get(carrier.request), self.skipped.get(carrier.request)
        at = call.caller if carrier.is_answer else call.callee
        if lost is not None and lost.call.caller == at:
            self._skip(call, lost.code, f"it is for #{carrier.request}, which is not in here")
        if ours is None or ours.caller != at:
            return
        message = ours.response if carrier.is_answer else ours.request
        assert message is not None
        command = call.request.rpc.command
        tensors = needing_gradient(message)
        gradient = Gradient(call, ours.index, tensors)
        if not is_whole(call.request):
            self._skip(call, "missing-bytes", "bytes of the gradient were not captured")
        elif not isinstance(command, PropagateGradientsReq) or len(command.grads) != len(tensors):
            self._skip(call, "unsupported", "it does not match the message that it is for")
        elif not carrier.is_answer:
            self.made.back[call.index] = gradient
        elif set(tensors) - set(tensor_places(result_of(message))):
            self._skip(call, "unsupported", "its tensors can't be found in the answer that they came with")
        else:
            self.made.sent[call.index] = gradient

    def _drop_blocked(self) -> None:
        """A pass that lacks a gradient would wait for it: nothing is sent in such a context."""
        blocked = {
            (s.call.job, s.call.caller, s.call.context)
            for s in self.skipped.values()
            if s.call.kind == MessageType.BACKWARD_AUTOGRAD_REQ
        }
        for index, gradient in list(self.made.sent.items()):
            call = gradient.call
            if (call.job, call.caller, call.context) in blocked:
                del self.made.sent[index]
                self._skip(call, "no-gradient", "a gradient that its pass waits for is not in here")
        for index, gradient in list(self.made.back.items()):
            if (gradient.call.job, gradient.call.callee, gradient.call.context) in blocked:
                del self.made.back[index]

    # --- the gate -------------------------------------------------------------------------------------------

    def _skip(self, call: Exchange, code: str, text: str) -> None:
        self.skipped[call.index] = Skipped(call, code, text)
