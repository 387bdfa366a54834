"""What a message says, as nodes: the fields of its envelopes and of its body, and the values in its pickle.

In: envelopes and a body. Out: nodes: values as people write them in Python, what is in them below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rpcinspect.browse.node import MAX_LABEL, Node, Ranges, pages, text_node
from rpcinspect.fields.body import body_of
from rpcinspect.fields.phrases import counted, packed
from rpcinspect.pickles import semantic
from rpcinspect.pickles.places import PARAMETER
from rpcinspect.pickles.tree import Dict, PickleCall, Set, Value
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.views.message_parts import event_words


class BodyNodes:
    """Makes the nodes of one message."""

    def __init__(self, record: RpcRecord, ranges: Ranges, reference: Callable[[str, int], Node]) -> None:
        """`ranges`: where the body lies; `reference(before, number)` makes the node of a
        place that names a tensor of the message."""
        self._record = record
        self._ranges = ranges
        self._reference = reference
        self._body = body_of(record)

    @property
    def type(self) -> str:
        """Returns the name of the body's type."""
        name: str = self._body.json["type"]
        return name

    def fields(self, told: dict[str, Any], ranges: Ranges) -> Callable[[], Sequence[Node]]:
        """Returns what makes the nodes of fields that are in JSON, such as those of an envelope."""
        return lambda: [self._field(name, value, ranges) for name, value in told.items()]

    def body(self) -> Callable[[], Sequence[Node]] | None:
        """Returns what makes the nodes of the body; None of an empty one."""
        told = {name: value for name, value in self._body.json.items() if name != "type"}
        if told.get("error", told) is None:
            del told["error"]
        elif "error" in told and told.get("value", told) is None:
            del told["value"]
        unsafe = list(self._unsafe())
        if not told and not unsafe:
            return None
        return lambda: [*(self._told(name, value) for name, value in told.items()), *unsafe]

    def _unsafe(self) -> Iterator[Node]:
        audit = self._record.facts.audit
        for error in audit.errors:
            yield Node(f"unsafe: {error.name}: {error.reason}", self._ranges, look="bad")
        called = audit.dangerous_call
        if called is not None:
            yield Node(f"dangerous call: {called.name}: {called.reason}", self._ranges, look="bad")

    def _told(self, name: str, value: object) -> Node:
        """A field of the body, with what is in it where its pickle was read."""
        trees = self._body.trees
        if name not in trees:
            return self._field(name, value, self._ranges)
        parts = None if name == "value" else self._parts_of(trees[name])
        if parts is None:
            return self._value(name, trees[name])
        count, make = parts
        children = pages(count, make, self._ranges) if count else None
        return Node(f"{name}: {count or 'none'}", self._ranges, children)

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
            return self._reference(f"{place}: ", number)
        return Node(f"{place}: tensor#{number}, which the message lacks", self._ranges, look="bad")

    def _value(self, name: str, value: Value) -> Node:
        """A value of a pickle."""
        plain = _plain(value)
        number = semantic.tensor_index(plain)
        if number is not None and number < len(self._record.rpc.tensors):
            return self._reference(f"{name}: ", number)
        label = f"{name}: {self._body.render(value, MAX_LABEL)}"
        if isinstance(plain, str):
            return text_node(label, plain, self._ranges)
        parts = None if semantic.rref_fork(plain) is not None else self._parts_of(plain)
        children = pages(parts[0], parts[1], self._ranges) if parts is not None and parts[0] else None
        return Node(label, self._ranges, children)

    def _parts_of(self, value: Value) -> tuple[int, Callable[[int], Node]] | None:
        """How many values are in one, and what makes the node of each; None of what has no parts."""
        plain = _plain(value)
        if isinstance(plain, PickleCall):
            told = list(_call_parts(plain))
            return len(told), lambda at: self._value(*told[at])
        if isinstance(plain, Dict):
            return len(plain.pairs), lambda at: self._entry(*plain.pairs[at])
        items = plain.items if isinstance(plain, Set) else plain
        if isinstance(items, (tuple, list)):
            return len(items), lambda at: self._value(str(at), items[at])
        return None

    def _entry(self, key: Value, value: Value) -> Node:
        name = key[:MAX_LABEL] if isinstance(key, str) else self._body.render(key, MAX_LABEL // 2)
        return self._value(name, value)


def _plain(value: Value) -> Value:
    """What a value is to a reader: the list in a type tag, the data of a Parameter."""
    plain = semantic.untag(value)
    if isinstance(plain, PickleCall) and plain.function == PARAMETER and type(plain.args) is tuple:
        return plain.args[0] if plain.args else plain
    return plain


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
