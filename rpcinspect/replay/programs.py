"""What each worker does in a reproducer, step by step, as a person would write it.

In: a `Reproduction`. Out: one `Program` per worker that does something of its own: blocks one after the
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
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from rpcinspect.causes.calls import Call, is_builtin
from rpcinspect.causes.causality import GENERAL, PASSES, REMOTE
from rpcinspect.replay.order import merge
from rpcinspect.replay.reproduction import Gradient, Reproduction, needing_gradient
from rpcinspect.replay.sessions import OPTIMIZER
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.pickles.semantic import python_udf
from rpcinspect.rpc.types import unpack_id

Key: TypeAlias = tuple[int, str]
"""(job, worker)"""


@dataclass(frozen=True, slots=True)
class Send:
    """A call begins."""

    call: Call
    waits: bool
    """Its answer is the next thing."""
    after: tuple[int, ...] = ()
    """Requests of other workers, of which the answers come first."""
    behind: tuple[int, ...] = ()
    """Requests of other workers to the same one that are sent first: they overlapped, and were answered
    earlier."""
    told: bool = False
    """Others go behind it."""


@dataclass(frozen=True, slots=True)
class Await:
    """The answer to a call is there."""

    call: Call


@dataclass(eq=False, slots=True)
class Pass:
    """A backward pass."""

    trigger: Call | None
    """RRef.backward(); None: the worker begins with outputs of its own calls."""
    number: int
    """In its context, from 0."""
    roots: list[Gradient] = field(default_factory=list)
    linked: list[Gradient] = field(default_factory=list)
    """Sent by the graph itself, see `Link`."""
    back: list[Gradient] = field(default_factory=list)
    """What comes back."""
    after: tuple[int, ...] = ()

    @property
    def first(self) -> Call:
        """What it began with."""
        if self.trigger is not None:
            return self.trigger
        return min((g.call for g in (*self.roots, *self.linked)), key=lambda c: (c.begin_ns, c.index))

    @property
    def sent(self) -> list[Gradient]:
        """All gradients that the script gives, in the order in which they were sent."""
        return sorted((*self.roots, *self.linked), key=lambda g: (g.call.begin_ns, g.call.index))


@dataclass(eq=False, slots=True)
class Link:
    """The arguments of a call depend on the answers to earlier ones; gradients through it are recorded."""

    call: Call
    outputs: dict[int, dict[int, Gradient]] = field(default_factory=dict)
    """Earlier request → pass → the gradient that is given for its answer."""


Event: TypeAlias = Send | Await | Pass


@dataclass(eq=False, slots=True)
class Block:
    """Events in order, in one autograd context or in none."""

    context: int | None
    events: list[Event] = field(default_factory=list)
    skips: int | None = None
    """The context's own number, where it matters and is not the next one."""


@dataclass(eq=False, slots=True)
class Together:
    """Blocks of contexts that overlapped: the lanes run at once, contexts are made in order."""

    lanes: list[Block]


@dataclass(eq=False, slots=True)
class Program:
    """What one worker does of its own."""

    job: int
    worker: str
    parts: list[Block | Together] = field(default_factory=list)
    links: dict[int, Link] = field(default_factory=dict)
    """By the request whose arguments depend on others."""


@dataclass(eq=False, slots=True)
class _Timed:
    """An event and when it was."""

    time_ns: int
    index: int
    event: Event
    context: int | None


def programs(made: Reproduction) -> list[Program]:
    """One for each worker that does something, by job and name."""
    found: list[Program] = []
    events: dict[Key, list[_Timed]] = {}
    keys = sorted({(call.job, call.caller) for call in made.calls.values()})
    for key in keys:
        program = Program(*key)
        events[key] = _events(made, program)
        found.append(program)
    _put_behind(made, [item for its in events.values() for item in its])
    ends = {key: _ends(its) for key, its in events.items()}
    for program in found:
        key = (program.job, program.worker)
        others = [ends[other] for other in keys if other != key and other[0] == key[0]]
        _put_after(events[key], others)
        program.parts = _parts(events[key])
    return found


