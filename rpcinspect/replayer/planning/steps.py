"""One session, request by request: sent, answered or skipped, and why.

In: who is played, the exchanges of the job, their causes, what they depend on, and what is refused. Out: a
decision on every request. Requests are classified in the order in which they began, since each depends only
on earlier ones: on the request that it was nested in, on the message that made its edge, its RRef or its
fork.

A request `happens` if a live worker takes part in it: one that is sent to a live worker, or that a live
worker sends itself (to a played worker, which answers from the capture, or to another live one).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from rpcinspect.replayer.planning.facts import Carrier, JobFacts, edge_of, rrefs_in
from rpcinspect.replayer.planning.model import Decision, ObjectProvision, StandIn
from rpcinspect.replayer.planning.sessions import RoleAssignment
from rpcinspect.rpc.command import UnknownCommand
from rpcinspect.rpc.message import MessageType, is_request
from rpcinspect.rpc.questions import CALLS, FETCHES, HOUSEKEEPING, PASSES, fork_of, is_whole, missing_bytes
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.wrapping import envelope_types
from rpcinspect.run.causes import Causes
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.provenance import Id

PolicyCheck = Callable[[RpcRecord, int | None], str | None]
"""(message, type of the request that it answers) → what the policy refuses in it; None if nothing."""


class StepClassifier(Struct, eq=False):
    """Decides on the requests of one session; call `classify` in the order in which they began."""

    cast: RoleAssignment
    causes: Causes
    facts: JobFacts
    refusal: PolicyCheck
    blocked: Collection[tuple[str, int | None]] = ()
    """(live worker, context) in which a gradient that the worker waits for never comes."""
    beyond: Mapping[int, str] = MappingProxyType({})
    """Request → why the engine can't replay it."""
    joins: bool = False
    """Nothing is sent to live workers in their own name."""
    programs: bool = False
    """A live worker's own program can be played, and get gradients of its calls to its own worker."""
    stand_ins: Mapping[Id, StandIn] = MappingProxyType({})
    """RRef that is older than the capture → the value that could be given for it."""
    substitutes: Mapping[Id, StandIn | ObjectProvision] = MappingProxyType({})
    """RRef that is older than the capture → what its owner gets for it."""
    unasked: PolicyCheck | None = None
    """As `refusal`, for answers that live workers get only if they send what is not expected; nothing has to
    be allowed for these."""
    one_way: Collection[int] = ()
    """Requests whose answer was not captured, if there was one."""
    needed: dict[Id, list[Exchange]] = field(default_factory=lambda: defaultdict(list))
    """RRef that is older than the capture, and not given → the requests that need it."""
    decisions: dict[int, Decision] = field(default_factory=dict)
    calls: dict[int, Exchange] = field(default_factory=dict)
    reached: set[tuple[str, int | None]] = field(default_factory=set)
    """(worker, context) that took part in something that happens."""
    unreached: dict[tuple[str, int | None], str] = field(default_factory=dict)
    """(worker, context) → why something does not take place there, the first time."""
    possible: set[int] = field(default_factory=set)
    """Requests of live workers that are skipped, and may take place nevertheless."""
    told: set[tuple[str, str, int | None]] = field(default_factory=set)
    """(worker, other worker, context): the first has sent the other one something for autograd, and so tells
    it when the context is cleaned up."""
    passes: dict[tuple[str, int | None], list[Exchange]] = field(default_factory=lambda: defaultdict(list))
    """(worker, context) → requests that carried a backward pass there."""

    def classify_all(self, calls: Iterable[Exchange]) -> None:
        """Decides on requests, in the order in which they began; earlier decisions are forgotten."""
        for known in (self.decisions, self.calls, self.reached, self.unreached, self.possible, self.told):
            known.clear()
        self.passes.clear()
        self.needed.clear()
        for call in calls:
            self.classify(call)

    def classify(self, call: Exchange) -> Decision:
        """Decides on a request; earlier ones must have been classified."""
        self.calls[call.index] = call
        if call.kind in PASSES:
            self.passes[call.callee, call.context].append(call)
        decision = self._classified(call)
        self.decisions[call.index] = decision
        for name in (call.caller, call.callee) if call.context is not None else ():
            if decision.happens:
                self.reached.add((name, call.context))
            else:
                self.unreached.setdefault((name, call.context), decision.code or "")
        if decision.happens:
            if MessageType.FORWARD_AUTOGRAD_REQ in envelope_types(call.request):
                self.told.add((call.caller, call.callee, call.context))
            answer = call.response
            if answer is None or MessageType.FORWARD_AUTOGRAD_RESP in envelope_types(answer):
                self.told.add((call.callee, call.caller, call.context))
        return decision

    def _classified(self, call: Exchange) -> Decision:
        if call.control:
            return Decision("skip", "control", "the agents' own call")
        for name in (call.caller, call.callee):
            if name not in (*self.cast.roles, *self.cast.live):
                return Decision("skip", "unsupported", f"nothing gives the name of the worker at {name}")
        played, answered = call.caller in self.cast.roles, call.callee in self.cast.roles
        if call.caller == call.callee:
            return self._self_call(call, played)
        if played and answered:
            return Decision("skip", "both-played", f"{call.caller} and {call.callee} are both played")
        return self._to_live(call) if played else self._from_live(call, answered)

    # --- requests of live workers ---------------------------------------------------------------------------

    def _from_live(self, call: Exchange, answered: bool) -> Decision:
        decision = self._expected(call, answered)
        if decision.action == "answer" or decision.happens:
            return decision
        cause = self._cause(call)
        causes = [one for one in self.causes.of(call.index)[0] if self.happens(one) or one in self.possible]
        if cause is not None and self.happens(cause):
            causes = []  # that is not why it is skipped
        if causes:
            self.possible.add(call.index)
            decision = replace(decision, text=f"{decision.text}, unless it is part of #{causes[0]}")
        if not answered:
            return decision
        lacking = self._unanswerable(call)
        if not causes:
            return decision if lacking is not None else replace(decision, spare="equal")
        if lacking is not None:
            return replace(decision, text=f"{decision.text}, and then: {lacking}")
        return replace(decision, spare="like", text=f"{decision.text}: answered if it comes")

    def _unanswerable(self, call: Exchange) -> str | None:
        """Why the captured answer can't be given to a live worker that sends a request all the same: what
        caused it is not always certain, and what a worker sends here is not always what it sent there."""
        answer = call.response
        if call.index in self.one_way:
            return NO_ANSWER
        beyond = self._beyond_engine(call)
        if beyond is not None or answer is None:
            return beyond
        if not is_whole(answer):
            return _missing(answer, "the answer")
        refused = (self.unasked or self.refusal)(answer, call.kind)
        return None if refused is None else f"the answer: {refused}"

    def _expected(self, call: Exchange, answered: bool) -> Decision:
        cause = self._cause(call)
        if cause is None:
            return Decision("skip", "driver-not-live", f"{call.caller}'s own program is not replayed")
        parent = self.decisions.get(cause)
        if parent is None or not parent.happens:
            why = f"#{cause}, from which it follows, is skipped"
            return Decision("skip", "driver-not-live" if parent is None else parent.code, why)
        carrier = self._carrier(call)
        lacking = self._without(carrier, "this gradient is for") if carrier is not None else None
        if lacking is None and call.kind == MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ:
            lacking = self._unknown_context(call.caller, call.context)
            if lacking is None and (call.caller, call.callee, call.context) not in self.told:
                code = self.unreached.get((call.caller, call.context), "older-state")
                text = f"{call.caller} sends {call.callee} nothing else of this context here"
                lacking = Decision("skip", code, text)
        if lacking is not None:
            return lacking
        if not answered:
            text = f"{call.caller} sends it itself while it serves #{cause}"
            return Decision("skip", "nested-in-answer", text, happens=True)
        beyond = self._beyond_engine(call)
        if beyond is not None:  # what runs no Python of ours, the agent answers by itself
            return Decision("skip", "unsupported", beyond, happens=call.kind != MessageType.PYTHON_CALL)
        if call.index in self.one_way:
            return Decision("skip", "missing-bytes", NO_ANSWER)
        if call.response is None:
            return Decision("answer", text="it was never answered", happens=True)
        if not is_whole(call.response):
            return Decision("skip", "missing-bytes", _missing(call.response, "the answer"))
        refused = self.refusal(call.response, call.kind)
        if refused is not None:
            return Decision("skip", "not-allowed", f"the answer: {refused}")
        return Decision("answer", happens=True)

    def _cause(self, call: Exchange) -> int | None:
        """The request that makes a live worker send this one: any that happens is enough for a gradient."""
        parent = self.causes.parents.get(call.index)
        gradient = call.kind == MessageType.BACKWARD_AUTOGRAD_REQ
        its_program = parent is None and call.caller != call.callee
        if its_program or not gradient or (parent is not None and self.happens(parent)):
            return parent
        for other in self.passes[call.caller, call.context]:
            if other.arrived_ns <= call.begin_ns and self.happens(other.index):
                return other.index
        return parent

    # --- requests of played workers -------------------------------------------------------------------------

    def _to_live(self, call: Exchange) -> Decision:
        request = call.request
        cut = Decision("skip", "missing-bytes", _missing(request, "the request"))
        if isinstance(request.rpc.command, UnknownCommand) or not is_request(call.kind):
            if missing_bytes(request):
                return cut
            return Decision("skip", "unsupported", "this type is unknown, or it could not be read")
        nested = self._nested(call)
        if nested is not None:
            return nested
        if not is_whole(request):
            return cut
        lacking = self._lacking(call)
        if lacking is not None:
            return lacking
        beyond = self._beyond_engine(call)
        if beyond is not None:
            return Decision("skip", "unsupported", beyond)
        refused = self.refusal(request, None)
        if refused is not None:
            return Decision("skip", "not-allowed", refused)
        gradient = call.kind == MessageType.BACKWARD_AUTOGRAD_REQ and call.response is not None
        if gradient and (call.callee, call.context) in self.blocked:
            text = f"{call.callee} waits in this context for another gradient, which is not sent"
            return Decision("skip", "no-gradient", text)
        return Decision("send", text=self._by_stand_ins(call), happens=True)

    def _by_stand_ins(self, call: Exchange) -> str | None:
        """What of a request is not the captured one."""
        used = [self.substitutes[rref] for rref in rrefs_in(call.request) if rref in self.substitutes]
        if not used:
            return None
        if call.kind in FETCHES and isinstance(used[0], StandIn) and used[0].request == call.index:
            return f"{used[0].text}: the same value by construction"
        return "; ".join(one.text for one in used)

    def _beyond_engine(self, call: Exchange) -> str | None:
        """Why the engine can't replay a request, or the message that a gradient is for."""
        if call.index in self.beyond:
            return self.beyond[call.index]
        carrier = self._carrier(call)
        known = None if carrier is None else self.decisions.get(carrier.request)
        if carrier is not None and known is not None and known.code == "unsupported":
            return f"this gradient is for #{carrier.request}: {known.text}"
        return None

    def _carrier(self, call: Exchange) -> Carrier | None:
        """The forward message that a gradient is for, where it was captured."""
        edge = edge_of(call.request)
        return None if edge is None else self.facts.edges.get(edge)

    def _nested(self, call: Exchange) -> Decision | None:
        """A played worker sends nothing while it serves a live one: the captured answer has it all."""
        cause = self.causes.parents.get(call.index)
        request = None if cause is None else self.calls.get(cause)
        if cause is None or request is None or not self.happens(cause):
            return None
        if call.kind == MessageType.BACKWARD_AUTOGRAD_REQ and request.kind in PASSES:
            return None  # a gradient that the live worker waits for; its edge decides
        text = f"{call.caller} sent it while it served #{cause}, which is answered from the capture"
        return Decision("skip", "nested-in-answer", text)

    def _unknown_context(self, worker: str, context: int | None) -> Decision | None:
        """Whether a worker does not have the context that is to be cleaned up, and why."""
        if context is None or (worker, context) in self.reached:
            return None
        code = self.unreached.get((worker, context), "older-state")
        return Decision("skip", code, f"nothing of this context reaches {worker} here")

    def _lacking(self, call: Exchange) -> Decision | None:
        """What the request builds on and the live workers do not have."""
        if call.kind == MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ:
            return self._unknown_context(call.callee, call.context)
        if edge_of(call.request) is not None:
            carrier = self._carrier(call)
            if carrier is not None:
                return self._without(carrier, "this gradient is for")
            text = "the message that this gradient is for was sent before the capture began"
            return Decision("skip", "older-state", text)
        missing = [
            one for rref in rrefs_in(call.request) if (one := self._lacking_rref(rref, call)) is not None
        ]
        if missing:
            return missing[0]
        fork = fork_of(call.request) if call.kind in HOUSEKEEPING else None
        if fork is None or call.kind == MessageType.RREF_FORK_REQUEST:
            return None
        carrier = self.facts.forks.get(fork)
        deleted = call.kind == MessageType.RREF_USER_DELETE
        if carrier is not None:
            return self._without(carrier, "this fork came with")
        if deleted and self.substitutes.keys() >= set(rrefs_in(call.request)):
            return None  # the owner was told of it
        return self._unknown_fork(fork, rrefs_in(call.request))

    def _unknown_fork(self, fork: Id, rrefs: Sequence[Id]) -> Decision:
        """A fork that no message is known to have brought: it is not older than its RRef."""
        name = f"fork {fork[0]}:{fork[1]}"
        makers = [self.facts.makers[rref].request for rref in rrefs if rref in self.facts.makers]
        if makers:
            text = f"no message that could be read has brought {name} of the RRef that #{makers[0]} makes"
            return Decision("skip", "unsupported", text)
        return Decision("skip", "older-rref", f"{name} was made before the capture began")

    def _lacking_rref(self, rref: Id, user: Exchange) -> Decision | None:
        """Whether a live owner has no value under this id; notes who needs one."""
        facts = self.facts
        owner = facts.owners.get(rref)
        if owner is None or owner in self.cast.roles:
            return None  # a played owner has nothing but its captured answers, which come by themselves
        maker = facts.makers.get(rref)
        if maker is not None:
            return self._without(maker, f"RRef {rref[0]}:{rref[1]} is made by")
        first = facts.mentions.get(rref)
        if first is not None and first.sender == owner:
            return self._without(first, f"RRef {rref[0]}:{rref[1]} came with")
        if rref in self.substitutes:
            return None
        if user.kind not in HOUSEKEEPING:
            self.needed[rref].append(user)
        text = f"RRef {rref[0]}:{rref[1]} of {owner} was made before the capture began"
        if rref in self.stand_ins:
            text += f"; --stand-ins makes one from #{self.stand_ins[rref].message}"
        return Decision("skip", "older-rref", text)

    def _without(self, carrier: Carrier, what: str) -> Decision | None:
        """A skip for the reason of the message that this one builds on, if that one does not take place."""
        known = self.decisions.get(carrier.request)
        if known is None or known.happens:
            return None
        name = f"the answer to #{carrier.request}" if carrier.is_answer else f"#{carrier.request}"
        return Decision("skip", known.code or "unsupported", f"{what} {name}, which is skipped")

    # --- calls to oneself -----------------------------------------------------------------------------------

    def _self_call(self, call: Exchange, played: bool) -> Decision:
        name = call.caller
        if played:
            return Decision("skip", "self-call", f"{name} calls itself and is played here")
        alone = len(self.cast.live) == 1 and not self.joins
        carrier = self._carrier(call)
        if carrier is not None and self._is_sent(carrier.request):
            return self._from_live(call, True) if self.is_played(carrier) else self._to_live(call)
        cause = self.causes.parents.get(call.index)
        if cause is not None:
            if self.happens(cause):
                text = f"{name} calls itself while it serves #{cause}"
                return Decision("skip", "nested-in-answer", text, happens=True)
            return Decision("skip", "driver-not-live", f"#{cause}, from which it follows, is skipped")
        plain = call.kind in CALLS | FETCHES and (call.context is None or self.programs)
        if alone and plain:
            decision = self._to_live(call)
            return decision if decision.action == "skip" else Decision("send", happens=True)
        return Decision("skip", "self-call", f"{name}'s own program calls itself")

    def is_played(self, carrier: Carrier) -> bool:
        """Returns whether a message is a request that is sent for a live worker's own program."""
        return not carrier.is_answer and carrier.sender == carrier.receiver and self._is_sent(carrier.request)

    def _is_sent(self, request: int) -> bool:
        decision = self.decisions.get(request)
        return decision is not None and decision.action == "send"

    def happens(self, index: int) -> bool:
        """Whether a live worker takes part in a request that was judged."""
        decision = self.decisions.get(index)
        return decision is not None and decision.happens


