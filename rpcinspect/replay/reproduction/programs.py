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
from collections.abc import Sequence
from typing import TypeAlias

from rpcinspect.replay.planning.facts import rrefs_in
from rpcinspect.replay.reproduction.program_model import Await, Link, Pass, Program, Send, Timed
from rpcinspect.replay.reproduction.program_order import ends, put_after, put_behind
from rpcinspect.replay.reproduction.program_parts import joined, parts_of
from rpcinspect.replay.reproduction.reproduced import Gradient, Reproduction
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import PASSES
from rpcinspect.run.exchanges import Exchange

Key: TypeAlias = tuple[int, str]
"""(job, worker)"""


def programs(made: Reproduction) -> list[Program]:
    """One for each worker that does something, by job and name."""
    found: list[Program] = []
    events: dict[Key, list[Timed]] = {}
    keys = sorted({(call.job, call.caller) for call in made.calls.values()})
    for key in keys:
        program = Program(*key)
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


def _events(made: Reproduction, program: Program) -> list[Timed]:
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
    contexts = {call.context for call in own} - {None}
    for context in sorted(c for c in contexts if c is not None):
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


def _passes(made: Reproduction, program: Program, context: int, own: Sequence[Exchange]) -> list[Pass]:
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
    begins: list[tuple[int, int, Gradient | Exchange]] = [(g.call.begin_ns, g.call.index, g) for g in sent]
    begins += [(c.begin_ns, c.index, c) for c in (*triggers, *forward)]
    passes: list[Pass] = []
    edges: set[tuple[int, bool]] = set()
    fresh = True
    for _, _, item in sorted(begins, key=lambda b: b[:2]):
        if isinstance(item, Exchange):
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
    one.roots = roots if one.trigger is None else []
    one.lost = roots if one.trigger is not None else []
