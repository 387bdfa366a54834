"""Hashes of tensors' bytes; those of large tensors on other cores, while the pass over the captures goes on.

In: places of bytes. Out: their sha256 in hexadecimal digits. Python lets other threads run while it reads a
file and while it hashes, so that threads do as well here as processes, and nothing is left of them however we
end.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import takewhile
from queue import Empty, SimpleQueue
from threading import Thread

from msgspec import Struct

from rpcinspect.files.closing import Closing
from rpcinspect.tcp.ranges import CaptureBytes, Extent

LARGE = 1 << 20
"""Bytes of a tensor that is worth the way to another thread and back."""
CHUNK = 1 << 20
"""Bytes that are read and hashed at once: between two chunks a thread waits for its turn to run Python, which
may take longer than the hashing of some packets."""
FEW = 1 << 16
"""The same where there are no other threads: larger ones don't fit into the processor's caches."""


def hash_range(extent: Extent, start: int, end: int, source: CaptureBytes, times: int = 1) -> str:
    """sha256 of the bytes [start, end) of an extent without missing bytes; of that many copies of them, which
    are then few bytes.
    """
    part = extent.part(start, end)
    if times != 1:
        return sha256(part.read(source) * times).hexdigest()
    return _hash(_chunks(part, source, FEW))


def _hash(data: Iterable[bytes]) -> str:
    digest = sha256()
    for some in data:
        digest.update(some)
    return digest.hexdigest()


def _chunks(part: Extent, source: CaptureBytes, most: int) -> Iterator[bytes]:
    """The bytes of an extent, of some packets at a time."""
    offsets: list[int] = []
    lengths: list[int] = []
    capture, after, size = -1, 0, 0
    for its_capture, first, length in part.pieces:
        for offset in range(first, first + length, most):  # a piece of a log may be a whole tensor
            its = min(most, first + length - offset)
            if its_capture != capture or offset < after or size + its > most:
                if offsets:
                    yield source.gather(capture, offsets, lengths)
                capture, offsets, lengths, size = its_capture, [], [], 0
            offsets.append(offset)
            lengths.append(its)
            after, size = offset + its, size + its
    if offsets:
        yield source.gather(capture, offsets, lengths)


class Waited(Struct, frozen=True):
    """A hash that is not known yet."""

    row: int
    """Of the message."""
    mark: str
    """What stands in its line until then: as long as the hash, and nothing that a capture could hold."""
    part: Extent


class HashThreads(Closing):
    """Hashes large tensors in other threads while there is something else to do, and in its own where those
    are busy. The lines of messages have marks in place of what is not known yet."""

    def __init__(self, source: CaptureBytes, jobs: int) -> None:
        """`source` reads in any thread; `jobs` hash at the same time, the caller among them."""
        self._source = source
        self._most = jobs - 1
        self._chunk = CHUNK if jobs > 1 else FEW
        self._threads: list[Thread] = []
        self._asked: SimpleQueue[Waited | None] = SimpleQueue()
        self._known: SimpleQueue[tuple[Waited, str | Exception]] = SimpleQueue()
        self._open = 0
        """Marks that were given and not yet replaced."""
        self._closed = False

    def of(self, row: int, extent: Extent, start: int, end: int) -> str:
        """Returns the hash of a range of a tensor of that message, or a mark."""
        part = extent.part(start, end)
        if len(self._threads) < self._most:
            self._start()
        if self._open - self._known.qsize() >= 2 * len(self._threads):  # no thread will be idle meanwhile
            return self._hash(part)
        waited = Waited(row, os.urandom(32).hex(), part)
        self._open += 1
        self._asked.put(waited)
        return waited.mark

    def known(self, *, wait: bool = False) -> Iterator[tuple[int, bytes, bytes]]:
        """Yields what has become known since the last call, or everything: row, mark and hash. Raises what a
        thread could not help."""
        while self._open:
            try:
                if wait and (waited := self._next()) is not None:
                    found: str | Exception = self._hash(waited.part)
                else:
                    waited, found = self._known.get(block=wait)
            except Empty:
                return
            self._open -= 1
            if isinstance(found, Exception):
                raise found
            yield waited.row, waited.mark.encode(), found.encode()

    def _next(self) -> Waited | None:
        """What no thread has begun."""
        try:
            return self._asked.get_nowait()
        except Empty:
            return None

    def _start(self) -> None:
        thread = Thread(target=self._run, name="hashes", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system allows no more
            self._most = len(self._threads)
        else:
            self._threads.append(thread)

    def _run(self) -> None:
        while (waited := self._asked.get()) is not None:
            try:
                found: str | Exception = self._hash(waited.part)
            except Exception as error:
                found = error
            self._known.put((waited, found))

    def _hash(self, part: Extent) -> str:
        """Gives up in the middle once nobody waits for it any more."""
        return _hash(takewhile(lambda _: not self._closed, _chunks(part, self._source, self._chunk)))

    def close(self) -> None:
        """Ends the threads, in the middle of a tensor if need be; closing twice is fine."""
        self._closed = True
        threads, self._threads = self._threads, []
        for _ in threads:
            self._asked.put(None)
        for thread in threads:
            thread.join()
