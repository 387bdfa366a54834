"""The contract's `body` of messages, each made once for all that say the same.

In: records. Out: dicts, which are shared: nobody may change them.
"""

from __future__ import annotations

from typing import Any

from rpcinspect.rpc.cache import BoundedCache
from rpcinspect.rpc.decode import REPEATING
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.views.message_json import body_json, tensor_text

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
        parameters = record.facts.parameters
        texts = [tensor_text(i, meta, parameter=i in parameters) for i, meta in enumerate(rpc.tensors)]
        pickle = record.facts.pickle
        told = pickle.error if pickle is not None and pickle.error is not None else pickle
        body = body_json(rpc.command, texts, told)
        kind = rpc.envelopes[-1].wrapped_message_type if rpc.envelopes else rpc.message.type
        if kind in REPEATING:
            self._known.put(key, (rpc.command, rpc.tensors, body), sum(len(str(v)) for v in body.values()))
        return body
