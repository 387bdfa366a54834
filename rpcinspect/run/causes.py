"""Why each request was sent: by a worker of its own, or while it served another worker's request.

In: the exchanges. Out: for each request the one that explains it (its *parent*: a request that its sender was
serving), none where the sender acted of its own; and every case in which the capture allows more than one
answer.

What the wire says: a request can be nested only in one that had arrived at its sender and was not answered
yet, and only in one that runs code. Autograd narrows that down, since a function runs in the context of the
request that called it. Three kinds need no open request: gradients follow from gradients that arrived before
in the same context, a context's clean-up follows from a clean-up that arrived, and RRef housekeeping from the
message that brought the fork.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from msgspec import Struct, field

from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import (
    CALLS,
    FETCHES,
    GENERAL,
    HOUSEKEEPING,
    PASSES,
    REMOTE,
    created,
    fork_of,
    is_builtin,
)
from rpcinspect.rpc.types import unpack_id
from rpcinspect.run.exchanges import Call
from rpcinspect.run.serving import MAX_OPEN, Arrivals, Serving

MAX_RUNS = 1000
"""Of one function, that are looked at for calls which they lack."""


class Ambiguity(Struct, frozen=True):
    """A request for which the capture allows several explanations."""

    message: int
    parents: tuple[int, ...]
    """Requests that it may have been nested in."""
    decided: int | None
    """The one that was chosen; None: its sender is taken to have acted of its own."""
    text: str


class Causes(Struct, frozen=True):
    """The outcome, by the index of requests."""

    parents: dict[int, int]
    """Request → the request while serving which it was sent; what a worker sent of its own is not in it."""
    ambiguities: tuple[Ambiguity, ...]

    def own(self, call: Call) -> bool:
        """Whether the sender acted of its own."""
        return call.index not in self.parents


class _Worker(Struct, eq=False):
    """What one worker of a job sent and received, each in the order of time."""

    sent: list[Call] = field(default_factory=list)
    received: list[Call] = field(default_factory=list)


def explain(calls: Sequence[Call], drivers: Collection[str] = ()) -> Causes:
    """Finds the parent of every request but the agents' own.

    `drivers`: workers that the user names as acting of their own; their ambiguous requests are decided so.
    """
    workers: dict[tuple[int, str], _Worker] = defaultdict(_Worker)
    for call in calls:
        if not call.control:
            workers[call.job, call.caller].sent.append(call)
            workers[call.job, call.callee].received.append(call)
    creators = _names_of_ids(calls)
    judge = _Judge(workers, creators, frozenset(drivers))
    for (job, name), worker in sorted(workers.items()):
        judge.look(job, name, worker)
    judge.decide_calls()
    for (job, name), worker in sorted(workers.items()):
        judge.follow(job, name, worker)
    _cut_circles(judge.parents)
    return Causes(judge.parents, tuple(sorted(judge.ambiguities, key=lambda a: a.message)))


class _Case(Struct, frozen=True):
    """A request and what it may have been nested in."""

    job: int
    name: str
    call: Call
    candidates: list[Call]


class _Judge:
    """Decides; the phases must run in the order of `explain`."""

    def __init__(
        self,
        workers: dict[tuple[int, str], _Worker],
        creators: dict[tuple[int, int], str],
        drivers: frozenset[str],
    ) -> None:
        self._runs: dict[tuple[int, str | None], list[Call]] = defaultdict(list)
        """Requests that ran a function, by the function."""
        self._known_silent: dict[tuple[int, str | None, tuple[int, str | None]], bool] = {}
        self._begins: dict[tuple[int, str, tuple[int, str | None]], list[int]] = defaultdict(list)
        """(job, worker, sign) → when calls of it began, ascending."""
        for (job, name), worker in sorted(workers.items()):
            for call in worker.received:
                self._runs[job, call.function].append(call)
            for call in worker.sent:
                self._begins[job, name, _sign(call)].append(call.begin_ns)
        self.parents: dict[int, int] = {}
        self.ambiguities: list[Ambiguity] = []
        self._creators = creators
        self._named = drivers
        self._cases: list[_Case] = []
        self._drivers: set[tuple[int, str]] = set()
        """Workers that certainly sent something of their own."""
        self._own_contexts: set[tuple[int, str, int]] = set()
        """(job, worker, context) in which the worker certainly acted of its own."""
        self._own_signs: Counter[tuple[int, str | None]] = Counter()
        self._nested_signs: Counter[tuple[int, str | None]] = Counter()

    def look(self, job: int, name: str, worker: _Worker) -> None:
        """Collects candidates; a request without any was sent of the worker's own."""
        general = [call for call in worker.sent if call.kind in GENERAL]
        serving = Serving(worker.received)
        candidates: dict[int, list[Call]] = {}
        for call in sorted(general, key=_begin):
            serving.at(call.begin_ns)
            candidates[call.index] = serving.latest(self._contexts_around(job, name, call), call)
        for call in general:
            if candidates[call.index]:
                self._cases.append(_Case(job, name, call, candidates[call.index]))
                continue
            self._drivers.add((job, name))
            self._own_signs[_sign(call)] += 1
            if call.context is not None:
                self._own_contexts.add((job, name, call.context))

    def _contexts_around(self, job: int, name: str, call: Call) -> Sequence[int | None] | None:
        """The contexts in which a function can run that sends a call; None among them is outside of all, and
        alone any.
        """
        inner = call.context
        if inner is not None:
            here = self._creators.get((job, unpack_id(inner)[0])) == name
            return (inner, None) if here else (inner,)
        if call.kind in REMOTE | FETCHES | CALLS and not is_builtin(call.request.rpc.command):
            return (None,)  # in a context it would have been wrapped
        return None

    def decide_calls(self) -> None:
        """Decides every case: the certain ones first, since the others are judged by what they look like."""
        open_cases: list[_Case] = []
        for case in self._cases:
            if case.call.context is not None and not self._created_here(case):
                self._nest(case, "")  # only the request whose context it is can have sent it
            else:
                open_cases.append(case)
        for case in open_cases:
            if not _held(case) or self._like_own(case):
                self._drivers.add((case.job, case.name))
        for case in open_cases:
            if (case.job, case.name) not in self._drivers and case.name not in self._named:
                self._nest(case, "" if len(case.candidates) == 1 else _serving(case))
        left = [
            case for case in open_cases if (case.job, case.name) in self._drivers or case.name in self._named
        ]
        for case in left:
            if not _held(case):
                self._own_signs[_sign(case.call)] += 1  # before the others, which are judged by it
        for case in left:
            self._decide(case)

    def _like_own(self, case: _Case) -> bool:
        """Whether other workers send the same of their own, and functions that would have to send it here are
        seen not to send it elsewhere. A function that calls itself elsewhere proves nothing.
        """
        sign = _sign(case.call)
        if case.call.kind not in CALLS or not self._own_signs[sign] or self._nested_signs[sign]:
            return False
        functions = {(case.job, q.function) for q in case.candidates}
        if (case.job, case.call.function) in functions:
            return False
        return all(self._silent(job, function, sign) for job, function in functions)

    def _silent(self, job: int, function: str | None, sign: tuple[int, str | None]) -> bool:
        """Whether a run of the function came to its end without that a call of this sign began meanwhile."""
        key = (job, function, sign)
        known = self._known_silent.get(key)
        if known is None:
            known = any(
                run.answered_ns is not None
                and not self._began(job, run.callee, sign, run.arrived_ns, run.answered_ns)
                for run in self._runs[job, function][:MAX_RUNS]
            )
            self._known_silent[key] = known
        return known

    def _began(self, job: int, worker: str, sign: tuple[int, str | None], first: int, last: int) -> bool:
        """Whether a worker began a call of this sign within a span of time."""
        times = self._begins[job, worker, sign]
        at = bisect_left(times, first)
        return at < len(times) and times[at] <= last

    def _decide(self, case: _Case) -> None:
        call = case.call
        if call.context is not None and (case.job, case.name, call.context) in self._own_contexts:
            return  # the context is the worker's own thread's
        who = _serving(case)
        if case.name in self._named:
            self._note(case, None, f"{who}; it is played by name, so this counts as its own")
            return
        sign = _sign(call)
        if not _held(case):
            self._note(case, None, f"{who}, but ends later: taken for its own")
        elif self._own_signs[sign] and not self._nested_signs[sign]:
            self._note(case, None, f"{who}; like calls elsewhere it is taken for its own")
        else:
            self._nest(case, f"{who}, and acts of its own too: taken for nested")

    def _nest(self, case: _Case, doubt: str) -> None:
        parent = max(_held(case) or case.candidates, key=lambda q: q.arrived_ns)
        self.parents[case.call.index] = parent.index
        if doubt:
            self._note(case, parent.index, doubt)
        else:
            self._nested_signs[_sign(case.call)] += 1

    def _note(self, case: _Case, decided: int | None, text: str) -> None:
        parents = tuple(q.index for q in case.candidates)
        self.ambiguities.append(Ambiguity(case.call.index, parents, decided, text))

    def _created_here(self, case: _Case) -> bool:
        assert case.call.context is not None
        return self._creators.get((case.job, unpack_id(case.call.context)[0])) == case.name

    # --- what follows from messages, not from open requests -------------------------------------------------

    def follow(self, job: int, name: str, worker: _Worker) -> None:
        """Gradients, clean-up and RRef housekeeping of one worker."""
        self._follow_gradients(worker)
        self._follow_cleanup(job, name, worker)
        self._follow_forks(worker, (job, name) in self._drivers)

    def _follow_gradients(self, worker: _Worker) -> None:
        """Gradients follow from those that came before, except where the worker itself began the pass."""
        arrived: dict[int, list[Call]] = defaultdict(list)
        for call in worker.received:
            if call.kind in PASSES and call.context is not None:
                arrived[call.context].append(call)
        sent: dict[int, list[Call]] = defaultdict(list)
        for call in worker.sent:
            if call.kind == MessageType.BACKWARD_AUTOGRAD_REQ and call.context is not None:
                sent[call.context].append(call)
        came = {context: Arrivals(arrived.get(context, ())) for context in sent}
        begun = {context: its for context, its in sent.items() if came[context].latest(its[0]) is None}
        calls: dict[int, list[Call]] = defaultdict(list)
        for call in worker.sent:
            if call.context in begun and call.kind in GENERAL:
                calls[call.context].append(call)
        serving = Serving(worker.received)
        for context, gradients in sorted(begun.items(), key=lambda item: item[1][0].begin_ns):
            serving.at(gradients[0].begin_ns)
            holder = self._holder(context, calls[context], serving)
            for call in gradients if holder is not None else ():
                self.parents[call.index] = holder  # type: ignore[assignment]
        for context, gradients in sent.items():
            for call in gradients if context not in begun else ():
                latest = came[context].latest(call)
                if latest is not None:
                    self.parents[call.index] = latest.index

    def _holder(self, context: int, calls: Sequence[Call], serving: Serving) -> int | None:
        """The request whose function began the pass: the one that the context's calls were nested in."""
        for call in calls:
            parent = self.parents.get(call.index)
            if parent is None or parent in serving:
                return parent
        first = serving.first_in(context)
        return None if first is None else first.index

    def _follow_cleanup(self, job: int, name: str, worker: _Worker) -> None:
        kind = MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ
        arrived: dict[int, Call] = {}
        for call in worker.received:
            if call.kind == kind and call.context is not None:
                arrived.setdefault(call.context, call)
        begun = {c.context: self.parents.get(c.index) for c in reversed(worker.sent) if c.kind in GENERAL}
        for call in worker.sent:
            if call.kind != kind or call.context is None:
                continue
            if self._creators.get((job, unpack_id(call.context)[0])) == name:
                parent = begun.get(call.context)
            else:
                parent = arrived[call.context].index if call.context in arrived else None
            if parent is not None:
                self.parents[call.index] = parent

    def _follow_forks(self, worker: _Worker, driver: bool) -> None:
        """A fork's housekeeping has the cause of the message that brought or made the fork."""
        brought: dict[tuple[int, int], tuple[Call, bool]] = {}
        for call in worker.received:
            for fork in call.request.facts.forks:
                brought.setdefault(fork.fork_id, (call, True))
        for call in worker.sent:
            made = created(call.request)
            if made is not None:
                brought.setdefault(made[1], (call, False))
            for fork in call.response.facts.forks if call.response is not None else ():
                brought.setdefault(fork.fork_id, (call, False))
        calls = Arrivals([call for call in worker.received if call.kind in CALLS])
        for call in worker.sent:
            fork_id = fork_of(call.request) if call.kind in HOUSEKEEPING else None
            if fork_id is None:
                continue
            if fork_id not in brought:
                last = None if driver else calls.last(call)
                if last is not None:
                    # It came in a form that nobody knows as an RRef's: with the last call, most likely.
                    self.parents[call.index] = last.index
                continue
            bringer, served = brought[fork_id]
            parent = bringer.index if served else self.parents.get(bringer.index)
            if parent is not None:
                self.parents[call.index] = parent