def awaited(found: Sequence[Program]) -> frozenset[tuple[int, int]]:
    """(job, request) that some step of another worker comes after."""
    return frozenset(
        (program.job, index)
        for program in found
        for block in blocks_of(program)
        for event in block.events
        if not isinstance(event, Await)
        for index in event.after
    )


def blocks_of(program: Program) -> list[Block]:
    """All blocks, those of lanes included."""
    out: list[Block] = []
    for part in program.parts:
        out += [part] if isinstance(part, Block) else part.lanes
    return out


# --- events of one worker -----------------------------------------------------------------------------------


def _events(made: Reproduction, program: Program) -> list[_Timed]:
    """In the order of time."""
    job, worker = program.job, program.worker
    own = [call for call in made.calls.values() if (call.job, call.caller) == (job, worker)]
    timed: list[_Timed] = []
    for call in own:
        if call.kind == MessageType.RREF_BACKWARD_REQ:
            continue
        timed.append(_Timed(call.begin_ns, call.index, Send(call, False), call.context))
        if call.end_ns is not None and call.answer is not None:
            timed.append(_Timed(call.end_ns, call.answer, Await(call), call.context))
    contexts = {call.context for call in own} - {None}
    for context in sorted(c for c in contexts if c is not None):
        for one in _passes(made, program, context, own):
            timed.append(_Timed(one.first.begin_ns, one.first.index, one, context))
    timed.sort(key=lambda item: (item.time_ns, item.index))
    return _joined(timed)


def _joined(timed: Sequence[_Timed]) -> list[_Timed]:
    """Calls that are answered before anything else happens become synchronous."""
    out: list[_Timed] = []
    for item in timed:
        last = out[-1].event if out else None
        if isinstance(item.event, Await) and isinstance(last, Send) and last.call is item.event.call:
            out[-1].event = replace(last, waits=True)
        else:
            out.append(item)
    return out


def _passes(made: Reproduction, program: Program, context: int, own: Sequence[Call]) -> list[Pass]:
    """The passes of one context of a worker, with what they are made of."""
    worker = program.worker
    sent = [
        g
        for g in made.sent.values()
        if (g.call.job, g.call.caller, g.call.context) == (program.job, worker, context)
    ]
    back = [
        g
        for g in made.back.values()
        if (g.call.job, g.call.callee, g.call.context) == (program.job, worker, context)
    ]
    triggers = [c for c in own if c.context == context and c.kind == MessageType.RREF_BACKWARD_REQ]
    forward = [c for c in own if c.context == context and c.kind not in PASSES]
    begins: list[tuple[int, int, Gradient | Call]] = [(g.call.begin_ns, g.call.index, g) for g in sent]
    begins += [(c.begin_ns, c.index, c) for c in (*triggers, *forward)]
    passes: list[Pass] = []
    edges: set[tuple[int, bool]] = set()
    fresh = True
    for _, _, item in sorted(begins, key=lambda b: b[:2]):
        if isinstance(item, Call):
            fresh = True
            if item.kind == MessageType.RREF_BACKWARD_REQ:
                passes.append(Pass(item, len(passes)))
                edges, fresh = set(), False
            continue
        if fresh or (item.request, True) in edges:
            passes.append(Pass(None, len(passes)))
            edges, fresh = set(), False
        edges.add((item.request, True))
        passes[-1].roots.append(item)
    _put_back(passes, back)
    for one in passes:
        _link(made, program, one)
    return passes


def _put_back(passes: Sequence[Pass], back: Sequence[Gradient]) -> None:
    """Gradients come back in the pass that began last before them."""
    begins = [one.first.begin_ns for one in passes]
    for gradient in sorted(back, key=lambda g: (g.call.begin_ns, g.call.index)):
        place = bisect_left(begins, gradient.call.arrived_ns) - 1
        if place >= 0:
            passes[place].back.append(gradient)


def _link(made: Reproduction, program: Program, one: Pass) -> None:
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
        link = program.links.setdefault(latest.request, Link(made.calls[latest.request]))
        link.outputs.setdefault(gradient.request, {})[one.number] = gradient
        one.linked.append(gradient)
    one.roots = roots


# --- the order between workers ------------------------------------------------------------------------------


