"""Messages that differ only in their ids, decoded once: a pattern is all that they have in common.

In: messages as they come, and what the slow reading made of those that no pattern fits. Out: for a message
with the same bytes but for its ids the pattern and the ids. A training loop sends a handful of patterns:
forward and backward messages differ in the context and the autograd message, clean-ups in the context, most
answers in nothing. Later stages keep what follows from a pattern, so that a message costs them its ids and
its place.

A pattern holds for one descriptor, of which all equal ones are one object; so it fixes all lengths.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct, field

from rpcinspect.pickles.jit import int_places
from rpcinspect.rpc import command as commands
from rpcinspect.rpc.command import Command
from rpcinspect.rpc.decode import DecodedRpc
from rpcinspect.rpc.envelope import (
    FOOTER_BYTES,
    AutogradMetadata,
    Envelope,
    RpcWithAutograd,
    split_wrapped,
    tail_of_autograd,
)
from rpcinspect.rpc.message import from_payloads
from rpcinspect.rpc.pickle_facts import PickleFacts
from rpcinspect.tensorpipe.control_types import TpDescriptor
from rpcinspect.tensorpipe.records import TpMessage

MAX_LAYOUTS = 1024
MAX_PATTERNS = 4096
MAX_BYTES = 1 << 20
"""Of the payloads that all patterns keep: decoded they take some twenty times as much."""
MAX_PATTERN_BYTES = 1 << 12
PAYLOAD, TABLE = 2, 3
NUMBERS = {1: "B", 2: "H", 4: "i", 8: "q"}
"""Bytes of an id → how `struct` calls it."""

Ids: TypeAlias = tuple[int, ...]
"""The autograd context, and the autograd message where the message has one."""
Places: TypeAlias = list[tuple[int, int]]
"""Where the ids stand in a payload, from the first byte behind their opcode."""


class Pattern(Struct, eq=False):
    """What messages that differ only in their ids have in common."""

    rpc: DecodedRpc
    """The message that it was learned from."""
    facts: PickleFacts
    type: int
    """Outermost message type."""
    sender_id: int | None
    """That its envelope tells."""
    edges: int
    """Its own tensors that require grad."""

    def with_ids(self, tp: TpMessage, ids: Ids) -> DecodedRpc:
        """A message of this pattern, decoded."""
        envelopes, command = self.rpc.envelopes, self.rpc.command
        if ids and envelopes:
            (envelope,) = envelopes
            assert isinstance(envelope, RpcWithAutograd)
            envelopes = (
                RpcWithAutograd(
                    message_type=envelope.message_type,
                    autograd_metadata=AutogradMetadata(*ids),
                    from_worker_id=envelope.from_worker_id,
                    device_map=envelope.device_map,
                    wrapped_message_type=envelope.wrapped_message_type,
                ),
            )
        elif isinstance(command, commands.PropagateGradientsReq):
            command = commands.PropagateGradientsReq(
                AutogradMetadata(*ids), command.grads, command.retain_graph
            )
        elif ids:
            command = commands.CleanupAutogradContextReq(*ids)
        return DecodedRpc(from_payloads(tp.payloads), envelopes, command, self.rpc.tensors)


class _Layout(Struct, eq=False):
    """Where the ids stand in payloads of one type and descriptor."""

    descriptor: TpDescriptor
    cut: Callable[[bytes], tuple[Any, ...]]
    """A payload into bytes, id, bytes, …"""
    patterns: dict[tuple[tuple[bytes, ...], bytes], Pattern] = field(default_factory=dict)
    """By the bytes between the ids and the tensor table."""


class Patterns:
    """Patterns by their bytes, within bounds."""

    def __init__(self) -> None:
        self._layouts: dict[tuple[bytes, int], _Layout] = {}
        """By type and the id() of the descriptor, which no other has as long as the layout holds it."""
        self._count = self._bytes = 0

    def find(self, tp: TpMessage) -> tuple[Pattern, Ids] | None:
        """The pattern of a message that was captured whole, if one is known."""
        payloads = tp.payloads
        layout = self._layouts.get((payloads[0], id(tp.descriptor))) if payloads else None
        if layout is None or tp.payload_missing is not None:
            return None
        parts = layout.cut(payloads[PAYLOAD])
        pattern = layout.patterns.get((parts[::2], payloads[TABLE]))
        return None if pattern is None else (pattern, parts[1::2])

    def learn(self, tp: TpMessage, rpc: DecodedRpc, facts: PickleFacts) -> None:
        """Remembers a message that was decoded without a problem, if others may be like it."""
        payload, table = tp.payloads[PAYLOAD], tp.payloads[TABLE]
        if len(payload) + len(table) > MAX_PATTERN_BYTES or not _says_nothing(facts):
            return
        places = _id_places(rpc.envelopes, rpc.command, payload)
        if places is None:
            return
        key = (tp.payloads[0], id(tp.descriptor))
        cut = _cutter(places, len(payload))
        layout = self._layouts.get(key)
        if layout is None or layout.cut(payload) != cut(payload):
            if len(self._layouts) >= MAX_LAYOUTS:
                self._forget()
            layout = self._layouts[key] = _Layout(tp.descriptor, cut)
        size = len(payload) + len(table)
        if self._count >= MAX_PATTERNS or self._bytes + size > MAX_BYTES:
            self._forget()
            self._layouts[key] = layout = _Layout(tp.descriptor, cut)
        self._count += 1
        self._bytes += size
        edges = sum([meta.requires_grad and meta.part_of is None for meta in rpc.tensors])
        envelope = rpc.envelopes[0] if rpc.envelopes else None
        sender = envelope.from_worker_id if isinstance(envelope, RpcWithAutograd) else None
        layout.patterns[cut(payload)[::2], table] = Pattern(rpc, facts, rpc.message.type, sender, edges)

    def _forget(self) -> None:
        self._layouts.clear()
        self._count = self._bytes = 0


def _cutter(places: Places, length: int) -> Callable[[bytes], tuple[Any, ...]]:
    """What cuts a payload of that length at its ids."""
    parts, at = ["<"], 0
    for start, end in places:
        parts.append(f"{start - at}s{NUMBERS[end - start]}")
        at = end
    return struct.Struct("".join([*parts, f"{length - at}s"])).unpack


def _says_nothing(facts: PickleFacts) -> bool:
    """Whether a pickle tells nothing of the session but which function is called, with which tensors."""
    told = facts.forks, facts.failed, facts.responder, facts.control, facts.sender, facts.receiver
    return not any((*told, facts.parameters))


def _id_places(envelopes: tuple[Envelope, ...], command: Command, payload: bytes) -> Places | None:
    """Where the ids of a message stand; None: it is of no kind that is learned."""
    if not envelopes:
        if isinstance(command, commands.PropagateGradientsReq):
            metadata = command.autograd_metadata
            return _last_ids(payload, [metadata.autograd_context_id, metadata.autograd_message_id])
        if isinstance(command, commands.CleanupAutogradContextReq):
            places = int_places(payload, 2, len(payload) - 1)
            return places if places is not None and len(places) == 1 else None
        return [] if isinstance(command, WITHOUT_IDS) else None
    if len(envelopes) != 1 or not isinstance(envelopes[0], RpcWithAutograd):
        return None
    if not isinstance(command, WITHOUT_IDS):
        return None
    _, suffix = split_wrapped(payload)
    tail = tail_of_autograd(suffix)
    places = None if tail is None else int_places(suffix, 3, tail)
    if places is None or len(places) != 4:
        return None
    before = len(payload) - FOOTER_BYTES - len(suffix)
    return [(start + before, end + before) for start, end in places[1:3]]


def _last_ids(payload: bytes, ids: list[int]) -> Places | None:
    """Of the two ints before the bool that ends a gradient request: where they read as these ids."""
    end = len(payload) - 3
    if payload[end:] not in (b"\x88t.", b"\x89t."):  # NEWTRUE or NEWFALSE, TUPLE, STOP
        return None
    for first in OPCODE_BYTES:
        for second in OPCODE_BYTES:
            places = int_places(payload, end - first - second, end)
            if places is not None and [_number(payload[start:stop]) for start, stop in places] == ids:
                return places
    return None


def _number(raw: bytes) -> int:
    """The id that stands there; those of one or two bytes have no sign."""
    return int.from_bytes(raw, "little", signed=len(raw) > 2)


OPCODE_BYTES = (2, 3, 5, 10)
"""Of BININT1, BININT2, BININT and LONG1 of 8 bytes."""

WITHOUT_IDS = (
    commands.PythonCall,
    commands.PythonResp,
    commands.ScriptCall,
    commands.ScriptResp,
    commands.PythonRRefFetchRet,
    commands.ScriptRRefFetchRet,
    commands.RRefAck,
    commands.PropagateGradientsResp,
    commands.CleanupAutogradContextResp,
    commands.RRefBackwardResp,
)
"""Commands whose messages repeat, but for the ids in their envelope."""
