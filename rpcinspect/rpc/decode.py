"""One message, taken apart: envelopes, command and tensor table; and put together again.

In: a `Message`. Out: `DecodedRpc`. Nothing is raised for damaged bytes: what was readable is kept, the rest
becomes an `UnknownCommand` or an empty tensor list, and a problem says why. Equal bytes are decoded once: the
tensor table and the command of messages that repeat are the same objects, within bounds.
Python pickles are not read here, see `command_codec.python_pickle`.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from rpcinspect.errors import DecodeError
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.pickles.jit import Forms
from rpcinspect.rpc.cache import TREE_WEIGHT, BoundedCache
from rpcinspect.rpc.command import Command, UnknownCommand
from rpcinspect.rpc.command_codec import from_message, from_message_forms, message_type_of, to_payload
from rpcinspect.rpc.envelope import Envelope, EnvelopeForms, peel_partial, wrap
from rpcinspect.rpc.message import Message, MessageType
from rpcinspect.rpc.tensor import (
    TableForms,
    TensorMeta,
    read_tensor_table,
    read_tensor_table_forms,
    to_tensor_table,
)

LayerAndReason: TypeAlias = tuple[str, str]

CACHE_BYTES = 1 << 22
"""Keys of each cache. Decoded, they take some ten times as much."""


class RpcForms(Struct, frozen=True):
    """How the parts of a message were written."""

    envelopes: tuple[EnvelopeForms, ...]
    command: Forms | None
    tensors: TableForms | None
    """None also where the table could not be read."""


class DecodedRpc(Struct):
    """A message, its envelopes off and its parts read. Not frozen: that triples the cost of making one."""

    message: Message
    envelopes: tuple[Envelope, ...]
    """Outermost first."""
    command: Command
    tensors: tuple[TensorMeta, ...]
    """Those of the list first, then the parts of some of them; see `tensor`."""
    problems: tuple[LayerAndReason, ...] = ()
    forms: RpcForms | None = None
    """Only from a decoder that was asked for them."""


class RpcDecoder:
    """Decodes messages one by one, and remembers byte patterns that repeat."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS, *, forms: bool = False) -> None:
        """`forms`: record how everything was written, for `reencode`; several times slower, nothing is
        remembered."""
        self._limits = limits
        self._with_forms = forms
        self._tables: BoundedCache[bytes, tuple[TensorMeta, ...]] = BoundedCache(CACHE_BYTES)
        self._commands: BoundedCache[tuple[int, bytes], Command] = BoundedCache(CACHE_BYTES)

    def decode(self, message: Message) -> DecodedRpc:
        """Everything that the message says; damage becomes `problems`, nothing is raised."""
        problems: list[LayerAndReason] = []
        peeled = peel_partial(message.type, message.payload, self._limits, with_forms=self._with_forms)
        command: Command = UnknownCommand(peeled.type, peeled.payload)
        tensors: tuple[TensorMeta, ...] = ()
        command_forms = table_forms = None
        if peeled.error is not None:
            problems.append(_problem(peeled.error))
        else:
            try:
                command, command_forms = self._command(peeled.type, peeled.payload)
            except DecodeError as error:
                problems.append(_problem(error))
        try:
            tensors, table_forms = self._table(message.tensor_table)
        except DecodeError as error:
            problems.append(_problem(error))
        forms = RpcForms(peeled.forms, command_forms, table_forms) if self._with_forms else None
        return DecodedRpc(message, peeled.envelopes, command, tensors, tuple(problems), forms)

    def _command(self, kind: int, payload: bytes) -> tuple[Command, Forms | None]:
        if self._with_forms:
            return from_message_forms(kind, payload, self._limits)
        command = self._commands.get((kind, payload))
        if command is None:
            command = from_message(kind, payload, self._limits)
            if kind in REPEATING:
                self._commands.put((kind, payload), command, TREE_WEIGHT * len(payload))
        return command, None

    def _table(self, table: bytes) -> tuple[tuple[TensorMeta, ...], TableForms | None]:
        if self._with_forms:
            return read_tensor_table_forms(table, self._limits)
        tensors = self._tables.get(table)
        if tensors is None:
            tensors = read_tensor_table(table, self._limits)
            self._tables.put(table, tensors, len(table))
        return tensors, None


def reencode(decoded: DecodedRpc) -> tuple[bytes, bytes, bytes, bytes]:
    """The four TensorPipe payloads, from the decoded fields and the recorded forms.

    Without forms everything is written as torch writes it. What could not be read is carried as it was.
    """
    forms = decoded.forms
    payload = to_payload(decoded.command, forms.command if forms else None)
    payload = wrap(decoded.envelopes, payload, forms.envelopes if forms else ())
    envelopes = decoded.envelopes
    kind = envelopes[0].message_type if envelopes else message_type_of(decoded.command)
    if forms is not None and forms.tensors is None:
        table = decoded.message.tensor_table
    else:
        table = to_tensor_table(decoded.tensors, forms.tensors if forms else None)
    return Message(kind, decoded.message.id, payload, table).to_payloads()


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
