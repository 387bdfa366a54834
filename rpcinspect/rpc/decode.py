"""One message, taken apart: envelopes, command and tensor table; and put together again.

In: an `RpcMessage`. Out: `DecodedRpc`. Nothing is raised for damaged bytes: what was readable is kept, the
rest becomes an `UnknownCommand` or an empty tensor list, and a problem says why. Equal bytes are decoded
once: the tensor table and the command of messages that repeat are the same objects, within bounds.
Python pickles are not read here, see `pickle_facts`.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from rpcinspect.errors import DecodeError
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.rpc.cache import TREE_WEIGHT, BoundedCache
from rpcinspect.rpc.command import Command, UnknownCommand
from rpcinspect.rpc.command_codec import from_message, message_type_of, to_payload
from rpcinspect.rpc.envelope import Envelope, peel_partial, split_wrapped, wrap
from rpcinspect.rpc.message import MessageType, RpcMessage
from rpcinspect.rpc.tensor import TensorMeta, read_tensor_table, to_tensor_table

LayerAndReason: TypeAlias = tuple[str, str]

CACHE_BYTES = 1 << 22
"""Keys of each cache. Decoded, they take some ten times as much."""


class DecodedRpc(Struct):
    """A message without its envelopes, with its parts read. Not frozen: making one would cost three times as
    much."""

    message: RpcMessage
    envelopes: tuple[Envelope, ...]
    """Outermost first."""
    command: Command
    tensors: tuple[TensorMeta, ...]
    """Those of the list first, then the parts of some of them; see `tensor`."""
    problems: tuple[LayerAndReason, ...] = ()


class RpcDecoder:
    """Decodes messages one by one, and remembers byte patterns that repeat."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._tables: BoundedCache[bytes, tuple[TensorMeta, ...]] = BoundedCache(CACHE_BYTES)
        self._commands: BoundedCache[tuple[int, bytes], Command] = BoundedCache(CACHE_BYTES)

    def decode(self, message: RpcMessage) -> DecodedRpc:
        """Decodes all parts of a message; damage becomes `problems`, nothing is raised."""
        problems: list[LayerAndReason] = []
        peeled = peel_partial(message.type, message.payload, self._limits)
        command: Command = UnknownCommand(peeled.type, peeled.payload)
        tensors: tuple[TensorMeta, ...] = ()
        if peeled.error is not None:
            problems.append(_problem(peeled.error))
        else:
            try:
                command = self._command(peeled.type, peeled.payload)
            except DecodeError as error:
                problems.append(_problem(error))
        try:
            tensors = self._table(message.tensor_table)
        except DecodeError as error:
            problems.append(_problem(error))
        return DecodedRpc(message, peeled.envelopes, command, tensors, tuple(problems))

    def _command(self, kind: int, payload: bytes) -> Command:
        command = self._commands.get((kind, payload))
        if command is None:
            command = from_message(kind, payload, self._limits)
            if kind in REPEATING:
                self._commands.put((kind, payload), command, TREE_WEIGHT * len(payload))
        return command

    def _table(self, table: bytes) -> tuple[TensorMeta, ...]:
        tensors = self._tables.get(table)
        if tensors is None:
            tensors = read_tensor_table(table, self._limits)
            self._tables.put(table, tensors, len(table))
        return tensors


def reencode(decoded: DecodedRpc) -> tuple[bytes, bytes, bytes, bytes]:
    """The four TensorPipe payloads from the decoded fields, each part in the forms in which the message has
    it; a command of another type is written as torch writes it. What could not be read is carried as it was.
    """
    message, envelopes = decoded.message, decoded.envelopes
    inner, kind = message.payload, message_type_of(decoded.command)
    for _ in envelopes:
        inner, _ = split_wrapped(inner)
    was = envelopes[-1].wrapped_message_type if envelopes else message.type
    payload = wrap(envelopes, to_payload(decoded.command, inner if kind == was else None), message.payload)
    try:
        read_tensor_table(message.tensor_table)
    except DecodeError:
        table = message.tensor_table
    else:
        table = to_tensor_table(decoded.tensors, message.tensor_table)
    outer = envelopes[0].message_type if envelopes else kind
    return RpcMessage(outer, message.id, payload, table).to_payloads()


def held_bytes(decoded: DecodedRpc) -> int:
    """What a cache holds that keeps the command and the tensors: a large payload is large, however short the
    text is that shows it."""
    return len(decoded.message.payload) + len(decoded.message.tensor_table)


def _problem(error: DecodeError) -> LayerAndReason:
    return error.layer, str(error)


REPEATING: frozenset[int] = frozenset(
    {
        MessageType.SCRIPT_CALL,
        MessageType.SCRIPT_RET,
        MessageType.PYTHON_CALL,
        MessageType.PYTHON_RET,
        MessageType.SCRIPT_RREF_FETCH_CALL,
        MessageType.PYTHON_RREF_FETCH_CALL,
        MessageType.SCRIPT_RREF_FETCH_RET,
        MessageType.PYTHON_RREF_FETCH_RET,
        MessageType.RREF_ACK,
        MessageType.BACKWARD_AUTOGRAD_RESP,
        MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ,
        MessageType.CLEANUP_AUTOGRAD_CONTEXT_RESP,
        MessageType.RREF_BACKWARD_RESP,
        MessageType.EXCEPTION,
    }
)
"""Commands worth remembering; all others carry an id that never comes twice."""
