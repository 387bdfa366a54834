"""Decoded messages → the dicts of the output contract (schema 1): envelopes, body, tensors of a message line.

In: envelopes, commands and tensor metas, and what only the session knows (where the bytes of a tensor are,
which worker is who) as arguments. Out: dicts of str, int, finite float, bool, None, list and dict, ready for
any JSON writer: bytes are escaped text or hex, non-finite floats are "nan", "inf" or "-inf", every int fits
64 bits. Captured text is passed on unescaped otherwise; what shows it on a terminal must escape control
characters. Pure functions; a caller that sees the same command and the same tensor table again may keep the
result.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from rpcinspect.errors import DecodeError
from rpcinspect.limits import DEFAULT_LIMITS, Limits
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
from rpcinspect.rpc.command_codec import message_type_of, python_pickle
from rpcinspect.rpc.envelope import Envelope, RpcWithAutograd, RpcWithProfilingReq
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.pickles.python import PythonPickle
from rpcinspect.rpc.pickles.render import render, render_args
from rpcinspect.rpc.pickles.semantic import remote_exception
from rpcinspect.rpc.profiling import LegacyEvent
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.types import GloballyUniqueId

Json: TypeAlias = dict[str, Any]

EVENT_KINDS = ("mark", "push", "pop", "alloc")


def envelope_json(envelope: Envelope) -> Json:
    """One item of `envelopes`."""
    out: Json = {"type": type_name(envelope.message_type)}
    if isinstance(envelope, RpcWithAutograd):
        out["context_id"] = envelope.autograd_metadata.autograd_context_id
        out["autograd_message_id"] = envelope.autograd_metadata.autograd_message_id
        out["from_worker_id"] = envelope.from_worker_id
        out["device_map"] = {text(source): text(target) for source, target in envelope.device_map.items()}
        out["wrapped_type"] = type_name(envelope.wrapped_message_type)
        return out
    out["profiling_id"] = _id(envelope.profiling_id)
    if isinstance(envelope, RpcWithProfilingReq):
        config = envelope.profiler_config
        out["config"] = {
            "state": config.state,
            "report_input_shapes": config.report_input_shapes,
            "profile_memory": config.profile_memory,
        }
        out["wrapped_type"] = type_name(envelope.wrapped_message_type)
    else:
        out["wrapped_type"] = type_name(envelope.wrapped_message_type)
        out["events"] = [event_json(event) for event in envelope.profiled_events]
    return out


def event_json(event: LegacyEvent) -> Json:
    """One of `events` of a profiling answer."""
    kind = event.kind
    return {
        "kind": EVENT_KINDS[kind] if 0 <= kind < len(EVENT_KINDS) else str(kind),
        "name": text(event.name),
        "thread_id": event.thread_id,
        "handle": number(event.handle),
        "node_id": event.node_id,
        "cpu_ns": event.cpu_ns,
        "cpu_memory": event.cpu_memory,
        "cuda_recorded": event.cuda_recorded,
        "cuda_memory": event.cuda_memory,
        "cuda_device": event.cuda_device,
        "cuda_us": number(event.cuda_us),
        "shapes": [list(shape) for shape in event.shapes],
    }


def body_json(
    command: Command,
    tensor_texts: Sequence[str],
    pickle: PythonPickle | DecodeError | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Json:
    """`body`. `tensor_texts[i]` stands for tensor i in rendered values, see `tensor_text`.

    `pickle` is the command's Python pickle where the caller has read it already, or why it could not; else it
    is read here. A pickle that can't be read leaves `function` or `value` null and says why in
    `pickle_error`.
    """
    out: Json = {"type": type_name(message_type_of(command))}
    if pickle is None and isinstance(command, (PythonCall, PythonRemoteCall, PythonResp, PythonRRefFetchRet)):
        try:
            pickle = python_pickle(command, limits)
        except DecodeError as error:
            pickle = error
    fill = BODIES.get(type(command))
    if fill is not None:
        fill(out, command, _Context(tensor_texts, pickle, limits))
    return out


def body_of(record: RpcRecord, tensor_texts: Sequence[str]) -> Json:
    """`body` of a record, whose pickle was read when it was decoded."""
    pickle = record.facts.pickle
    told = pickle.error if pickle is not None and pickle.error is not None else pickle
    return body_json(record.rpc.command, tensor_texts, told)


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


def tensor_json(
    meta: TensorMeta,
    *,
    storage_nbytes: int | None,
    missing_bytes: int,
    placement: str,
    sha256: str | None,
    target_device: str | None,
    parameter: bool = False,
) -> Json:
    """One item of `tensors`; the arguments are what the wire around the message tells of the storage."""
    quantizer = meta.quantizer
    return {
        "dtype": meta.dtype,
        "shape": list(meta.sizes),
        "stride": list(meta.strides),
        "offset": meta.storage_offset,
        "layout": meta.layout,
        "device": text(meta.device),
        "target_device": None if target_device is None else text(target_device),
        "requires_grad": meta.requires_grad,
        "parameter": parameter,
        "conj": meta.conj,
        "neg": meta.neg,
        "quantizer": None
        if quantizer is None
        else {
            "scheme": text(quantizer.scheme),
            "scale": None if quantizer.scale is None else number(quantizer.scale),
            "zero_point": quantizer.zero_point,
            "axis": quantizer.axis,
        },
        "parts": dict(meta.parts),
        "storage": meta.storage,
        "storage_nbytes": storage_nbytes,
        "missing_bytes": missing_bytes,
        "placement": placement,
        "sha256": sha256,
    }


def error_json(message: str | bytes, exception_type: str | None = None) -> Json:
    """`error`: what failed, on which node, and all that was said about it."""
    message = text(message)
    on_worker = _ON_WORKER.match(message) or _ON_NODE.match(message)
    node_id = int(on_worker[1]) if on_worker else None
    if exception_type is None and on_worker is not None:
        named = _EXCEPTION_NAME.match(message, on_worker.end())
        exception_type = named[1] if named else None
    return {"type": exception_type, "node_id": node_id, "text": message}


def text(value: str | bytes) -> str:
    """Text that UTF-8 can hold; what can't be is escaped with backslashes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if value.isascii():
        return value
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # surrogates that stand for no byte
        return value.encode("utf-8", "backslashreplace").decode("utf-8")


