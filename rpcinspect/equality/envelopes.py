"""The envelopes of one message against those of one other.

In: two stacks of envelopes. Out: differences. Ids are compared as `ids` knows them, profiled events by their
names and how many there are of each: their order and times are those of threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rpcinspect.equality.difference import Difference, JsonValue, to_json
from rpcinspect.equality.ids import AUTOGRAD_MESSAGE, CONTEXT, PROFILING, WORKER, Carried, IdMap
from rpcinspect.equality.rules import Rules
from rpcinspect.rpc.envelope import (
    AutogradMetadata,
    Envelope,
    RpcWithAutograd,
    RpcWithProfilingReq,
    RpcWithProfilingResp,
)
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.profiling import LegacyEvent
from rpcinspect.rpc.types import GloballyUniqueId

MAX_EVENTS = 16
"""Names of events that are shown."""


def compare_envelopes(
    a: Sequence[Envelope], b: Sequence[Envelope], rules: Rules, ids: IdMap
) -> Iterator[Difference]:
    """Yields the differences of two stacks; those of other types are not compared further."""
    types = [[type_name(envelope.message_type) for envelope in stack] for stack in (a, b)]
    if types[0] != types[1]:
        yield Difference(code="envelope", path="envelopes", a_value=types[0], b_value=types[1])
        return
    for i, (one, other) in enumerate(zip(a, b, strict=True)):
        path = f"envelopes[{i}]"
        if isinstance(one, RpcWithAutograd) and isinstance(other, RpcWithAutograd):
            yield from _autograd(one, other, path, ids)
            continue
        assert not isinstance(one, RpcWithAutograd)
        assert not isinstance(other, RpcWithAutograd)
        profilings = one.profiling_id, other.profiling_id
        yield from compare_ids(ids, PROFILING, *profilings, f"{path}.profiling_id", "envelope")
        if isinstance(one, RpcWithProfilingReq) and isinstance(other, RpcWithProfilingReq):
            yield from _config(one, other, path)
        elif isinstance(one, RpcWithProfilingResp) and isinstance(other, RpcWithProfilingResp):
            yield from _events(one.profiled_events, other.profiled_events, f"{path}.events", rules)


def contexts_of(envelopes: Sequence[Envelope]) -> frozenset[int]:
    """Ids of the autograd contexts that a message belongs to: one, in honest messages."""
    return frozenset(
        envelope.autograd_metadata.autograd_context_id
        for envelope in envelopes
        if isinstance(envelope, RpcWithAutograd)
    )


def compare_ids(ids: IdMap, kind: str, a: Carried, b: Carried, path: str, code: str) -> Iterator[Difference]:
    """Yields a difference if two ids of one kind stand for different things, whatever their numbers."""
    if not ids.carried(kind, a, b):
        shown = [[x.created_on, x.local_id] if isinstance(x, GloballyUniqueId) else x for x in (a, b)]
        text = "does not match what it stood for in earlier messages"
        yield Difference(code=code, path=path, a_value=shown[0], b_value=shown[1], text=text)


def compare_metadata(
    ids: IdMap, a: AutogradMetadata, b: AutogradMetadata, path: str, code: str
) -> Iterator[Difference]:
    """The ids of context and autograd message; `path` is all that stands before their names."""
    contexts = a.autograd_context_id, b.autograd_context_id
    messages = a.autograd_message_id, b.autograd_message_id
    yield from compare_ids(ids, CONTEXT, *contexts, f"{path}context_id", code)
    yield from compare_ids(ids, AUTOGRAD_MESSAGE, *messages, f"{path}autograd_message_id", code)


def _autograd(a: RpcWithAutograd, b: RpcWithAutograd, path: str, ids: IdMap) -> Iterator[Difference]:
    yield from compare_metadata(ids, a.autograd_metadata, b.autograd_metadata, f"{path}.", "envelope")
    workers = a.from_worker_id, b.from_worker_id
    yield from compare_ids(ids, WORKER, *workers, f"{path}.from_worker_id", "envelope")
    if a.device_map != b.device_map:
        yield Difference(
            code="device-map",
            path=f"{path}.device_map",
            a_value=_map_json(a.device_map),
            b_value=_map_json(b.device_map),
        )


def _config(a: RpcWithProfilingReq, b: RpcWithProfilingReq, path: str) -> Iterator[Difference]:
    for name in ("state", "report_input_shapes", "profile_memory"):
        one, other = getattr(a.profiler_config, name), getattr(b.profiler_config, name)
        if one != other:
            yield Difference(code="envelope", path=f"{path}.config.{name}", a_value=one, b_value=other)


def _events(
    a: Sequence[LegacyEvent], b: Sequence[LegacyEvent], path: str, rules: Rules
) -> Iterator[Difference]:
    count_a = Counter(rules.renamed_text(_event_name(event)) for event in _told_once(a))
    count_b = Counter(map(_event_name, _told_once(b)))
    names = sorted(n for n in (count_a | count_b).keys() - _BY_CHANCE if count_a[n] != count_b[n])
    if names:
        shown = [
            {to_json(name): counts[name] for name in names[:MAX_EVENTS]} for counts in (count_a, count_b)
        ]
        yield Difference(code="profile-events", path=path, a_value=shown[0], b_value=shown[1])


def _told_once(events: Sequence[LegacyEvent]) -> Iterator[LegacyEvent]:
    """Events without repetitions: a thread that has profiled before tells each operator once for each time,
    under one handle, since the legacy profiler leaves its callback behind. Which thread serves is chance.
    """
    seen: set[tuple[int, int, float]] = set()
    for event in events:
        key = event.kind, event.thread_id, event.handle
        if event.kind not in _RANGES or key not in seen:
            seen.add(key)
            yield event


def _event_name(event: LegacyEvent) -> str:
    """The name of an event; pops and allocations, which have none, by their kind."""
    name = event.name if isinstance(event.name, str) else event.name.decode("utf-8", "backslashreplace")
    known = 0 <= event.kind < len(_EVENT_KINDS)
    return name or f"({_EVENT_KINDS[event.kind] if known else event.kind})"


def _map_json(devices: Mapping[str, str]) -> JsonValue:
    return {to_json(source): to_json(target) for source, target in sorted(devices.items())}


_BY_CHANCE = frozenset({"aten::empty", "aten::_empty_affine_quantized", "aten::set_", "(pop)", "(alloc)"})
"""Events of which a profile has more or fewer by chance: those of tensors of a message that torch rebuilds in
a thread that profiles already, one in which the legacy profiler has left its callback behind; and of memory
that any thread takes or frees meanwhile. Which thread takes a message, and when, is chance. `(pop)` only ends
what others begin."""

_RANGES = (1, 2)
"""Kinds of events that begin and end an operator."""

_EVENT_KINDS = ("mark", "push", "pop", "alloc")
