"""Whether a message carries NaN or infinity.

In: a message and a reader of its bytes. Out: which of the two, by bits. Elements that were not captured
count as finite, and so do quantized ones, which are integers.
"""

from __future__ import annotations

from rpcinspect.equality.elements import ReadExtent, Tensors, tensors_of
from rpcinspect.equality.floats import FLOATS
from rpcinspect.errors import DecodeError
from rpcinspect.rpc.command import PropagateGradientsReq
from rpcinspect.rpc.message import is_request
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta


def nonfinite(record: RpcRecord, read: ReadExtent) -> str | None:
    """Returns `NaN` where a tensor of a message holds one, else `Inf` where one holds that, else None."""
    tensors = tensors_of(record, read)
    found = {what for meta in tensors.metas for what in _in_tensor(tensors, meta)}
    return "NaN" if "NaN" in found else "Inf" if found else None


def broken_by(record: RpcRecord, read: ReadExtent) -> str | None:
    """Returns what of the two breaks what comes behind a message: an infinity counts in gradients and answers
    only, since masks among the arguments of calls are made of it."""
    found = nonfinite(record, read)
    counts = found == "NaN" or isinstance(record.rpc.command, PropagateGradientsReq)
    return found if counts or not is_request(record.rpc.message.type) else None


def _in_tensor(tensors: Tensors, meta: TensorMeta) -> set[str]:
    layout, storage = FLOATS.get(meta.dtype), tensors.storage(meta)
    found: set[str] = set()
    if layout is None or storage is None or storage.extent is None:
        return found
    try:
        for block in tensors.blocks(meta):
            known = block.codes if block.unknown is None else block.codes[~block.unknown]
            if layout.is_nan(known).any():
                return {"NaN"}
            if layout.is_infinite(known).any():
                found.add("Inf")
    except DecodeError:  # its table and its storage contradict each other, which others tell
        return found
    return found
