"""The contract's `body` of messages, each made once for all that say the same.

In: records. Out: dicts, which are shared: nobody may change them.
"""

from __future__ import annotations

from typing import Any

from rpcinspect.rpc.cache import BoundedCache
from rpcinspect.rpc.decode import REPEATING, held_bytes
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.views.contract.message import body_of, tensor_texts

CACHE_BYTES = 1 << 22


class Bodies:
    """A memory of bodies in words."""

    def __init__(self) -> None:
        self._known: BoundedCache[tuple[int, int], tuple[object, object, dict[str, Any]]]
        self._known = BoundedCache(CACHE_BYTES)

    def of(self, record: RpcRecord) -> dict[str, Any]:
        """The body of one message."""
        rpc = record.rpc
        key = (id(rpc.command), id(rpc.tensors))
        known = self._known.get(key)
        if known is not None:  # the entry holds both objects, so that their ids stay theirs
            return known[2]
        body = body_of(record, tensor_texts(record))
        kind = rpc.envelopes[-1].wrapped_message_type if rpc.envelopes else rpc.message.type
        if kind in REPEATING:
            size = sum(len(str(v)) for v in body.values()) + held_bytes(record.rpc)
            self._known.put(key, (rpc.command, rpc.tensors, body), size)
        return body
