"""`leaked-context` and `leaked-rref`: what nobody cleaned up although the run went on, or came to its end.

An autograd context is leaked on every worker that took part in it and got no cleanup, unless its creator is
still inside of it: a backward pass that hangs is another finding. Whoever sent a worker a message of the
context passes the cleanup on to it, so that a relay that left is another cause than a creator who stays. An
RRef may live as long as the job, so that one is leaked only if a fork was left when the pipes to its owner
were closed, and not where all of a job was cut off in the middle of its work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from rpcinspect.checks.check import MAX_INDEXES, Check
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.session.contexts import first_ns, is_missing, passes
from rpcinspect.session.model import NONE, AutogradContext, Finding, RRef, Session
from rpcinspect.session.words import counted, packed, several, unique


class LeakedContexts(Check):
    WHOLE_JOB = True

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        named = {(worker.job, worker.name) for worker in evidence.session.workers}
        open_contexts = [
            (one, left) for one in evidence.session.contexts if (left := _left_behind(evidence, one, named))
        ]
        begun = passes(evidence.session) if open_contexts else {}
        open_contexts = [
            (one, left)
            for one, left in open_contexts
            if not _hangs(evidence.session, one, begun.get(one.key, ()))
        ]
        givers = _givers(evidence.session, {one.key for one, _ in open_contexts})
        groups: dict[tuple[int, str, tuple[str, ...], tuple[str, ...]], list[AutogradContext]]
        groups = defaultdict(list)
        for context, left in open_contexts:
            for relays, its in _by_relays(evidence, context, left, givers).items():
                groups[context.job, context.creator, its, relays].append(context)
        for (_, creator, left, relays), contexts in groups.items():
            gone = several(relays)
            indexes = sorted({edge.forward for context in contexts for edge in context.edges})
            names = several([packed(context.context_id) for context in contexts])
            yield Finding(
                code="leaked-context",
                severity="warning",
                text=f"{counted(len(contexts), 'autograd context')} of {creator} ({names}) got no cleanup "
                f"on {several(left)}: graph and gradients stay in memory there."
                + (f" {gone} was to pass it on, and left before." if relays else ""),
                remedy=f"Find out why {gone} left: see its log. No other worker passes the cleanup on."
                if relays
                else "Leave every context (with dist_autograd.context()), also after an error, and while "
                "its workers are still there.",
                messages=tuple(indexes[:MAX_INDEXES]),
                workers=unique([creator, *left, *relays]),
            )


def _left_behind(
    evidence: CaptureEvidence, context: AutogradContext, named: set[tuple[int, str | None]]
) -> tuple[str, ...]:
    """The workers of a context that should have got a cleanup and did not."""
    session = evidence.session
    cleaned = {session.destination(int(session.order[index])) for index in context.cleanup}
    left = tuple([w for w in context.workers if w != context.creator and w not in cleaned])
    if not left or any((context.job, worker) not in named for worker in context.workers):
        return ()  # or who is who is not certain
    messages = [index for edge in context.edges for index in (edge.forward, *edge.backward)]
    messages += context.cleanup
    if not messages:
        return ()
    last_ns = max(evidence.end_ns(index) for index in messages)
    # a worker that left took the context with it
    left = tuple(
        w for w in left if not evidence.cut_off(last_ns, until_ns=evidence.left_ns.get((context.job, w)))
    )
    if evidence.damaged_among(context.workers, left):
        return ()
    return left


def _hangs(session: Session, context: AutogradContext, begun: Sequence[int]) -> bool:
    """Whether a backward pass of a context never came to its end."""
    answers = [session.messages.partner[int(session.order[index])] for index in begun]
    if any(answer != NONE and session.provenance.kind_of(answer).failed for answer in answers):
        return False
    began_ns = first_ns(session, begun)
    return NONE in answers or any(is_missing(session, edge, began_ns) for edge in context.edges)


def _givers(
    session: Session, contexts: Collection[tuple[int, int]]
) -> Mapping[tuple[int, int], Mapping[str, tuple[str, ...]]]:
    """(job, context) → worker → who sent it a message of the context that a cleanup follows."""
    found: dict[tuple[int, int], dict[str, tuple[str, ...]]] = defaultdict(dict)
    for row, context in enumerate(session.provenance.context) if contexts else ():
        key = (session.job(row), context)
        if key in contexts:
            its, receiver = found[key], session.destination(row)
            its[receiver] = unique([*its.get(receiver, ()), session.source(row)])
    return found


def _by_relays(
    evidence: CaptureEvidence,
    context: AutogradContext,
    left: Iterable[str],
    givers: Mapping[tuple[int, int], Mapping[str, tuple[str, ...]]],
) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """Those of the workers that somebody was to clean up after, by the relays that left; none, where the
    creator was to do it, or a relay that is there."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    its = givers.get(context.key, {})
    for worker in left:
        senders = its.get(worker, ())
        relays = [one for one in senders if (context.job, one) in evidence.left_ns]
        died = relays if len(relays) == len(senders) and context.creator not in senders else []
        if senders:  # else the requests to it were not captured, and so the cleanup was not
            found[tuple(died)].append(worker)
    return {relays: tuple(workers) for relays, workers in found.items()}


class LeakedRRefs(Check):
    WHOLE_JOB = True

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        groups: dict[tuple[int, str, str], list[tuple[RRef, int]]] = defaultdict(list)
        over: dict[tuple[str, int], bool] = {}
        for rref in evidence.session.rrefs:
            if rref.owner is None or not rref.alive:
                continue
            who = (rref.owner, rref.job)
            if who not in over:
                over[who] = _over(evidence, *who)
            if not over[who]:
                continue
            for fork in rref.alive:
                if fork.begin is not None and fork.holder is not None:
                    groups[rref.job, rref.owner, fork.holder].append((rref, fork.begin))
        for (_, owner, holder), forks in groups.items():
            names = several(unique(f"{r.rref_id[0]}:{r.rref_id[1]}" for r, _ in forks))
            yield Finding(
                code="leaked-rref",
                severity="warning",
                text=f"{counted(len(forks), 'fork')} of RRefs of {owner} ({names}) held by {holder} had not "
                f"been deleted when the connections to {owner} were closed.",
                remedy=f"Drop the RRefs on {holder} before it leaves (del, no reference cycles), and leave "
                "with rpc.shutdown(), which waits for the deletes.",
                messages=tuple(sorted(begin for _, begin in forks[:MAX_INDEXES])),
                workers=unique([owner, holder]),
            )


def _over(evidence: CaptureEvidence, owner: str, job: int) -> bool:
    """Whether every pipe to a worker was closed, after all that was due had come: the agents had agreed to
    shut down, or nothing was sent for some time."""
    pipes = evidence.pipes_to.get((job, owner), ())
    ends = [end for pipe in pipes if (end := evidence.end(pipe)) is not None]
    if not pipes or len(ends) < len(pipes) or any(evidence.damaged(pipe, True) for pipe in pipes):
        return False
    columns = evidence.session.messages
    ours = np.isin(np.asarray(columns.pipe), list(pipes))
    last = int(np.max(np.asarray(columns.end_time_ns)[ours], initial=0))
    began = int(np.min(np.asarray(columns.time_ns)[ours & (np.asarray(columns.control) == 0)], initial=last))
    agreed = bool(np.any(ours & (np.asarray(columns.control) != 0) & (np.asarray(columns.time_ns) > began)))
    return agreed or not evidence.cut_off(last, until_ns=min(end.time_ns for end in ends))
