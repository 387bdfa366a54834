"""What each worker does in a reproducer, step by step, as a person would write it.

In: a `Reproduction`. Out: one `WorkerProgram` per worker that does something of its own: blocks one after the
other, each in an autograd context or in none; where contexts overlapped, lanes of blocks that run as threads
at once. A call whose answer is the next thing that its worker saw is a synchronous one. Steps of different
workers are in order where one had finished before the other began (`after`).

A backward pass begins where the worker sent the first gradient of its own, or asked the owner of an RRef. A
gradient that it sent after another one had come back is linked to the call which that one was for: in the
worker's own graph, of which no message tells, the arguments of that call depended on the answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from rpcinspect.export.reproducer.model import (
    Await,
    Block,
    Gradient,
    GradientLink,
    ProgramPass,
    Reproduction,
    Send,
    Timed,
    Together,
    WorkerProgram,
    needing_gradient,
)
from rpcinspect.pickles.semantic import python_udf
from rpcinspect.replayer.planning.facts import rrefs_in
from rpcinspect.replayer.planning.order import merge
from rpcinspect.replayer.planning.sessions import belongs_to_optimizer
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import GENERAL, PASSES, REMOTE, is_builtin
from rpcinspect.rpc.types import unpack_id
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.identity import WorkerKey


def ends(timed: Sequence[Timed]) -> list[tuple[int, int]]:
    """Returns (end, request) of a worker's steps that other steps may come after, by time."""
    found = []
    for item in timed:
        if isinstance(item.event, ProgramPass):
            ends = [g.call.end_ns for g in item.event.sent] or [item.event.first.end_ns]
            known = [end for end in ends if end is not None]
            if known:
                found.append((max(known), item.event.first.index))
        elif item.event.call.end_ns is not None:
            found.append((item.event.call.end_ns, item.event.call.index))
    return sorted(set(found))


def put_behind(made: Reproduction, timed: Sequence[Timed]) -> None:
    """Calls of several workers that overlapped at one go by their answers, as in a replay.

    Who goes behind a call that began later is sent later, so that what any step waits for is earlier than
    itself, and nobody waits for ever.
    """
    sends = {item.event.call.index: (item, item.event) for item in timed if isinstance(item.event, Send)}
    passes: dict[tuple[int, str], list[int]] = defaultdict(list)
    for item in timed:
        if isinstance(item.event, ProgramPass):
            passes[item.event.first.job, item.event.first.caller].append(item.time_ns)
    latest: dict[tuple[int, str], dict[str, Exchange]] = defaultdict(dict)
    """(job, callee) → caller → its last call."""
    own: dict[tuple[int, str], int] = {}
    """(job, caller) → when its last call is sent."""
    told: set[int] = set()
    for call in merge([call for call in made.calls.values() if call.kind in GENERAL - PASSES]):
        (item, event), key = sends[call.index], (call.job, call.caller)
        if item.time_ns < call.begin_ns:
            continue  # it had to come before a call that uses what it makes
        item.time_ns = max(item.time_ns, own.get(key, 0))
        behind = []
        for other in latest[call.job, call.callee].values():
            begin = sends[other.index][0].time_ns
            overlaps = other.end_ns is None or other.end_ns >= call.begin_ns
            passed = any(item.time_ns <= time <= begin for time in passes[key])
            if other.caller != call.caller and overlaps and not passed:
                behind.append(other.index)
                item.time_ns = max(item.time_ns, begin)
        told.update(behind)
        event = item.event = replace(event, behind=tuple(sorted(behind)))
        sends[call.index] = item, event
        latest[call.job, call.callee][call.caller] = call
        own[key] = item.time_ns
    for index in told:
        item, event = sends[index]
        item.event = replace(event, told=True)


def put_after(timed: Sequence[Timed], others: Sequence[Sequence[tuple[int, int]]]) -> None:
    """Sets for each step the last step of every other worker that was over before, if that is news."""
    known = [-1] * len(others)
    for item in timed:
        if isinstance(item.event, Await):
            continue
        call = item.event.first if isinstance(item.event, ProgramPass) else item.event.call
        begin = min(item.time_ns, call.begin_ns)
        news = []
        for which, its in enumerate(others):
            place = bisect_left(its, (begin, -1)) - 1
            if place > known[which]:
                known[which] = place
                news.append(its[place][1])
        item.event = replace(item.event, after=tuple(news))


