"""Some requests and all that they depend on: of one autograd context (`--context N`), or any (`diff
--shrink`).

In: exchanges, causes, facts of the jobs. Out: the indexes of the requests to plan for. Taken along: what a
request was nested in and what was nested in it, the remote calls that made its RRefs and their housekeeping,
and, for every worker that is reached, the earlier calls that changed its state, with the contexts whose
gradients they may have used: an optimizer's step, or a call that knows of a context of which its callee had
got gradients. Of a context all is taken (`select`), or only where something that is taken may depend on its
gradients (`needed`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from rpcinspect.checks.stale import context_of_step
from rpcinspect.pickles.tree import walk
from rpcinspect.replayer.planning.facts import JobFacts, rrefs_in
from rpcinspect.replayer.planning.sessions import PlanError, belongs_to_optimizer, changes_state
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import GENERAL, HOUSEKEEPING, PASSES, arguments_of, fork_of, function_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.causes import Causes
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.provenance import Id


def select(
    context: int, calls: Sequence[Exchange], causes: Causes, facts: Mapping[int, JobFacts]
) -> frozenset[int]:
    """Indexes of the requests that a replay of one context needs. Raises `PlanError` where there is no such
    context."""
    selection = _Selection(calls, causes, facts)
    its = [i for (_, number), its in selection.of_context.items() if number == context for i in its]
    found = frozenset(selection.closure(its))
    if not found:
        raise PlanError(f"the capture has no autograd context {context}")
    return found


def needed(
    indexes: Iterable[int], calls: Sequence[Exchange], causes: Causes, facts: Mapping[int, JobFacts]
) -> frozenset[int]:
    """Returns the smallest set of requests that has these and everything that its requests depend on. An
    agent's own call depends on nothing."""
    roots = frozenset(indexes)
    return frozenset(_Selection(calls, causes, facts, least=True).closure(roots)) | roots


class _Selection:
    def __init__(
        self,
        calls: Sequence[Exchange],
        causes: Causes,
        facts: Mapping[int, JobFacts],
        *,
        least: bool = False,
    ) -> None:
        """`least`: of a context and of an RRef's housekeeping, only what others depend on is taken."""
        self._least = least
        self._calls = {call.index: call for call in sorted(calls, key=_begin) if not call.control}
        self._causes = causes
        self._facts = facts
        self.of_context: dict[tuple[int, int], list[int]] = defaultdict(list)
        """(job, context) → its requests."""
        self._of_rref: dict[tuple[int, Id], list[int]] = defaultdict(list)
        self._settling: dict[int, list[int]] = defaultdict(list)
        """Request that brought a fork → the requests that make the fork known to its owner and its parent."""
        self._changes: dict[tuple[int, str], list[Exchange]] = defaultdict(list)
        """(job, worker) → calls that change its state, in the order in which they began."""
        self._passes: dict[tuple[int, str], dict[int, int]] = defaultdict(dict)
        """(job, worker) → contexts of which a backward pass reached it → when one first did."""
        for call in self._calls.values():
            if call.context is not None:
                self.of_context[call.job, call.context].append(call.index)
                if call.kind in PASSES:
                    self._passes[call.job, call.callee].setdefault(call.context, call.begin_ns)
            for rref in rrefs_in(call.request):
                self._of_rref[call.job, rref].append(call.index)
            if call.kind in SETTLING and (carrier := self._carrier(call)) is not None:
                self._settling[carrier].append(call.index)
            if changes_state(call):
                self._changes[call.job, call.callee].append(call)
        self._covered: dict[tuple[int, str], int] = {}
        """(job, worker) → until when the changes of its state are taken along."""
        self._taken_rrefs: set[tuple[int, Id]] = set()

    def closure(self, roots: Iterable[int]) -> set[int]:
        """Returns requests with all that they need."""
        taken: set[int] = set()
        todo = list(roots)
        while todo:
            index = todo.pop()
            if index in taken or index not in self._calls:
                continue
            taken.add(index)
            todo += self._needs(self._calls[index])
        return taken

    def _needs(self, call: Exchange) -> list[int]:
        needs = list(self._causes.children.get(call.index, ()))
        links = [self._causes.parents.get(call.index)]
        if self._least:
            needs += self._settling[call.index]
            links.append(self._carrier(call))
        needs += [index for index in links if index is not None]
        uses_context = not self._least or call.kind in PASSES or call.kind in CLEANUPS
        used = [call.context if uses_context else None, optimizer_context(call.request)]
        for context in (*used, *self._may_use(call)):
            if context is not None:
                needs += self._context(call.job, context)
        for record in (call.request, call.response):
            for rref in rrefs_in(record) if record is not None else ():
                needs += self._rref(call.job, rref)
        if call.kind in GENERAL | PASSES:
            since = self._covered.get((call.job, call.callee), -1)
            self._covered[call.job, call.callee] = max(since, call.begin_ns)
            changes = self._changes[call.job, call.callee]
            first, last = (bisect_left(changes, time, key=_begin) for time in (since, call.begin_ns))
            needs += [c.index for c in changes[first:last]]
        return needs

    def _may_use(self, call: Exchange) -> Iterator[int]:
        """Contexts whose gradients the callee had got, and of which a call tells it: the one that it is made
        in, else those whose number it is given, as for `dist_autograd.get_gradients`."""
        reached = self._passes.get((call.job, call.callee))
        if not self._least or call.kind not in GENERAL or not reached:
            return
        told = {call.context}
        if call.context is None:
            told = {value for value in walk(arguments_of(call.request) or ()) if type(value) is int}
        for context, since_ns in reached.items():
            if since_ns < call.begin_ns and context in told:
                yield context

    def _context(self, job: int, context: int) -> list[int]:
        its = self.of_context.pop((job, context), [])
        return [i for i in its if self._calls[i].kind not in CLEANUPS] if self._least else its

    def _carrier(self, call: Exchange) -> int | None:
        """The request with which the fork came, or for which it was answered, that a request settles or
        deletes."""
        fork = fork_of(call.request) if call.kind in HOUSEKEEPING else None
        carrier = None if fork is None else self._facts[call.job].forks.get(fork)
        return None if carrier is None or carrier.request == call.index else carrier.request

    def _rref(self, job: int, rref: Id) -> list[int]:
        """Who makes an RRef, and its housekeeping."""
        if (job, rref) in self._taken_rrefs:
            return []
        self._taken_rrefs.add((job, rref))
        maker = self._facts[job].makers.get(rref)
        first = self._facts[job].mentions.get(rref)
        made = [carrier.request for carrier in (maker, first) if carrier is not None]
        if self._least:
            return made
        kept = [i for i in self._of_rref[job, rref] if self._calls[i].kind in KEEPING]
        return made + kept


def optimizer_context(record: RpcRecord) -> int | None:
    """The context whose gradients a distributed optimizer's step uses."""
    return context_of_step(record) if belongs_to_optimizer(function_of(record)) else None


_begin = attrgetter("begin_ns")
CLEANUPS = frozenset({MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ})
SETTLING = frozenset({MessageType.RREF_FORK_REQUEST, MessageType.RREF_CHILD_ACCEPT})
KEEPING = frozenset({MessageType.RREF_USER_DELETE, MessageType.RREF_FORK_REQUEST})
