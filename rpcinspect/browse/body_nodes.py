"""What a message says, as nodes: the fields of its envelopes and of its body, and the values in its pickle.

In: envelopes and a body. Out: nodes: values as people write them in Python, what is in them below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from rpcinspect.browse.message_bytes import ByteRange
from rpcinspect.browse.node import MAX_LABEL, Node, Ranges, pages, text_node
from rpcinspect.fields.body import SAYS, body_of
from rpcinspect.fields.phrases import counted, packed
from rpcinspect.pickles import semantic
from rpcinspect.pickles.places import PARAMETER
from rpcinspect.pickles.spans import PickleSpan, spans_of
from rpcinspect.pickles.tree import Dict, PickleCall, Set, Value
from rpcinspect.rpc.command import ScriptCall, ScriptRemoteCall, ScriptRRefFetchRet
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.views.message_parts import event_words


class BodyNodes:
    """Makes the nodes of one message."""

    def __init__(
        self, record: RpcRecord, payload: bytes, ranges: Ranges, reference: Callable[[str, int, Ranges], Node]
    ) -> None:
        """`payload`: the body as it was captured; `ranges`: where that lies; `reference(before, number, at)`
        makes the node of a place that names a tensor of the message."""
        self._record = record
        self._payload = payload
        self._ranges = ranges
        self._reference = reference
        self._body = body_of(record)
        self._base = 0
        """Where the pickle begins within the body."""

    @property
    def type(self) -> str:
        """Returns the name of the body's type."""
        return type_name(message_type_of(self._body.command))

    def fields(self, told: dict[str, Any], ranges: Ranges) -> Callable[[], Sequence[Node]]:
        """Returns what makes the nodes of fields that are in JSON, such as those of an envelope."""
        return lambda: [self._field(name, value, ranges) for name, value in told.items()]

    def body(self) -> Callable[[], Sequence[Node]] | None:
        """Returns what makes the nodes of the body; None of an empty one."""
        body = self._body
        names = [name for name in SAYS.get(type(body.command), ()) if name in body.trees or self._tells(name)]
        unsafe = list(self._unsafe())
        if not names and not unsafe:
            return None
        return lambda: [*map(self._told, names), *unsafe]

    def _tells(self, name: str) -> bool:
        """Returns whether a field that has no tree has a value."""
        return name not in ("value", "error", "pickle_error") or self._body.get(name) is not None

    def _unsafe(self) -> Iterator[Node]:
        audit = self._record.facts.audit
        for error in audit.errors:
            yield Node(f"unsafe: {error.name}: {error.reason}", self._ranges, look="bad")
        called = audit.dangerous_call
        if called is not None:
            yield Node(f"dangerous call: {called.name}: {called.reason}", self._ranges, look="bad")

    def _told(self, name: str) -> Node:
        """A field of the body, with what is in it where its pickle was read."""
        trees = self._body.trees
        span = self._spans.get(name)
        if name not in trees:
            return self._field(name, self._body.get(name), self._at(span))
        parts = None if name == "value" else self._parts_of(trees[name], span)
        if parts is None:
            return self._value(name, trees[name], span)
        children = self._children(parts, span) if parts.count else None
        return Node(f"{name}: {parts.count or 'none'}", self._at(span), children)

    @cached_property
    def _spans(self) -> dict[str, PickleSpan | None]:
        """Where the pickle writes fields of the body, as far as that is known."""
        command, trees = self._body.command, self._body.trees
        own = getattr(command, "serialized_py_obj", self._payload)
        span = spans_of(own) if trees else None
        self._base = self._payload.find(own)
        if span is None or self._base < 0:
            return {}
        if isinstance(command, (ScriptCall, ScriptRemoteCall)):
            count = len(command.args)
            args = span.parts[:count]
            names = ("async" if command.schema is None else "schema", "function", "rref_id", "fork_id")
            found = {name: span.part(count + at) for at, name in enumerate(names)}
            return found | {"args": PickleSpan(span.start, args[-1].end, args) if args else None}
        if "value" in trees:
            several = isinstance(command, ScriptRRefFetchRet) and len(command.values) == 1
            return {"value": span.part(0) if several else span}
        if "kwargs" in trees:  # PythonUDF(function, args, kwargs)
            return {name: span.part(1, at) for at, name in enumerate(("function", "args", "kwargs"))}
        return {}

    def _at(self, span: PickleSpan | None) -> Ranges:
        """The bytes of a value; those of the whole body where they are not known."""
        if span is None or not self._ranges:
            return self._ranges
        whole = self._ranges[0]
        start, end = self._base + span.start, self._base + span.end
        return (ByteRange(whole.part, start, end),) if end <= whole.end else self._ranges

    def _field(self, name: str, value: object, ranges: Ranges) -> Node:
        """A field from its form in JSON."""
        if name in ("context_id", "autograd_message_id") and isinstance(value, int):
            return Node(f"{name}: {packed(value)} ({value})", ranges)
        if name in ("rref_id", "fork_id", "profiling_id") and isinstance(value, list):
            return Node(f"{name}: {':'.join(map(str, value))}", ranges)
        if name == "payload_hex" and isinstance(value, str):
            return Node(f"not understood: {counted(len(value) // 2, 'byte')}", ranges)
        if name == "events" and isinstance(value, list):
            return _events(value, ranges)
        if name == "grads" and isinstance(value, list):
            children = pages(len(value), lambda at: self._gradient(at, value[at]), ranges, "gradients")
            return Node(f"grads: {counted(len(value), 'tensor')}", ranges, children)
        if name == "error" and isinstance(value, dict):
            return Node(
                f"error: {value['type'] or 'an error'}", ranges, self.fields(value, ranges), look="bad"
            )
        if isinstance(value, dict) and value:
            told = [(str(key), item) for key, item in value.items()]
            children = pages(len(told), lambda at: self._field(*told[at], ranges), ranges)
            return Node(f"{name}: {len(told):,}", ranges, children)
        if isinstance(value, str):
            return text_node(f"{name}: {value[:MAX_LABEL]}", value, ranges)
        return Node(f"{name}: {'none' if value in ({}, []) else value}", ranges)

    def _gradient(self, place: int, number: int) -> Node:
        if 0 <= number < len(self._record.rpc.tensors):
            return self._reference(f"{place}: ", number, self._ranges)
        return Node(f"{place}: tensor#{number}, which the message lacks", self._ranges, look="bad")

    def _value(self, name: str, value: Value, span: PickleSpan | None) -> Node:
        """A value of a pickle."""
        plain, inner = _plain(value, span)
        ranges = self._at(span)
        number = semantic.tensor_index(plain)
        if number is not None and number < len(self._record.rpc.tensors):
            return self._reference(f"{name}: ", number, ranges)
        label = f"{name}: {self._body.render(value, MAX_LABEL)}"
        if isinstance(plain, str):
            return text_node(label, plain, ranges)
        parts = None if semantic.rref_fork(plain) is not None else self._parts_of(plain, inner)
        children = self._children(parts, inner) if parts is not None and parts.count else None
        return Node(label, ranges, children)

    def _children(self, parts: _Parts, span: PickleSpan | None) -> Callable[[], Sequence[Node]]:
        def within(start: int, end: int) -> Ranges:
            first, last = parts.spans[start], parts.spans[end - 1]
            if first is None or last is None or first.start > last.end:
                return self._at(span)
            return self._at(PickleSpan(first.start, last.end, []))

        return pages(parts.count, parts.make, self._at(span), within=within)

    def _parts_of(self, value: Value, span: PickleSpan | None) -> _Parts | None:
        """Returns the items of a list, a dict or an object; None of a value without items."""
        plain, inner = _plain(value, span)
        if isinstance(plain, PickleCall):
            told = list(_call_parts(plain))
            known = [None, None] if inner is None else [inner.part(0), inner.part(1)]
            spans = [*known, *[None] * len(told)]
            return _Parts(len(told), lambda at: self._value(*told[at], spans[at]), spans)
        if isinstance(plain, Dict):
            pairs = plain.pairs
            both = _spans_of(inner, 2 * len(pairs))
            return _Parts(len(pairs), lambda at: self._entry(*pairs[at], both[2 * at + 1]), both[1::2])
        items = plain.items if isinstance(plain, Set) else plain
        if isinstance(items, (tuple, list)):
            each = _spans_of(inner, len(items))
            return _Parts(len(items), lambda at: self._value(str(at), items[at], each[at]), each)
        return None

    def _entry(self, key: Value, value: Value, span: PickleSpan | None) -> Node:
        name = key[:MAX_LABEL] if isinstance(key, str) else self._body.render(key, MAX_LABEL // 2)
        return self._value(name, value, span)


class _Parts(Struct, frozen=True):
    """What is in a value."""

    count: int
    make: Callable[[int], Node]
    """Makes the node of one."""
    spans: Sequence[PickleSpan | None]
    """Where each is written."""


def _spans_of(span: PickleSpan | None, count: int) -> Sequence[PickleSpan | None]:
    """The ranges of so many parts; a value that the pickle made in another way has none."""
    return span.parts if span is not None and len(span.parts) == count else [None] * count


def _plain(value: Value, span: PickleSpan | None) -> tuple[Value, PickleSpan | None]:
    """What a value is to a reader, and where that is: the list in a type tag, the data of a Parameter."""
    plain = semantic.untag(value)
    if plain is not value:
        span = None if span is None else span.part(1, 0)
    if (
        isinstance(plain, PickleCall)
        and plain.function == PARAMETER
        and type(plain.args) is tuple
        and plain.args
    ):
        return plain.args[0], None if span is None else span.part(1, 0)
    return plain, span


def _call_parts(call: PickleCall) -> Iterator[tuple[str, Value]]:
    yield "function", call.function
    yield "args", call.args
    if call.kwargs is not None:
        yield "kwargs", call.kwargs
    if call.has_state:
        yield "state", call.state
    if call.items:
        yield "items", call.items
    if call.pairs:
        yield "pairs", Dict(call.pairs)


def _events(events: list[dict[str, Any]], ranges: Ranges) -> Node:
    start = min((event["cpu_ns"] for event in events), default=0)

    def event(number: int) -> Node:
        return Node(f"{number}: {event_words(events[number], start)}", ranges)

    children = pages(len(events), event, ranges, "events") if events else None
    return Node(f"events: {counted(len(events), 'event')}", ranges, children)