def _contains(request: Call, call: Call) -> bool:
    """Whether the call was over before the request was answered, as it is where a function waits for it."""
    if call.kind in REMOTE:
        return True  # nobody has to wait for a remote call
    return request.answered_ns is None or call.end_ns is None or call.end_ns <= request.answered_ns


def _held(case: _Case) -> list[Call]:
    """The candidates that a function waiting for the call may have answered."""
    return [request for request in case.candidates if _contains(request, case.call)]


def _serving(case: _Case) -> str:
    return f"{case.name} sends #{case.call.index} while it serves {_list(case.candidates)}"


def _begin(call: Call) -> int:
    return call.begin_ns


def _sign(call: Call) -> tuple[int, str | None]:
    return call.kind, call.function


def _list(calls: Sequence[Call]) -> str:
    shown = ", ".join(f"#{call.index}" for call in calls[:4])
    if len(calls) <= 4:
        return shown
    return f"{shown} and {len(calls) - 4} more{', or even more' if len(calls) >= MAX_OPEN else ''}"


def _cut_circles(parents: dict[int, int]) -> None:
    """Where requests would follow from each other in a circle, which damaged times and ids can say, the first
    of them follows from none. Everybody else walks from parent to parent.
    """
    settled: set[int] = set()
    for start in sorted(parents):
        chain: dict[int, None] = {}
        at = start
        while at in parents and at not in settled and at not in chain:
            chain[at] = None
            at = parents[at]
        if at in chain:
            steps = list(chain)
            del parents[min(steps[steps.index(at) :])]
        settled.update(chain)


def _names_of_ids(calls: Sequence[Call]) -> dict[tuple[int, int], str]:
    """(job, worker id) → label, from the sender's id in autograd envelopes."""
    found: dict[tuple[int, int], str] = {}
    for call in calls:
        for record, name in ((call.request, call.caller), (call.response, call.callee)):
            for envelope in record.rpc.envelopes if record is not None else ():
                sender = getattr(envelope, "from_worker_id", None)
                if sender is not None:
                    found.setdefault((call.job, sender), name)
    return found