def _ends(timed: Sequence[_Timed]) -> list[tuple[int, int]]:
    """(when it was over, request) of a worker's steps that others may come after, by time."""
    found = []
    for item in timed:
        if isinstance(item.event, Pass):
            ends = [g.call.end_ns for g in item.event.sent] or [item.event.first.end_ns]
            known = [end for end in ends if end is not None]
            if known:
                found.append((max(known), item.event.first.index))
        elif item.event.call.end_ns is not None:
            found.append((item.event.call.end_ns, item.event.call.index))
    return sorted(set(found))


def _put_behind(made: Reproduction, timed: Sequence[_Timed]) -> None:
    """Calls of several workers that overlapped at one go by their answers, as in a replay."""
    overlapping: dict[int, list[int]] = {}
    latest: dict[tuple[int, str], dict[str, Call]] = defaultdict(dict)
    """(job, callee) → caller → its last call."""
    for call in merge([call for call in made.calls.values() if call.kind in GENERAL - PASSES]):
        others = latest[call.job, call.callee]
        overlapping[call.index] = [
            other.index
            for caller, other in sorted(others.items())
            if caller != call.caller and (other.end_ns is None or other.end_ns >= call.begin_ns)
        ]
        others[call.caller] = call
    told = {index for its in overlapping.values() for index in its}
    for item in timed:
        if isinstance(item.event, Send):
            index = item.event.call.index
            behind = tuple(overlapping.get(index, ()))
            item.event = replace(item.event, behind=behind, told=index in told)


def _put_after(timed: Sequence[_Timed], others: Sequence[Sequence[tuple[int, int]]]) -> None:
    """For each step the last of every other worker that was over when it began, if that is news."""
    known = [-1] * len(others)
    for item in timed:
        if isinstance(item.event, Await):
            continue
        begin = item.time_ns
        news = []
        for which, its in enumerate(others):
            place = bisect_left(its, (begin, -1)) - 1
            if place > known[which]:
                known[which] = place
                news.append(its[place][1])
        _set_after(item, tuple(news))


# --- blocks -------------------------------------------------------------------------------------------------


def _parts(timed: Sequence[_Timed]) -> list[Block | Together]:
    """One block after the other where contexts do not overlap."""
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


def _cluster_end(timed: Sequence[_Timed], spans: dict[int, list[int]], start: int) -> int:
    """Behind everything that overlaps with what begins at `start`."""
    end, place = start + 1, start
    while place < end:
        context = timed[place].context
        if context is not None:
            end = max(end, spans[context][-1] + 1)
        place += 1
    return end


def _may_stand_in_context(item: _Timed) -> bool:
    """Whether it is the same inside of a context's block: torch wraps operators only if a tensor requires
    grad, and an answer may be waited for anywhere."""
    event = item.event
    if isinstance(event, Await):
        return True
    if isinstance(event, Pass):
        return False
    request = event.call.request
    return is_builtin(request.rpc.command) and not needing_gradient(request) and event.call.kind not in REMOTE


def _together(its: Sequence[_Timed], contexts: Sequence[int]) -> Together:
    """A lane for each context, in the order in which these were made, and one for what is in none."""
    lanes = [[item for item in its if item.context == context] for context in sorted(contexts)]
    plain = [item for item in its if item.context is None]
    lanes = [_joined(lane) for lane in [*lanes, plain] if lane]
    ends = [_ends(lane) for lane in lanes]
    for number, lane in enumerate(lanes):
        before = {id(item): _after_of(item) for item in lane}
        _put_after(lane, ends[:number] + ends[number + 1 :])
        for item in lane:
            _set_after(item, (*before[id(item)], *_after_of(item)))
    return Together([Block(lane[0].context, [item.event for item in lane]) for lane in lanes])


def _after_of(item: _Timed) -> tuple[int, ...]:
    return () if isinstance(item.event, Await) else item.event.after


def _set_after(item: _Timed, after: tuple[int, ...]) -> None:
    if isinstance(item.event, Pass):
        item.event.after = after
    elif isinstance(item.event, Send):
        item.event = replace(item.event, after=after)


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


def is_optimizers(call: Call) -> bool:
    """Whether a distributed optimizer made it, one of whose arguments is then the id of a context."""
    return call.function is not None and call.function.startswith(OPTIMIZER)


MAX_SKIPPED_CONTEXTS = 10_000
