"""What a trace says of a call, a message and a finding beside their time and place: names and `args`.

In: exchanges, records, findings. Out: short texts and dicts for any JSON writer. Ids of 64 bits are written
as creator:counter, since readers in JavaScript lose digits beyond 2⁵³.
"""

from __future__ import annotations

from collections.abc import Sequence

from rpcinspect.fields.phrases import packed, shorten
from rpcinspect.fields.plain import Json, picked, text
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.questions import context_of, size_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.run.exchanges import Exchange

MAX_TENSORS = 8
"""Tensors of a message that are told; of the others their number."""
MAX_NAME = 200
"""Characters of a function's name that stand in the name of a slice."""


def what(call: Exchange) -> str:
    """The function that is called, else the kind of request."""
    return text(shorten(call.what, MAX_NAME))


def call_args(call: Exchange, parents: Sequence[int], certain: bool) -> Json:
    """Returns the args of a call at its caller; `parents` are the requests that the caller may have been
    serving."""
    args: Json = {
        "request": call.index,
        "answer": call.answer,
        "callee": text(call.callee),
        "type": call.type,
        "function": None if call.function is None else text(call.function),
        "request_bytes": size_of(call.request),
        "answer_bytes": None if call.response is None else size_of(call.response),
    }
    if call.context is not None:
        args["context"] = packed(call.context)
    if parents:
        args["parent" if certain else "ambiguous parents"] = parents[0] if certain else list(parents)
    if call.control:
        args["control"] = True
    if call.failed:
        args["failed"] = True
    return args


def serve_args(call: Exchange) -> Json:
    """Returns the args of a call at its callee."""
    return {"request": call.index, "answer": call.answer, "caller": text(call.caller)}


def message_args(index: int, record: RpcRecord) -> Json:
    """Returns the args of a message at its sender."""
    args: Json = {
        "message": index,
        "type": type_name(record.rpc.message.type),
        "bytes": size_of(record),
        "packet": record.location.packet,
    }
    context = context_of(record)
    if context is not None:
        args["context"] = packed(context)
    metas = [meta for meta in record.rpc.tensors if meta.part_of is None]
    if metas:
        args["tensors"] = [_tensor(meta) for meta in metas[:MAX_TENSORS]]
        if len(metas) > MAX_TENSORS:
            args["more_tensors"] = len(metas) - MAX_TENSORS
    return args


def _tensor(meta: TensorMeta) -> str:
    return f"{meta.dtype}[{','.join(map(str, meta.sizes))}]"


finding_args = picked("text remedy messages workers")
"""A finding in full."""
