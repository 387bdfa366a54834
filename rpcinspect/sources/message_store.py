"""Messages that are kept on the disk instead of in memory: what millions of them take there is a few bytes
for each block.

In: messages in the order in which they became complete. Out: any of them again by its row, or all in order,
and their blocks for an index. A block is packed by Zstandard. One thread may add while others read.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from threading import RLock

import zstandard
from msgspec import Struct

from rpcinspect.errors import DecodeError
from rpcinspect.files.closing import Closing
from rpcinspect.files.temporary import Temporary
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.sources.message_codec import (
    LAYER,
    BlockReader,
    Change,
    furthest,
    pack,
    pipe_state,
    to_json,
)
from rpcinspect.tensorpipe.records import Pipe, TpMessage

BLOCK_MESSAGES = 512
BLOCK_BYTES = 1 << 20
"""Of payloads and places of tensors, at which a block ends; the last message may be larger."""
PIECE_BYTES = 16
"""Of each place: a large tensor lies in thousands of packets."""
LEVEL = 1
"""Of Zstandard: higher ones take twice the time for a tenth of the bytes."""
KEPT_BYTES = 1 << 24
"""Of blocks whose messages are at hand, unpacked. In the order of time they are asked for in turns: a source
gives the messages of a window of its capture stream by stream."""


class BlockPlace(Struct, gc=False, frozen=True):
    """Where a block lies."""

    first: int
    """Row of its first message."""
    count: int
    offset: int
    packed: int
    """Bytes that it takes."""
    size: int
    """Bytes that it is unpacked."""
    checksum: int
    """CRC-32 of the packed bytes."""


class StoredMessages:
    """Blocks of messages, wherever they lie."""

    def __init__(
        self, places: list[BlockPlace], read: Callable[[int, int], bytes], reader: BlockReader
    ) -> None:
        """`read(offset, length)` gives the bytes of blocks."""
        self.places = places
        self._read = read
        self._reader = reader
        self._unpack = zstandard.ZstdDecompressor()
        self._kept: OrderedDict[int, list[TpMessage]] = OrderedDict()
        self._kept_bytes = 0
        self._lock = RLock()

    def __len__(self) -> int:
        return self.places[-1].first + self.places[-1].count if self.places else 0

    def __getitem__(self, row: int) -> TpMessage:
        """Returns the message of a row. Raises `DecodeError` where its block is damaged."""
        if not 0 <= row < len(self):
            raise IndexError(row)
        with self._lock:
            number = bisect_right(self.places, row, key=lambda place: place.first) - 1
            block = self._kept.get(number)
            if block is None:
                self._make_room(self.places[number].size)
                block = self._kept[number] = self.block(number)[0]
            else:
                self._kept.move_to_end(number)
            return block[row - self.places[number].first]

    def _make_room(self, size: int) -> None:
        self._kept_bytes += size
        while self._kept and self._kept_bytes > KEPT_BYTES:
            number, _ = self._kept.popitem(last=False)
            self._kept_bytes -= self.places[number].size

    def __iter__(self) -> Iterator[TpMessage]:
        for number in range(len(self.places)):
            yield from self.block(number)[0]

    def packed(self, place: BlockPlace) -> bytes:
        """Returns the bytes of a block as they are kept. Raises `DecodeError` where they are not as they
        were written."""
        data = self._read(place.offset, place.packed)
        if len(data) != place.packed or zlib.crc32(data) != place.checksum:
            raise DecodeError(LAYER, "a block of messages is damaged")
        return data

    def block(self, number: int) -> tuple[list[TpMessage], list[Change]]:
        """Returns the messages of a block, and the changes of their pipes. Raises `DecodeError`."""
        place = self.places[number]
        messages, changes = self._reader.read(unpacked(self.packed(place), place.size, self._unpack))
        if len(messages) != place.count:
            raise DecodeError(LAYER, "a block has more or fewer messages than its table says")
        return messages, changes


def unpacked(data: bytes, size: int, by: zstandard.ZstdDecompressor) -> bytes:
    """Returns the `size` bytes that Zstandard has packed. Raises `DecodeError`; never takes more memory."""
    try:
        if zstandard.frame_content_size(data) == size:
            return by.decompress(data, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DecodeError(LAYER, f"packed bytes are damaged: {error}") from error
    raise DecodeError(LAYER, "packed bytes are more or fewer than they should be")


class MessageStore(StoredMessages, Closing):
    """Messages in a temporary file: `extend` with all that come, in their order."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._file = Temporary()
        self._pipes: dict[int, Pipe] = {}
        self._states: dict[int, tuple[object, ...]] = {}
        """Of each pipe at the last of its messages."""
        self._waiting: list[TpMessage] = []
        """Messages of the block that is not full yet."""
        self._waiting_bytes = 0
        self._changes: list[Change] = []
        self._bytes = 0
        self._pack = zstandard.ZstdCompressor(level=LEVEL)
        self.reach = 0
        """Where in its capture the last byte of the tensors ends."""
        super().__init__([], self._file.pread, BlockReader(self._pipes, limits=limits))

    def extend(self, messages: Sequence[TpMessage]) -> None:
        """Adds messages, whose rows follow those before; as soon as a source has given them, so that what
        was known of their pipes then is known again."""
        with self._lock:
            noted: set[int] = set()
            for tp in messages:
                pipe = tp.pipe
                if pipe.number not in noted:
                    noted.add(pipe.number)
                    self._note(pipe)
                self._waiting.append(tp)
                self._waiting_bytes += tp.length
                for tensor in tp.tensors:
                    if tensor.extent is not None:
                        self._waiting_bytes += PIECE_BYTES * len(tensor.extent.pieces)
                if len(self._waiting) >= BLOCK_MESSAGES or self._waiting_bytes >= BLOCK_BYTES:
                    self.flush()

    def _note(self, pipe: Pipe) -> None:
        """Notes what has changed of a pipe since its last message."""
        state = pipe_state(pipe)
        if self._states.get(pipe.number) != state:
            self._states[pipe.number], self._pipes[pipe.number] = state, pipe
            self._changes.append((len(self._waiting), to_json(pipe)))

    def flush(self) -> None:
        """Writes what waits for its block to become full."""
        with self._lock:
            messages = self._waiting
            if not messages:
                return
            data = pack(messages, self._changes)
            self.reach = max(self.reach, furthest(messages))
            packed = self._pack.compress(data)
            first, offset = super().__len__(), self._bytes
            self._bytes += self._file.write(packed)
            self.places.append(
                BlockPlace(first, len(messages), offset, len(packed), len(data), zlib.crc32(packed))
            )
            self._waiting, self._waiting_bytes, self._changes = [], 0, []

    def __len__(self) -> int:
        with self._lock:
            return super().__len__() + len(self._waiting)

    def __getitem__(self, row: int) -> TpMessage:
        with self._lock:
            written = super().__len__()
            if written <= row < written + len(self._waiting):
                return self._waiting[row - written]
            return super().__getitem__(row)

    def __iter__(self) -> Iterator[TpMessage]:
        self.flush()
        return super().__iter__()

    @property
    def bytes(self) -> int:
        """Returns what it takes on the disk."""
        return self._bytes

    def close(self) -> None:
        """Closes the file, of which nothing is left."""
        self._file.close()
