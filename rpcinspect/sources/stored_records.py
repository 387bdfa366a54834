"""Records of messages that are in a store: decoded when somebody asks for them, and forgotten again.

In: a store of messages, and the rows of the messages in the order of time. Out: what a list of all records
would be, as `RunModel` takes it, in bounded memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from threading import RLock
from typing import overload

import numpy as np
from numpy.typing import NDArray

from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.rpc.record import RecordDecoder, RpcRecord
from rpcinspect.sources.message_store import StoredMessages

KEPT_RECORDS = 1024


class StoredRecords(Sequence[RpcRecord]):
    """Records by their index. Decoding is deterministic: a record that is asked for again says the same."""

    def __init__(
        self, messages: StoredMessages, order: NDArray[np.int64], limits: Limits = DEFAULT_LIMITS
    ) -> None:
        """`order`: the row of each index, `Session.order`."""
        self._messages = messages
        self._order = order
        self._decoder = RecordDecoder(limits)
        self._kept: OrderedDict[int, RpcRecord] = OrderedDict()
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
            record = self._kept.get(row)
            if record is None:
                record = self._kept[row] = self._decoder.again(row, self._messages[row])
                if len(self._kept) > KEPT_RECORDS:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(row)
            return record

    def __iter__(self) -> Iterator[RpcRecord]:
        for index in range(len(self)):
            yield self[index]
