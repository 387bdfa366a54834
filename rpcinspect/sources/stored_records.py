"""Records of messages that are in a store: decoded when somebody asks for them, and forgotten again.

In: a store of messages, and the rows of the messages in the order of time. Out: what a list of all records
would be, as `RunModel` takes it, in bounded memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from threading import RLock
from typing import overload

import numpy as np
from numpy.typing import NDArray

from rpcinspect.rpc.record import RecordDecoder, RpcRecord
from rpcinspect.sources.message_store import StoredMessages

KEPT_RECORDS = 1024


class StoredRecords(Sequence[RpcRecord]):
    """Records by their index. Decoding is deterministic: a record that is asked for again says the same."""

    def __init__(self, messages: StoredMessages, order: NDArray[np.int64]) -> None:
        """`order`: the row of each index, `Session.order`."""
        self._messages = messages
        self._order = order
        self._decoder = RecordDecoder()
        self._record = lru_cache(KEPT_RECORDS)(self._decoded)
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> RpcRecord: ...

    @overload
    def __getitem__(self, index: slice) -> list[RpcRecord]: ...

    def __getitem__(self, index: int | slice) -> RpcRecord | list[RpcRecord]:
        """Returns a record, or several."""
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        row = int(self._order[index])
        with self._lock:
            return self._record(row)

    def _decoded(self, row: int) -> RpcRecord:
        return self._decoder.again(row, self._messages[row])
