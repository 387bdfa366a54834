"""The TCPStore conversation of one connection -> keys with their values.

In: the ordered bytes of both directions, segment by segment, each with its time. Out: a `StoreEntry` for
every key whose value the bytes tell. May assume that `looks_like_store` knew the connection, so both
directions start at their first byte; they may be fed in any interleaving, and one may be missing.

    request   u8 operation, then its arguments; a string is u64 length + bytes, a list u64 count + items
    reply     one per request, in the order of the requests; some operations have none

Nothing but the order says which reply belongs to which request, and nothing marks where a request begins:
after lost bytes a direction is given up. Mirrors `torch/csrc/distributed/c10d/TCPStore.cpp` and
`TCPStoreLibUvBackend.cpp`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator
from typing import TypeAlias, TypeVar

from msgspec import Struct

from rpcinspect.late_pattern import late
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.store.directory import StoreEntry, directory_key
from rpcinspect.store.operations import (
    OPERATIONS,
    WAIT,
    Operation,
    StoreGeneration,
)

_T = TypeVar("_T")
_Steps: TypeAlias = Generator[None, None, _T]
"""Reads something piece by piece: yields whenever it needs more than is there, returns what it read."""

KEPT_VALUE_BYTES = 320
KEPT_DIRECTORY_VALUE_BYTES = 1 << 20
"""How much of a value is kept: of most keys (Gloo's addresses, counters), of those of the directory."""
REQUEST_COST = 100
"""What a request that awaits its reply, and each of its keys, counts for besides the bytes of the keys;
together they may come to `limits.store_item_bytes`."""

MAX_KEY_COUNT = 1 << 17
"""Of one request; the store's own limit."""

STOP_WAITING, WAIT_CANCELED = 0, 1
"""Replies to `WAIT` and `BARRIER`; the second one only after a `CANCEL_WAIT`."""


class StoreProblem(Struct, frozen=True):
    """Reason why one direction was not followed to its end."""

    reason: str
    from_client: bool
    offset: int
    """Bytes from the start of that direction."""


class StoreConversation:
    """Both directions of a connection to the store.

    Keeps an incomplete item of at most `limits.store_item_bytes` and the requests that await a reply.
    """

    def __init__(self, generation: StoreGeneration, limits: Limits = DEFAULT_LIMITS) -> None:
        self._operations = OPERATIONS[generation]
        self._limits = limits
        self._found: list[StoreEntry] = []
        self._pending: deque[_Request] = deque()
        self._pending_cost = 0
        self._client = _Side(self._requests(), "requests", limits)
        self._server = _Side(self._replies(), "replies", limits)

    def feed(self, from_client: bool, data: bytes, time_ns: int) -> list[StoreEntry]:
        """Takes more bytes of one direction, captured at `time_ns`; returns what became known from both."""
        if from_client:
            self._client.feed(data, time_ns)
            self._server.run()
        else:
            self._server.feed(data, time_ns)
        found, self._found = self._found, []
        return found

    def gap(self, from_client: bool, length: int) -> None:
        """Marks `length` bytes of one direction as missing; that direction is not followed any further."""
        if from_client:
            self._client.lose(length)
            self._server.run()
        else:
            self._server.lose(length)
            self._pending.clear()

    def finish(self) -> list[StoreProblem]:
        """Ends both directions; returns what could not be read, at most one problem per direction.

        A request without a reply is none: the store is often closed while a worker waits for a key.
        """
        if self._client.problem is None and self._client.unread:
            self._client.stop(f"the last request ends after {self._client.unread:,} bytes")
        if self._server.problem is None and self._server.unread:
            count = f"{self._server.unread:,} bytes"
            asked = self._pending[0].operation.name if self._pending else ""
            self._server.stop(
                f"the reply to {asked} ends after {count}" if asked else f"{count} answer no request"
            )
        return [
            StoreProblem(direction.problem[0], direction is self._client, direction.problem[1])
            for direction in (self._client, self._server)
            if direction.problem is not None
        ]

    def _add(self, key: str, value: bytes, size: int, operation: str, direction: _Side) -> None:
        self._found.append(StoreEntry(key, value, size, operation, direction.time_ns()))

    def _requests(self) -> _Steps[None]:
        """Reads requests for ever."""
        read = self._client
        while True:
            read.begin_item()
            code = (yield from read.take(1))[0]
            operation = self._operations.get(code)
            if operation is None:
                raise _ProtocolError(f"operation {code} is unknown")
            keys = yield from self._arguments(operation)
            if operation.reply and self._server.problem is None:
                self._expect_reply(_Request(operation, keys))

    def _expect_reply(self, request: _Request) -> None:
        self._pending.append(request)
        self._pending_cost += request.cost
        if self._pending_cost > self._limits.store_item_bytes:
            self._server.stop(f"{len(self._pending):,} requests came before the reply to the first of them")
            self._pending.clear()

    def _answered(self) -> None:
        """The reply to the first of the requests was read."""
        self._pending_cost -= self._pending.popleft().cost

    def _arguments(self, operation: Operation) -> _Steps[tuple[str, ...]]:
        """Reads what follows the code; returns the keys, for the reply's sake."""
        read = self._client
        keys: list[str] = []
        count = 1
        if operation.arguments.startswith("*"):
            count = yield from read.count()
            if count > MAX_KEY_COUNT:
                raise _ProtocolError(f"{count:,} keys, where the store takes at most {MAX_KEY_COUNT:,}")
        for _ in range(count):
            for kind in operation.arguments.lstrip("*"):
                if kind == "k":
                    key = yield from read.string()
                    keys.append(key.decode("utf-8", "surrogateescape"))
                    if operation is WAIT and _MEETING_KEY.search(keys[-1]):
                        self._add(keys[-1], b"", 0, operation.name, read)
                elif kind == "v":
                    value, size = yield from read.value(keys[-1])
                    if operation.tells_value:
                        self._add(keys[-1], value, size, operation.name, read)
                else:
                    yield from read.take(int(kind))
        return tuple(keys) if operation.reply in ("values", "total") else ()

    def _replies(self) -> _Steps[None]:
        """Reads replies for ever; each needs its request."""
        read = self._server
        while True:
            read.begin_item()
            while not self._pending:
                if self._client.problem is not None and read.unread:
                    raise _ProtocolError("the requests of these replies are missing")
                yield
            yield from self._reply(self._pending[0])
            self._answered()

    def _reply(self, request: _Request) -> _Steps[None]:
        read = self._server
        name = request.operation.name
        match request.operation.reply:
            case "values":
                for key in request.keys:
                    value, size = yield from read.value(key)
                    self._add(key, value, size, name, read)
            case "total":
                total = str(int.from_bytes((yield from read.take(8)), "little", signed=True)).encode()
                self._add(request.keys[0], total, len(total), name, read)
            case "wait":
                yield from self._wait_reply()
            case "queued":
                if int.from_bytes((yield from read.take(8)), "little", signed=True) > 0:
                    yield from read.value("")
            case "list":
                for _ in range((yield from read.count())):
                    yield from read.string()
            case size:
                yield from read.take(int(size))

    def _wait_reply(self) -> _Steps[None]:
        """A wait that was cancelled in time is not answered; then the first byte answers the cancel."""
        answer = (yield from self._server.take(1))[0]
        if answer == WAIT_CANCELED:
            while len(self._pending) < 2:  # the request may be fed after its reply
                yield
            if self._pending[1].operation.name != "cancel_wait":
                raise _ProtocolError("a wait was answered as cancelled, but no one cancelled it")
            self._answered()
        elif answer != STOP_WAITING:
            raise _ProtocolError(f"{answer} in answer to a wait")


class _Request(Struct, frozen=True):
    operation: Operation
    keys: tuple[str, ...]

    @property
    def cost(self) -> int:
        return REQUEST_COST * (1 + len(self.keys)) + sum(map(len, self.keys))


class _ProtocolError(Exception):
    """A direction contradicts the protocol; never leaves this module."""


class _Side:
    """The bytes of one direction, and a generator that reads them: it yields whenever it needs more."""

    def __init__(self, steps: _Steps[None], what: str, limits: Limits) -> None:
        self.problem: tuple[str, int] | None = None
        """Why this direction is not read any more, and where."""
        self._steps = steps
        self._what = what
        self._limit = limits.store_item_bytes
        self._buffer = bytearray()
        self._position = 0
        """Of the first byte in the buffer that was not read."""
        self._dropped = 0
        """Bytes of the stream before the buffer."""
        self._item_start = 0
        """From the start of the stream."""
        self._held = 0
        """Bytes of this item that were read and are likely to be in memory."""
        self._times: deque[tuple[int, int]] = deque()
        """(position behind the last byte, time) of what was fed, from the first on that is not read whole."""

    @property
    def unread(self) -> int:
        """Bytes of an item that is not complete."""
        return self._dropped + len(self._buffer) - self._item_start

    def feed(self, data: bytes, time_ns: int) -> None:
        if self.problem is None:
            self._buffer += data
            self._note_time(time_ns)
            self.run()
            self._compact()

    def time_ns(self) -> int:
        """When the last of the bytes that were read was captured."""
        position, times = self._dropped + self._position, self._times
        while len(times) > 1 and times[0][0] < position:
            times.popleft()
        return times[0][1] if times else 0

    def _note_time(self, time_ns: int) -> None:
        if self._times and self._times[-1][1] == time_ns:
            self._times.pop()
        self._times.append((self._dropped + len(self._buffer), time_ns))

    def run(self) -> None:
        """Reads as far as the bytes go."""
        if self.problem is not None:
            return
        try:
            next(self._steps)
        except _ProtocolError as broken:
            self.stop(str(broken))
        if len(self._buffer) - self._position > self._limit:
            self.stop(f"more than {self._limit:,} bytes of {self._what} that match no operation")

    def lose(self, length: int) -> None:
        """Marks that bytes are missing behind those that were fed."""
        self.stop(f"{length:,} bytes of {self._what} are missing", self._dropped + len(self._buffer))

    def stop(self, reason: str, offset: int | None = None) -> None:
        """Ends the reading; `offset`: that of the current item unless given."""
        if self.problem is None:
            self.problem = reason, self._item_start if offset is None else offset
            self._buffer.clear()
            self._times.clear()

    def begin_item(self) -> None:
        """A request or a reply begins here."""
        self._item_start = self._dropped + self._position
        self._held = 0

    def take(self, length: int) -> _Steps[bytes]:
        self._held += length
        if self._held > self._limit:
            raise _ProtocolError(
                f"an item of {self._held:,} bytes is over the limit store_item_bytes = {self._limit:,}"
            )
        while len(self._buffer) - self._position < length:
            yield
        start = self._position
        self._position = start + length
        return bytes(self._buffer[start : self._position])

    def string(self) -> _Steps[bytes]:
        size = int.from_bytes((yield from self.take(8)), "little")
        return (yield from self.take(size))

    def count(self) -> _Steps[int]:
        """The number of items of a list; each has at least its own length on the wire."""
        count = int.from_bytes((yield from self.take(8)), "little")
        if count * 8 > self._limit:
            raise _ProtocolError(
                f"a list of {count:,} items is over the limit store_item_bytes = {self._limit:,}"
            )
        return count

    def value(self, key: str) -> _Steps[tuple[bytes, int]]:
        """Reads a value; returns the part that is kept, and the whole size."""
        size = int.from_bytes((yield from self.take(8)), "little")
        if size > self._limit:
            raise _ProtocolError(
                f"a value of {size:,} bytes is over the limit store_item_bytes = {self._limit:,}"
            )
        kept = min(size, KEPT_DIRECTORY_VALUE_BYTES if directory_key(key) is not None else KEPT_VALUE_BYTES)
        data = yield from self.take(kept)
        left = size - kept
        while left:
            step = min(left, len(self._buffer) - self._position)
            self._position += step
            left -= step
            if left:
                self._compact()
                yield
        return data, size

    def _compact(self) -> None:
        """Forgets what was read; only once it is half of the buffer, so that few bytes are moved."""
        if self._position * 2 >= len(self._buffer):
            del self._buffer[: self._position]
            self._dropped += self._position
            self._position = 0
            while len(self._times) > 1 and self._times[0][0] < self._dropped:
                self._times.popleft()


_MEETING_KEY = late(r"/rpc_prefix_\d{1,9}/0/\d{1,9}\Z", re.ASCII)
"""Under which a rank tells where its Gloo listens."""