def number(value: int | float) -> int | float | str:
    """A number that JSON has, or "nan", "inf", "-inf"; whole floats that fit are ints."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        if value.is_integer() and abs(value) < 1 << 53:
            return int(value)
    return value


class _Context:
    """What filling in a body needs beside the command."""

    def __init__(
        self, tensor_texts: Sequence[str], pickle: PythonPickle | DecodeError | None, limits: Limits
    ) -> None:
        self.tensor_texts = tensor_texts
        self.pickle = pickle
        self.limits = limits

    def render(self, value: Any) -> str:
        return render(value, self.tensor_texts, self.limits)

    def call(self, out: Json) -> None:
        """function, args, kwargs of a pickled PythonUDF; of any other pickle the whole of it as the one
        argument."""
        out["function"], out["args"], out["kwargs"] = None, [], {}
        if isinstance(self.pickle, PythonPickle):
            call = render_args(self.pickle.root, self.tensor_texts, self.limits)
            if call is None:
                out["args"] = [self.render(self.pickle.root)]
            else:
                out["function"], out["args"], out["kwargs"] = call
        else:
            out["pickle_error"] = str(self.pickle)

    def result(self, out: Json) -> None:
        """value and error of a pickled result."""
        out["value"] = out["error"] = None
        if isinstance(self.pickle, PythonPickle):
            failure = remote_exception(self.pickle.root)
            if failure is None:
                out["value"] = self.render(self.pickle.root)
            else:
                cls = failure.exception_type
                out["error"] = error_json(failure.message, None if cls is None else text(str(cls)))
        else:
            out["pickle_error"] = str(self.pickle)


def _python_call(out: Json, command: PythonCall, context: _Context) -> None:
    context.call(out)
    out["async"] = command.is_async_execution


def _python_remote_call(out: Json, command: PythonRemoteCall, context: _Context) -> None:
    context.call(out)
    out["async"] = command.is_async_execution
    out["rref_id"], out["fork_id"] = _id(command.ret_rref_id), _id(command.ret_fork_id)


def _script_call(out: Json, command: ScriptCall | ScriptRemoteCall, context: _Context) -> None:
    out["function"] = text(command.function)
    out["schema"] = None if command.schema is None else text(command.schema)
    out["args"] = [context.render(value) for value in command.args]
    out["async"] = command.is_async_execution


def _script_remote_call(out: Json, command: ScriptRemoteCall, context: _Context) -> None:
    _script_call(out, command, context)
    out["rref_id"], out["fork_id"] = _id(command.ret_rref_id), _id(command.ret_fork_id)


def _python_result(out: Json, command: PythonResp | PythonRRefFetchRet, context: _Context) -> None:
    context.result(out)


def _script_ret(out: Json, command: ScriptResp, context: _Context) -> None:
    out["value"], out["error"] = context.render(command.value), None


def _script_fetch_ret(out: Json, command: ScriptRRefFetchRet, context: _Context) -> None:
    values = command.values
    out["value"], out["error"] = context.render(values[0] if len(values) == 1 else values), None


def _fetch_call(out: Json, command: ScriptRRefFetchCall | PythonRRefFetchCall, context: _Context) -> None:
    out["rref_id"], out["from_worker_id"] = _id(command.rref_id), command.from_worker_id


def _fork(out: Json, command: RemoteRet | RRefUserDelete | RRefForkRequest, context: _Context) -> None:
    out["rref_id"], out["fork_id"] = _id(command.rref_id), _id(command.fork_id)


def _child_accept(out: Json, command: RRefChildAccept, context: _Context) -> None:
    out["fork_id"] = _id(command.fork_id)


def _propagate_gradients(out: Json, command: PropagateGradientsReq, context: _Context) -> None:
    out["context_id"] = command.autograd_metadata.autograd_context_id
    out["autograd_message_id"] = command.autograd_metadata.autograd_message_id
    out["retain_graph"] = command.retain_graph
    out["grads"] = list(command.grads)


def _cleanup(out: Json, command: CleanupAutogradContextReq, context: _Context) -> None:
    out["context_id"] = command.context_id


def _rref_backward(out: Json, command: RRefBackwardReq, context: _Context) -> None:
    out["rref_id"], out["context_id"] = _id(command.rref_id), command.autograd_context_id
    out["retain_graph"] = command.retain_graph


def _exception(out: Json, command: ExceptionResponse, context: _Context) -> None:
    out["error"] = error_json(command.text)


def _unknown(out: Json, command: UnknownCommand, context: _Context) -> None:
    out["payload_hex"] = command.payload.hex()


def _id(unique: GloballyUniqueId) -> list[int]:
    return [unique.created_on, unique.local_id]


_ON_WORKER = re.compile(r"On WorkerInfo\(id=(\d{1,5}), name=[^\n]*\):\n")
_ON_NODE = re.compile(r"Error on Node (\d{1,5}): ")
"""How torch starts the text of a failure that it passes on: of a call, and of a backward pass."""
_EXCEPTION_NAME = re.compile(r"([A-Za-z_][\w.]{0,200})\(")
"""The `repr` of an exception, which follows."""

BODIES: dict[type[Any], Callable[[Json, Any, _Context], None]] = {
    PythonCall: _python_call,
    ScriptCall: _script_call,
    PythonRemoteCall: _python_remote_call,
    ScriptRemoteCall: _script_remote_call,
    PythonResp: _python_result,
    ScriptResp: _script_ret,
    PythonRRefFetchRet: _python_result,
    ScriptRRefFetchRet: _script_fetch_ret,
    PythonRRefFetchCall: _fetch_call,
    ScriptRRefFetchCall: _fetch_call,
    RemoteRet: _fork,
    RRefUserDelete: _fork,
    RRefForkRequest: _fork,
    RRefChildAccept: _child_accept,
    PropagateGradientsReq: _propagate_gradients,
    CleanupAutogradContextReq: _cleanup,
    RRefBackwardReq: _rref_backward,
    ExceptionResponse: _exception,
    UnknownCommand: _unknown,
}
"""What fills in the fields behind `type`; empty messages have none."""
