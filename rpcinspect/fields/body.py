"""What a message says behind its type: its envelopes and its body, in words.

In: envelopes and commands, with names for the tensors in their values. Out: dicts for any JSON writer: the
contract's `envelopes` and `body`. `SAYS` lists what each command has of the fields in `BODY`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from rpcinspect.fields.plain import Json, Picked, number, plain, text
from rpcinspect.late_pattern import late
from rpcinspect.pickles.python import PythonPickle
from rpcinspect.pickles.render import render, render_args
from rpcinspect.pickles.semantic import python_udf, remote_exception
from rpcinspect.rpc.cache import BoundedCache
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    Command,
    ExceptionResponse,
    PropagateGradientsReq,
    PythonCall,
    PythonRemoteCall,
    PythonResp,
    PythonRRefFetchCall,
    PythonRRefFetchRet,
    RemoteRet,
    RRefBackwardReq,
    RRefChildAccept,
    RRefForkRequest,
    RRefUserDelete,
    ScriptCall,
    ScriptRemoteCall,
    ScriptResp,
    ScriptRRefFetchCall,
    ScriptRRefFetchRet,
    UnknownCommand,
)
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.decode import REPEATING, held_bytes
from rpcinspect.rpc.envelope import Envelope, RpcWithAutograd, RpcWithProfilingReq
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.questions import command_context
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta

CACHE_BYTES = 1 << 22
MAX_RENDERED = 4000
"""Characters of a value in words."""
EVENT_KINDS = dict(enumerate(("mark", "push", "pop", "alloc")))

event_json = Picked(
    "kind name thread_id handle node_id cpu_ns cpu_memory "
    "cuda_recorded cuda_memory cuda_device cuda_us shapes",
    kind=lambda kind: EVENT_KINDS.get(kind, str(kind)),
    handle=number,
    cuda_us=number,
)
"""One of `events` of a profiling answer."""
_config_json = Picked("state report_input_shapes profile_memory")


def envelope_json(envelope: Envelope) -> Json:
    """Returns one item of `envelopes`."""
    told: Json = {"type": type_name(envelope.message_type)}
    wrapped = type_name(envelope.wrapped_message_type)
    if isinstance(envelope, RpcWithAutograd):
        told |= _autograd_json(envelope)
        return told | {"device_map": texts(envelope.device_map), "wrapped_type": wrapped}
    told["profiling_id"] = plain(envelope.profiling_id)
    if isinstance(envelope, RpcWithProfilingReq):
        return told | {"config": _config_json(envelope.profiler_config), "wrapped_type": wrapped}
    return told | {"wrapped_type": wrapped, "events": [event_json(one) for one in envelope.profiled_events]}


_autograd_json = Picked(
    "context_id=autograd_metadata.autograd_context_id "
    "autograd_message_id=autograd_metadata.autograd_message_id from_worker_id"
)


def texts(pairs: Mapping[str, str]) -> dict[str, str]:
    """A map of texts, such as devices."""
    return {text(a): text(b) for a, b in pairs.items()}


class Body:
    """The content of a command; expensive parts are made when they are asked for."""

    def __init__(self, command: Command, tensor_texts: Sequence[str], pickle: PythonPickle | None) -> None:
        """`tensor_texts[i]` stands for tensor i in rendered values, see `tensor_text`. `pickle` is the
        command's Python pickle, if it has one. One that can't be read leaves `function` or `value` None;
        `pickle_error` says why.
        """
        self.command: Any = command
        self.tensor_texts = tensor_texts
        error = None if pickle is None else pickle.error
        self._root = None if pickle is None or error is not None else pickle.root
        self.pickle_error = None if error is None else str(error)

    def get(self, name: str) -> Any:
        """The value of a field of `BODY`; None where the command has no such field."""
        return BODY[name](self) if name in SAYS.get(type(self.command), ()) else None

    @cached_property
    def json(self) -> Json:
        """Returns `body` with all fields of the command. Shared: nobody may change it."""
        told = {name: BODY[name](self) for name in SAYS.get(type(self.command), ())}
        if self.pickle_error is None:
            told.pop("pickle_error", None)
        return {"type": type_name(message_type_of(self.command)), **told}

    @cached_property
    def call(self) -> tuple[str | None, list[str], dict[str, str]]:
        """Function, arguments and keyword arguments of a call; of a pickle that is no PythonUDF the whole of
        it as the one argument."""
        if isinstance(self.command, (ScriptCall, ScriptRemoteCall)):
            return self.function, [self.render(value) for value in self.command.args], {}
        if self.pickle_error is not None:
            return None, [], {}
        found = render_args(self._root, self.tensor_texts)
        return found or (None, [self.render(self._root)], {})

    @property
    def function(self) -> str | None:
        """Returns the function of a call."""
        if isinstance(self.command, (ScriptCall, ScriptRemoteCall)):
            return text(self.command.function)
        return self.call[0]

    @cached_property
    def error(self) -> Json | None:
        """Returns the error that an answer reports; None where it reports none."""
        if isinstance(self.command, ExceptionResponse):
            return error_json(self.command.text)
        failure = remote_exception(self._root)
        if failure is None:
            return None
        cls = failure.exception_type
        return error_json(failure.message, None if cls is None else text(str(cls)))

    @cached_property
    def value(self) -> str | None:
        """What an answer returns."""
        return self.render(self.trees["value"]) if "value" in self.trees else None

    @cached_property
    def trees(self) -> Json:
        """The inert trees that `args`, `kwargs` and `value` are rendered from, as far as there are any."""
        if isinstance(self.command, (ScriptCall, ScriptRemoteCall)):
            return {"args": self.command.args}
        if isinstance(self.command, ScriptResp):
            return {"value": self.command.value}
        if isinstance(self.command, ScriptRRefFetchRet):
            values = self.command.values
            return {"value": values[0] if len(values) == 1 else values}
        said = SAYS.get(type(self.command), ())
        if self.pickle_error is not None or not {"args", "value"} & {*said} or self.error is not None:
            return {}
        if "value" in said:
            return {"value": self._root}
        call = python_udf(self._root)
        return {"args": (self._root,)} if call is None else {"args": call.args, "kwargs": call.kwargs}

    def render(self, value: Any, max_chars: int = MAX_RENDERED) -> str:
        """Returns a value in words."""
        return render(value, self.tensor_texts, max_chars=max_chars)


def _told(*names: str) -> Callable[[Body], object]:
    """Returns the attribute of these that the command has."""
    return lambda body: plain(
        next(getattr(body.command, name) for name in names if hasattr(body.command, name))
    )


BODY: dict[str, Callable[[Body], Any]] = {
    "function": lambda body: body.function,
    "schema": _told("schema"),
    "args": lambda body: body.call[1],
    "kwargs": lambda body: body.call[2],
    "value": lambda body: body.value,
    "error": lambda body: body.error,
    "pickle_error": lambda body: body.pickle_error,
    "async": _told("is_async_execution"),
    "rref_id": _told("ret_rref_id", "rref_id"),
    "fork_id": _told("ret_fork_id", "fork_id"),
    "from_worker_id": _told("from_worker_id"),
    "context_id": lambda body: command_context(body.command),
    "autograd_message_id": lambda body: body.command.autograd_metadata.autograd_message_id,
    "retain_graph": _told("retain_graph"),
    "grads": _told("grads"),
    "payload_hex": lambda body: body.command.payload.hex(),
}
"""Field of a body → its value."""

_CALL = ("function", "args", "kwargs", "pickle_error", "async")
_SCRIPT = ("function", "schema", "args", "async")
_RESULT = ("value", "error", "pickle_error")
_IDS = ("rref_id", "fork_id")

SAYS: dict[type[Any], tuple[str, ...]] = {
    PythonCall: _CALL,
    ScriptCall: _SCRIPT,
    PythonRemoteCall: (*_CALL, *_IDS),
    ScriptRemoteCall: (*_SCRIPT, *_IDS),
    PythonResp: _RESULT,
    ScriptResp: ("value", "error"),
    PythonRRefFetchRet: _RESULT,
    ScriptRRefFetchRet: ("value", "error"),
    PythonRRefFetchCall: ("rref_id", "from_worker_id"),
    ScriptRRefFetchCall: ("rref_id", "from_worker_id"),
    RemoteRet: _IDS,
    RRefUserDelete: _IDS,
    RRefForkRequest: _IDS,
    RRefChildAccept: ("fork_id",),
    PropagateGradientsReq: ("context_id", "autograd_message_id", "retain_graph", "grads"),
    CleanupAutogradContextReq: ("context_id",),
    RRefBackwardReq: ("rref_id", "context_id", "retain_graph"),
    ExceptionResponse: ("error",),
    UnknownCommand: ("payload_hex",),
}
"""Command → its fields, in the order of the contract; empty messages have none."""


def body_of(record: RpcRecord) -> Body:
    """The body of a record, whose pickle was read when it was decoded."""
    return Body(record.rpc.command, tensor_texts(record), record.facts.pickle)


class Bodies:
    """Bodies of messages, each made once for all messages with the same content."""

    def __init__(self) -> None:
        self._known: BoundedCache[tuple[int, int], tuple[object, Body]] = BoundedCache(CACHE_BYTES)

    def of(self, record: RpcRecord) -> Body:
        """Returns the body of one message."""
        rpc = record.rpc
        key = (id(rpc.command), id(rpc.tensors))
        known = self._known.get(key)
        if known is not None:  # the entry holds both objects, so that their ids stay theirs
            return known[1]
        body = body_of(record)
        kind = rpc.envelopes[-1].wrapped_message_type if rpc.envelopes else rpc.message.type
        if kind in REPEATING:
            size = sum(len(str(value)) for value in body.json.values()) + held_bytes(rpc)
            self._known.put(key, (rpc.tensors, body), size)
        return body


def tensor_texts(record: RpcRecord) -> tuple[str, ...]:
    """How each tensor of a message is named in its values."""
    parameters = record.facts.parameters
    return tuple(tensor_text(i, meta, parameter=i in parameters) for i, meta in enumerate(record.rpc.tensors))


def tensor_text(index: int, meta: TensorMeta, *, parameter: bool = False) -> str:
    """How a tensor is named in rendered values: `tensor#0[3,4] float32 grad`."""
    words = [f"tensor#{index}[{','.join(map(str, meta.sizes))}]", meta.dtype]
    if meta.layout != "strided":
        words.append(meta.layout)
    if meta.device != "cpu":
        words.append(ascii(meta.device)[1:-1])
    if meta.conj:
        words.append("conj")
    if meta.neg:
        words.append("neg")
    if parameter:
        words.append("parameter")
    if meta.requires_grad:
        words.append("grad")
    return " ".join(words)


def error_json(message: str | bytes, exception_type: str | None = None) -> Json:
    """Returns `error`: what failed, on which node, and the whole text."""
    message = text(message)
    on_worker = _ON_WORKER.match(message) or _ON_NODE.match(message)
    node_id = int(on_worker[1]) if on_worker else None
    if exception_type is None and on_worker is not None:
        named = _EXCEPTION_NAME.match(message, on_worker.end())
        exception_type = named[1] if named else None
    return {"type": exception_type, "node_id": node_id, "text": message}


_ON_WORKER = late(r"On WorkerInfo\(id=(\d{1,5}), name=[^\n]*\):\n")
_ON_NODE = late(r"Error on Node (\d{1,5}): ")
"""How torch starts the text of a failure that it passes on: of a call, and of a backward pass."""
_EXCEPTION_NAME = late(r"([A-Za-z_][\w.]{0,200})\(")
"""The `repr` of an exception, which follows."""