def joined(timed: Sequence[Timed]) -> list[Timed]:
    """Calls that are answered before anything else happens become synchronous."""
    out: list[Timed] = []
    for item in timed:
        last = out[-1].event if out else None
        if isinstance(item.event, Await) and isinstance(last, Send) and last.call is item.event.call:
            out[-1].event = replace(last, waits=True)
        else:
            out.append(item)
    return out


def parts_of(timed: Sequence[Timed]) -> list[Block | Together]:
    """Returns one block after the other where contexts do not overlap."""
    spans: dict[int, list[int]] = defaultdict(list)
    for place, item in enumerate(timed):
        if item.context is not None:
            spans[item.context].append(place)
    parts: list[Block | Together] = []
    place = 0
    while place < len(timed):
        end = _cluster_end(timed, spans, place)
        its = timed[place:end]
        contexts = list(dict.fromkeys(item.context for item in its if item.context is not None))
        plain = [item for item in its if item.context is None]
        if len(contexts) > 1 or (contexts and not all(_may_stand_in_context(item) for item in plain)):
            parts.append(_together(its, contexts))
        else:
            context = contexts[0] if contexts else None
            last = parts[-1] if parts else None
            events = [item.event for item in its]
            if context is None and isinstance(last, Block) and last.context is None:
                last.events += events
            else:
                parts.append(Block(context, events))
        place = end
    _number(parts)
    return parts


def _cluster_end(timed: Sequence[Timed], spans: dict[int, list[int]], start: int) -> int:
    """Behind everything that overlaps with what begins at `start`."""
    end, place = start + 1, start
    while place < end:
        context = timed[place].context
        if context is not None:
            end = max(end, spans[context][-1] + 1)
        place += 1
    return end


def _may_stand_in_context(item: Timed) -> bool:
    """Whether it is the same inside of a context's block: torch wraps operators only if a tensor requires
    grad, and an answer may be waited for anywhere."""
    event = item.event
    if isinstance(event, Await):
        return True
    if isinstance(event, ProgramPass):
        return False
    request = event.call.request
    return is_builtin(request.rpc.command) and not needing_gradient(request) and event.call.kind not in REMOTE


def _together(its: Sequence[Timed], contexts: Sequence[int]) -> Together:
    """A lane for each context, in the order in which these were made, and one for what is in none."""
    lanes = [[item for item in its if item.context == context] for context in sorted(contexts)]
    plain = [item for item in its if item.context is None]
    lanes = [joined(lane) for lane in [*lanes, plain] if lane]
    overs = [ends(lane) for lane in lanes]
    for number, lane in enumerate(lanes):
        before = [item.event.after for item in lane]
        put_after(lane, overs[:number] + overs[number + 1 :])
        for item, after in zip(lane, before, strict=True):
            if not isinstance(item.event, Await):
                item.event = replace(item.event, after=(*after, *item.event.after))
    return Together([Block(lane[0].context, [item.event for item in lane]) for lane in lanes])


def _number(parts: Sequence[Block | Together]) -> None:
    """Says where ids of contexts matter: user code was given one, which is to be the same again."""
    expected = 0
    for part in parts:
        for block in [part] if isinstance(part, Block) else part.lanes:
            if block.context is None:
                continue
            number = unpack_id(block.context)[1]
            given = _integers(block)
            if block.context in given and number > expected and number - expected <= MAX_SKIPPED_CONTEXTS:
                block.skips = number
                expected = number
            expected += 1


def _integers(block: Block) -> set[int]:
    """Integers among the arguments of calls to Python functions, other than those of optimizers."""
    found: set[int] = set()
    for event in block.events:
        if (
            isinstance(event, Send)
            and not is_optimizers(event.call)
            and event.call.request.facts.pickle is not None
        ):
            udf = python_udf(event.call.request.facts.pickle.root)
            args = udf.args if udf is not None and type(udf.args) is tuple else ()
            found.update(arg for arg in args if type(arg) is int)
    return found


def is_optimizers(call: Exchange) -> bool:
    """Whether a distributed optimizer made it, one of whose arguments is then the id of a context."""
    return belongs_to_optimizer(call.function)


MAX_SKIPPED_CONTEXTS = 10_000


def programs(made: Reproduction) -> list[WorkerProgram]:
    """Returns a program for each worker that sends something, by job and name."""
    found: list[WorkerProgram] = []
    events: dict[WorkerKey, list[Timed]] = {}
    keys = sorted({(call.job, call.caller) for call in made.calls.values()})
    for key in keys:
        program = WorkerProgram(*key)
        events[key] = _events(made, program)
        found.append(program)
    put_behind(made, [item for its in events.values() for item in its])
    events = {key: joined(sorted(its, key=_time)) for key, its in events.items()}
    overs = {key: ends(its) for key, its in events.items()}
    for program in found:
        key = (program.job, program.worker)
        others = [overs[other] for other in keys if other != key and other[0] == key[0]]
        put_after(events[key], others)
        program.parts = parts_of(events[key])
    return found


