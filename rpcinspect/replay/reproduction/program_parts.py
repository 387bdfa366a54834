"""The events of one worker as blocks: one per autograd context, lanes where contexts overlapped.

In: events in the order of time. Out: parts of a program. A call whose answer is the next thing that happens
in its lane becomes a synchronous one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from rpcinspect.replay.planning.sessions import OPTIMIZER
from rpcinspect.replay.reproduction.program_model import (
    Await,
    Block,
    Pass,
    Send,
    Timed,
    Together,
    after_of,
    set_after,
)
from rpcinspect.replay.reproduction.program_order import ends, put_after
from rpcinspect.replay.reproduction.reproduced import needing_gradient
from rpcinspect.rpc.pickles.semantic import python_udf
from rpcinspect.rpc.questions import REMOTE, is_builtin
from rpcinspect.rpc.types import unpack_id
from rpcinspect.run.exchanges import Exchange


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
    if isinstance(event, Pass):
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
        before = {id(item): after_of(item) for item in lane}
        put_after(lane, overs[:number] + overs[number + 1 :])
        for item in lane:
            set_after(item, (*before[id(item)], *after_of(item)))
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
    return call.function is not None and call.function.startswith(OPTIMIZER)


MAX_SKIPPED_CONTEXTS = 10_000