def blocked_contexts(steps: StepClassifier) -> set[tuple[str, int]]:
    """(live worker, context) in which a worker waits for a gradient that does not come in this replay,
    although its pass came to an end in the capture. A pass that did not end there is replayed as it was.
    """
    calls, facts = steps.calls, steps.facts
    ended: dict[tuple[str, int], int] = {}
    """(worker, context) → when the last gradient came whose pass ended without an error."""
    for edge, indexes in facts.gradients.items():
        for call in (calls[index] for index in indexes if index in calls):
            if call.response is not None and call.response.rpc.message.type != MessageType.EXCEPTION:
                key = (call.callee, edge[0])
                ended[key] = max(call.begin_ns, ended.get(key, call.begin_ns))
    found: set[tuple[str, int]] = set()
    for edge, carrier in facts.edges.items():
        played = carrier.sender in steps.cast.roles or steps.is_played(carrier)
        waits = not played and steps.happens(carrier.request)
        if not waits or any(steps.happens(index) for index in facts.gradients.get(edge, ())):
            continue
        key = (carrier.sender, edge[0])
        if ended.get(key, -1) > calls[carrier.request].begin_ns:
            found.add(key)
    return found


NO_ANSWER = "its answer was not captured, nor was any other of that connection"


def _missing(record: RpcRecord, what: str) -> str:
    count = missing_bytes(record)
    if count:
        return f"{count:,} bytes of {what} were not captured"
    return f"which bytes are the tensors of {what} can't be told"