def _events(made: Reproduction, program: WorkerProgram) -> list[Timed]:
    """In no order."""
    job, worker = program.job, program.worker
    own = [call for call in made.calls.values() if (call.job, call.caller) == (job, worker)]
    begins = _begins(made, own)
    timed: list[Timed] = []
    for call in own:
        if call.kind == MessageType.RREF_BACKWARD_REQ:
            continue
        timed.append(Timed(begins[call.index], call.index, Send(call, False), call.context))
        if call.end_ns is not None and call.answer is not None:
            timed.append(Timed(call.end_ns, call.answer, Await(call), call.context))
    for context in sorted({call.context for call in own if call.context is not None}):
        for one in _passes(made, program, context, own):
            timed.append(Timed(one.first.begin_ns, one.first.index, one, context))
    return timed


def _time(item: Timed) -> tuple[int, int]:
    return item.time_ns, item.index


def _begins(made: Reproduction, own: Sequence[Exchange]) -> dict[int, int]:
    """When each call began, but not after another one that uses the RRef which it makes: each pipe has its
    own pace, the first message of a pipe comes late."""
    begins = {call.index: call.begin_ns for call in own}
    for call in sorted(own, key=lambda c: (c.begin_ns, c.index), reverse=True):
        for rref in rrefs_in(call.request):
            handle = made.handles.get((call.job, call.caller, rref))
            if handle is not None and handle.how == "made" and handle.request in begins:
                begins[handle.request] = min(begins[handle.request], begins[call.index] - 1)
    return begins


def _passes(
    made: Reproduction, program: WorkerProgram, context: int, own: Sequence[Exchange]
) -> list[ProgramPass]:
    """The passes of one context of a worker, with what they are made of."""
    here = program.job, program.worker, context
    sent = [g for g in made.sent.values() if (g.call.job, g.call.caller, g.call.context) == here]
    back = [g for g in made.back.values() if (g.call.job, g.call.callee, g.call.context) == here]
    triggers = [c for c in own if c.context == context and c.kind == MessageType.RREF_BACKWARD_REQ]
    forward = [c for c in own if c.context == context and c.kind not in PASSES]
    begins: list[tuple[int, int, Gradient | Exchange]] = [(g.call.begin_ns, g.call.index, g) for g in sent]
    begins += [(c.begin_ns, c.index, c) for c in (*triggers, *forward)]
    passes: list[ProgramPass] = []
    given: set[int] = set()
    fresh = True
    for _, _, item in sorted(begins, key=lambda b: b[:2]):
        if isinstance(item, Exchange):
            fresh = True
            if item.kind == MessageType.RREF_BACKWARD_REQ:
                passes.append(ProgramPass(item, len(passes)))
                given, fresh = set(), False
            continue
        if fresh or item.request in given:
            passes.append(ProgramPass(None, len(passes)))
            given, fresh = set(), False
        given.add(item.request)
        passes[-1].roots.append(item)
    _put_back(passes, back)
    for one in passes:
        _link(made, program, one)
    return passes


def _put_back(passes: Sequence[ProgramPass], back: Sequence[Gradient]) -> None:
    """Gradients come back in the pass that began last before them."""
    begins = [one.first.begin_ns for one in passes]
    for gradient in sorted(back, key=lambda g: (g.call.begin_ns, g.call.index)):
        place = bisect_left(begins, gradient.call.arrived_ns) - 1
        if place >= 0:
            passes[place].back.append(gradient)


def _link(made: Reproduction, program: WorkerProgram, one: ProgramPass) -> None:
    """Gradients that were sent after others had come back are linked to the calls which those were for."""
    roots: list[Gradient] = []
    for gradient in one.roots:
        answered = made.calls[gradient.request].end_ns
        candidates = [
            back
            for back in one.back
            if back.call.arrived_ns <= gradient.call.begin_ns
            and answered is not None
            and made.calls[back.request].begin_ns >= answered
        ]
        if not candidates:
            roots.append(gradient)
            continue
        latest = max(candidates, key=lambda back: back.call.arrived_ns)
        link = program.links.setdefault(latest.request, GradientLink(made.calls[latest.request]))
        link.outputs.setdefault(gradient.request, {})[one.number] = gradient
        one.linked.append(gradient)
    one.roots = roots if one.trigger is None else []
    one.lost = roots if one.trigger is not None else []
