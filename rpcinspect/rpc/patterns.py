"""Messages that differ only in their ids, decoded once: a pattern is all that they have in common.

In: messages as they come, and what the slow reading made of those that no pattern fits. Out: for a message
with the same bytes but for its ids the pattern and the ids. A training loop sends a handful of patterns:
forward and backward messages differ in the context and the autograd message, cleanups in the context, most
answers in nothing. Later stages keep what follows from a pattern, so that a message costs them its ids and
its place.

A pattern holds for one descriptor, of which all equal ones are one object; so it fixes all lengths.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct, field, structs

from rpcinspect.pickles.opcodes import INTEGERS, LONG1, opcode_places
from rpcinspect.rpc import command as commands
from rpcinspect.rpc.command import Command
from rpcinspect.rpc.decode import DecodedRpc
from rpcinspect.rpc.envelope import (
    FOOTER_BYTES,
    AutogradMetadata,
    Envelope,
    RpcWithAutograd,
    split_wrapped,
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
IdPlaces: TypeAlias = list[tuple[int, int]]
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

    def with_ids(self, tp: TpMessage, ids: Ids) -> DecodedRpc:
        """A message of this pattern, decoded."""
        envelopes, command = self.rpc.envelopes, self.rpc.command
        if ids and envelopes:
            (envelope,) = envelopes
            assert isinstance(envelope, RpcWithAutograd)
            envelopes = (structs.replace(envelope, autograd_metadata=AutogradMetadata(*ids)),)
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
    """Bounded cache of patterns by their bytes."""

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
        """Remembers a message that was decoded without a problem, if the ids allow a pattern."""
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
        envelope = rpc.envelopes[0] if rpc.envelopes else None
        sender = envelope.from_worker_id if isinstance(envelope, RpcWithAutograd) else None
        layout.patterns[cut(payload)[::2], table] = Pattern(rpc, facts, rpc.message.type, sender)

    def _forget(self) -> None:
        self._layouts.clear()
        self._count = self._bytes = 0


def _cutter(places: IdPlaces, length: int) -> Callable[[bytes], tuple[Any, ...]]:
    """What cuts a payload of that length at its ids."""
    parts, at = ["<"], 0
    for start, end in places:
        parts.append(f"{start - at}s{NUMBERS[end - start]}")
        at = end
    return struct.Struct("".join([*parts, f"{length - at}s"])).unpack


def _says_nothing(facts: PickleFacts) -> bool:
    """Returns whether a pickle holds nothing about the session but the function and tensors."""
    told = facts.forks, facts.failed, facts.responder, facts.control, facts.sender, facts.receiver
    return not any((*told, facts.parameters))


def _id_places(envelopes: tuple[Envelope, ...], command: Command, payload: bytes) -> IdPlaces | None:
    """Where the ids of a message stand; None: it is of no kind that is learned."""
    if not envelopes:
        if isinstance(command, commands.PropagateGradientsReq):  # (…, context, message, retain_graph)
            ids = structs.astuple(command.autograd_metadata)
            return _places_of(ids, payload, slice(-4, -2)) if payload[-3:] in TAILS else None
        if isinstance(command, commands.CleanupAutogradContextReq):
            return _places_of((command.context_id,), payload, slice(1, None))
        return [] if isinstance(command, WITHOUT_IDS) else None
    (envelope,) = envelopes if len(envelopes) == 1 else (None,)
    if not isinstance(envelope, RpcWithAutograd) or not isinstance(command, WITHOUT_IDS):
        return None
    _, suffix = split_wrapped(payload)  # (wrapped type, context, message, worker, device map)
    ids = structs.astuple(envelope.autograd_metadata)
    places = _places_of((envelope.wrapped_message_type, *ids, envelope.from_worker_id), suffix, slice(2, 6))
    before = len(payload) - FOOTER_BYTES - len(suffix)
    return None if places is None else [(start + before, end + before) for start, end in places[1:3]]


def _places_of(ids: Ids, pickle: bytes, its: slice) -> IdPlaces | None:
    """Where ids stand in a JIT pickle that was read, from the first byte of each number. `its`: the opcodes
    that push them. None where some do anything else, as to memoise one, which then stands elsewhere too.
    """
    opcodes = list(opcode_places(pickle, len(pickle) - 1))[its]
    places = [(begin + (2 if pickle[begin] == LONG1 else 1), end) for begin, end in opcodes]
    if not all(pickle[begin] in INTEGERS for begin, _ in opcodes) or not all(
        b - a in NUMBERS for a, b in places
    ):
        return None
    # those of one or two bytes have no sign
    numbers = [int.from_bytes(pickle[a:b], "little", signed=b - a > 2) for a, b in places]
    return places if numbers == [*ids] else None


TAILS = (b"\x88t.", b"\x89t.")
"""How the pickle of a gradient request ends: NEWTRUE or NEWFALSE, TUPLE, STOP."""

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
