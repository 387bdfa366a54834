"""Messages out of an index that lies beside captures: none of their packets is read again.

In: an open index, and the captures, of which only bytes of tensors are read. Out: what any `MessageSource`
gives, the same as the packets or the log gave: also what was known of a pipe when a message became complete.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from msgspec.structs import replace

from rpcinspect.capture.source import open_source
from rpcinspect.errors import CaptureError, DecodeError
from rpcinspect.files.closing import Closing
from rpcinspect.session.identity import IdentityEvidence
from rpcinspect.session.model import WorkerIdentities
from rpcinspect.sources.index_file import IndexFile
from rpcinspect.sources.message_codec import LAYER, Change, become, from_json
from rpcinspect.sources.source import MessageSource, ReadWatch, SourceFacts
from rpcinspect.tensorpipe.records import Pipe, TpMessage

WINDOW = 1 << 18
"""Bytes of a capture that are read at once: small tensors lie close to each other."""
MAX_WINDOWS = 16
"""That are kept: the streams of a capture are interleaved, messages are in the order of their ends."""


class IndexedCapture(Closing):
    """A capture of which the index tells all but the bytes of tensors."""

    compression = None
    twice = True
    ended_early = None

    def __init__(self, path: str, number: int, index: IndexFile) -> None:
        """Opens the capture of that number. Raises `CaptureError` where it can't be read."""
        known = index.preface.known[number]
        self.path, self.index = path, number
        self.reader, self.format = known.reader, known.format
        self.packets, self.bytes = known.packets, known.bytes
        self.first_time_ns, self.last_time_ns = known.first_time_ns, known.last_time_ns
        self._source = open_source(path, lambda reason: None)
        self._window = lru_cache(MAX_WINDOWS)(self._read_window)

    def pread(self, offset: int, length: int) -> builtins.bytes:
        """Returns bytes at any offset; fewer where the capture ends."""
        number, at = divmod(offset, WINDOW)
        if at + length > WINDOW:
            return self._source.pread(offset, length)
        return self._window(number)[at : at + length]

    def _read_window(self, number: int) -> builtins.bytes:
        return self._source.pread(number * WINDOW, WINDOW)

    def end(self) -> bool:
        """Returns False: an index ends by itself."""
        return False

    def close(self) -> None:
        """Closes the file; closing twice is fine."""
        self._source.close()


class IndexSource(MessageSource):
    """Messages of an index."""

    def __init__(self, index: IndexFile, watch: ReadWatch) -> None:
        self._index = index
        self._watch = watch
        self._facts = index.facts
        self._read_to = 0
        self.pipes, self.unread = self._facts.pipes, self._facts.unread

    def messages(self) -> Iterator[list[TpMessage]]:
        final = [replace(pipe) for pipe in self.pipes]
        stored = self._index.messages
        for number, place in enumerate(stored.places):
            if self._watch.stopped(0):
                break
            with self._readable():
                messages, changes = stored.block(number)
            self._read_to = place.offset + place.packed
            yield from self._parts(messages, changes)
        for pipe, last in zip(self.pipes, final, strict=True):
            become(pipe, last)

    def _parts(self, messages: list[TpMessage], changes: list[Change]) -> Iterator[list[TpMessage]]:
        """Messages of a block, some at a time: pipes change in between."""
        start = 0
        for at, data in changes:
            if start < at:
                yield messages[start:at]
                start = at
            with self._readable():
                self._change(from_json(data, Pipe))
        if start < len(messages):
            yield messages[start:]

    def _change(self, pipe: Pipe) -> None:
        if not 0 <= pipe.number < len(self.pipes):
            raise DecodeError(LAYER, "a pipe is not among those that the facts tell")
        become(self.pipes[pipe.number], pipe)

    def message(self, row: int) -> TpMessage | None:
        stored = self._index.messages
        with self._readable():
            return stored[row] if 0 <= row < len(stored) else None

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Makes damage a `CaptureError`. None is found any more in a file that is as it was written: somebody
        has made it so."""
        try:
            yield
        except DecodeError as error:
            raise CaptureError(f"{self._index.place}: it is damaged, remove it: {error}") from error

    @property
    def facts(self) -> int:
        return self._facts.count

    def identities(self, evidence: IdentityEvidence) -> WorkerIdentities:
        return self._facts.identities(evidence)

    def told(self) -> SourceFacts:
        return self._facts

    @property
    def progress(self) -> tuple[int, int | None]:
        return self._read_to, self._index.size
