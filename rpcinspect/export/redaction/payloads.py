"""Payloads of messages with other values: envelopes, commands and tensor tables, of the same lengths.

In: type and payload of a message as torch's agent sends them. Out: as many bytes that say the same to a
decoder, but for the values. What can't be read is replaced as a whole.
"""

from __future__ import annotations

from contextlib import suppress

from rpcinspect.errors import DecodeError
from rpcinspect.export.redaction.pickles import (
    OWN_CALLS,
    Substitute,
    jit_string,
    redact_jit,
    redact_python,
    utf8,
)
from rpcinspect.export.redaction.pseudonyms import Pseudonyms
from rpcinspect.export.redaction.public import OPERATOR, SCHEMA, TABLE, TYPE
from rpcinspect.rpc.command import (
    Command,
    ExceptionResponse,
    PythonCall,
    PythonRemoteCall,
    PythonResp,
    PythonRRefFetchRet,
    ScriptCall,
    ScriptRemoteCall,
    ScriptResp,
    ScriptRRefFetchRet,
    UnknownCommand,
)
from rpcinspect.rpc.command_codec import BUILTIN_OP_NAMESPACE, from_message
from rpcinspect.rpc.envelope import (
    FOOTER_BYTES,
    RpcWithProfilingResp,
    peel_partial,
    split_wrapped,
)
from rpcinspect.rpc.tensor import read_tensor_table

OPERATORS = BUILTIN_OP_NAMESPACE.encode()


def redact_payload(kind: int, payload: bytes, words: Pseudonyms, *, control: bool = False) -> bytes:
    """The RPC payload of a message; `control`: the agents' own."""
    peeled = peel_partial(kind, payload)
    pieces: list[bytes] = []
    for envelope in peeled.envelopes:
        payload, suffix = split_wrapped(payload)
        say = _events(words) if isinstance(envelope, RpcWithProfilingResp) else jit_string(words)
        length = len(suffix).to_bytes(FOOTER_BYTES, "big")
        pieces.append(redact_jit(suffix, words, say) + length)
    inner = words.filler(peeled.payload)
    if peeled.error is None:
        with suppress(DecodeError):
            inner = _command(peeled.type, peeled.payload, words, control)
    return inner + b"".join(reversed(pieces))


def _events(words: Pseudonyms) -> Substitute:
    """Names of profiled events: operators, functions, and whatever the user called a range."""
    return lambda text: words.type_tag(text) if TYPE.fullmatch(text) else words.text(text)


def _command(kind: int, payload: bytes, words: Pseudonyms, control: bool) -> bytes:
    """A payload without envelopes; DecodeError where it can't be read."""
    command = from_message(kind, payload)
    if isinstance(command, UnknownCommand):
        return words.filler(payload)
    if isinstance(command, ExceptionResponse):
        return words.text(payload)
    if isinstance(command, PythonCall):
        return payload[:1] + _pickled(payload[1:], words, control)
    if isinstance(command, PythonResp):
        return _pickled(payload, words, control)
    if not payload:
        return payload
    values = isinstance(command, (ScriptCall, ScriptRemoteCall, ScriptResp, ScriptRRefFetchRet))
    if isinstance(command, ScriptCall):
        values = command.qualified_name.removeprefix("__torch__.") not in OWN_CALLS
    return redact_jit(
        payload,
        words,
        _strings(command, words, control),
        numbers=values,
        kept=(-1, -2) if isinstance(command, ScriptRemoteCall) else (),
        floats=values,
    )


def _strings(command: Command, words: Pseudonyms, control: bool) -> Substitute:
    """What stands for the strings of a command: a Python pickle among them is replaced value by value."""
    other = jit_string(words)
    if isinstance(command, (PythonRemoteCall, PythonRRefFetchRet)):
        pickled = command.serialized_py_obj
        inside = _pickled(pickled, words, control)
        return lambda text: inside if text == pickled else other(text)
    said: dict[bytes, bytes] = {}
    if isinstance(command, (ScriptCall, ScriptRemoteCall)) and command.schema is not None:
        schema, name = utf8(command.schema), utf8(command.qualified_name)
        own = name.removeprefix(OPERATORS)
        said[name] = name if OPERATOR.fullmatch(name) else OPERATORS + words.word(own)
        if SCHEMA.fullmatch(schema):
            said[schema] = schema
    return lambda text: said[text] if text in said else other(text)


def _pickled(data: bytes, words: Pseudonyms, control: bool) -> bytes:
    """A Python pickle; one that can't be read is replaced as a whole."""
    try:
        return redact_python(data, words, control=control)
    except DecodeError:
        return words.filler(data)


def redact_table(table: bytes, words: Pseudonyms) -> bytes:
    """The tensor table: shapes, types and devices stay, scales of quantized tensors do not."""
    try:
        read_tensor_table(table)
    except DecodeError:
        return words.filler(table)
    other = jit_string(words)

    def say(text: bytes) -> bytes:
        return text if text in TABLE or text.isdigit() else other(text)

    return redact_jit(table, words, say, floats=True)
