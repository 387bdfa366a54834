"""The index beside a capture: what its packets, or a log, told, so that they need not be read again.

    `rpcidx`, 0 and the number of the format (8 bytes), length and CRC-32 of the preface (two u32)
    preface     JSON: of which captures and of which code this is, and the lengths of what follows
    facts       JSON in Zstandard: what the source told beside messages
    table       for each block four u32: messages, bytes, bytes unpacked, CRC-32
    blocks      of messages in Zstandard, see message_codec.py

In: captures that were read, with a store of their messages. Out: the file; and back, an `IndexFile`, or the
reason why there is none. It holds for the captures that it was made of (their sizes, times of change, first
and last bytes) and for the code that made it. Whatever is wrong with it is found before its first message is
used, but for what only somebody who made it wrong on purpose can have hidden.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import zlib
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b, sha256
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Literal

import zstandard
from msgspec import Struct, convert

from rpcinspect.capture import CaptureReader
from rpcinspect.capture.reader import BY_TSHARK
from rpcinspect.capture.source import ASIDE
from rpcinspect.errors import CaptureError, DecodeError, OutputError
from rpcinspect.files.closing import Closing
from rpcinspect.files.output import open_whole
from rpcinspect.files.temporary import read_range
from rpcinspect.limits import Limits
from rpcinspect.sources.message_codec import LAYER, BlockReader, from_json, to_json
from rpcinspect.sources.message_store import (
    BLOCK_MESSAGES,
    BlockPlace,
    MessageStore,
    StoredMessages,
    unpacked,
)
from rpcinspect.sources.packets import PacketFacts
from rpcinspect.sources.source import SourceFacts

if TYPE_CHECKING:
    from rpcinspect.sources.log import LogFacts

NAME, FORMAT = b"rpcidx\0", b"\3"
HEAD = struct.Struct("<8sII")
ROW = struct.Struct("<IIII")
MAX_PREFACE = 1 << 20
ENDS_BYTES = 1 << 20
"""Of the beginning and of the end of a capture that are compared."""
MAX_TIMES, MAX_FACTS_TIMES, MAX_MORE = 16, 64, 1 << 20
"""What an index holds unpacked is at most so many times what its captures hold, and a little more: a message
of 100 bytes takes 150, and each piece of a tensor was a packet."""
CODE = ("capture", "tcp", "store", "tensorpipe", "rpclog", "sources")
"""The parts of the package that make messages of captures."""


class CaptureStamp(Struct, frozen=True):
    """By what a capture is known again."""

    name: str
    size: int
    changed_ns: int
    digest: str
    """SHA-256 of its first and of its last bytes."""

    def fits(self, other: CaptureStamp) -> bool:
        """Whether the other one is of the same capture, whatever that is called now."""
        return (self.size, self.changed_ns, self.digest) == (other.size, other.changed_ns, other.digest)


class KnownCapture(Struct, frozen=True, kw_only=True):
    """What reading a capture told of it."""

    format: Literal["pcap", "pcapng", "rpclog"]
    reader: Literal["native", "log"]
    packets: int
    bytes: int
    first_time_ns: int | None
    last_time_ns: int | None


class PackedPart(Struct, frozen=True):
    """A part of the file."""

    packed: int
    """Bytes that it takes."""
    size: int
    """Bytes that it is unpacked."""
    checksum: int


class Preface(Struct, frozen=True, kw_only=True):
    """The first part of the file."""

    code: str
    captures: tuple[CaptureStamp, ...]
    known: tuple[KnownCapture, ...]
    limits: Limits
    logs: bool
    facts: PackedPart
    table: PackedPart
    blocks: int
    """Bytes of all of them."""


def stamp_of(path: str) -> CaptureStamp:
    """Returns the stamp of a file. Raises `CaptureError`."""
    try:
        with open(path, "rb") as file:
            state = os.fstat(file.fileno())
            digest = sha256(file.read(ENDS_BYTES))
            file.seek(max(state.st_size - ENDS_BYTES, 0))
            digest.update(file.read(ENDS_BYTES))
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror}") from error
    return CaptureStamp(os.path.basename(path), state.st_size, state.st_mtime_ns, digest.hexdigest())


@cache
def code_version() -> str:
    """Returns a digest of what makes messages of captures: other code may make others."""
    digest = blake2b(digest_size=16)
    package = Path(__file__).parent.parent
    for part in CODE:
        for path in sorted((package / part).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


# --- writing ---


def write_index(
    place: Path,
    readers: Sequence[CaptureReader],
    facts: SourceFacts,
    store: MessageStore,
    limits: Limits,
) -> None:
    """Writes the index of captures that were read to their ends; `store` has all their messages. Raises
    `OutputError` with the reason where there can be none."""
    store.flush()
    stamps = [_stamp(reader, store.reach) for reader in readers]
    told = to_json(facts)
    packed = zstandard.ZstdCompressor().compress(told)
    table = b"".join([ROW.pack(one.count, one.packed, one.size, one.checksum) for one in store.places])
    captured = sum(one.size for one in stamps)
    if len(told) > _most(captured, MAX_FACTS_TIMES) or _size(store.places) > _most(captured, MAX_TIMES):
        raise OutputError(f"{place}: an index would be far larger than its capture, and is not made")
    preface = to_json(
        Preface(
            code=code_version(),
            captures=tuple(stamps),
            known=convert(readers, tuple[KnownCapture, ...], from_attributes=True),
            limits=limits,
            logs=not isinstance(facts, PacketFacts),
            facts=PackedPart(len(packed), len(told), zlib.crc32(packed)),
            table=PackedPart(len(table), len(table), zlib.crc32(table)),
            blocks=sum(one.packed for one in store.places),
        )
    )
    with open_whole(place, private=True) as file:
        file.write(HEAD.pack(NAME + FORMAT, len(preface), zlib.crc32(preface)))
        file.write(preface)
        file.write(packed)
        file.write(table)
        for one in store.places:
            file.write(store.packed(one))


def _stamp(reader: CaptureReader, reach: int) -> CaptureStamp:
    """Returns the stamp of a capture that was read. Raises `OutputError` where it has no index: bytes of its
    tensors are not in the file itself, or the file is another one by now."""
    path = reader.path
    if not reader.twice:
        raise OutputError(f"{path}: no index is made of what is no file")
    if reader.compression is not None:
        raise OutputError(f"{path}: no index is made of a compressed capture: unpack it first")
    if reader.reader in BY_TSHARK:
        raise OutputError(f"{path}: no index is made of what tshark reads: convert it to pcap first")
    if reach >= ASIDE:
        raise OutputError(f"{path}: no index is made of logs that hold tensors as base64")
    stamp, state = stamp_of(path), reader.state
    if (stamp.size, stamp.changed_ns) != (state.st_size, state.st_mtime_ns):
        raise OutputError(f"{path}: it has changed since it was read, so that no index is made")
    return stamp


def _most(captured: int, times: int) -> int:
    return times * captured + MAX_MORE


def _size(places: Sequence[BlockPlace]) -> int:
    return sum(one.size for one in places)


# --- reading ---


class IndexFile(Closing):
    """An open index of captures that it was made of."""

    def __init__(self, place: Path, descriptor: int, preface: Preface, start: int) -> None:
        """`start`: where the parts behind the preface begin. Raises `DecodeError` where any is damaged."""
        self.place = place
        self.preface = preface
        self._descriptor = descriptor
        self.size = start + preface.facts.packed + preface.table.packed + preface.blocks
        """Bytes of the file."""
        self.captured = [one.size for one in preface.captures]
        """Bytes of each capture."""
        if os.fstat(descriptor).st_size != self.size:
            raise DecodeError(LAYER, "it was cut, or is longer than it was written")
        self.facts = self._facts(start)
        pipes = self.facts.pipes
        if [pipe.number for pipe in pipes] != list(range(len(pipes))):
            raise DecodeError(LAYER, "pipes are out of order")
        if not len(self.facts.clocks) == len(self.facts.vantages) == len(self.captured):
            raise DecodeError(LAYER, "facts are of other captures")
        before = [one.goes_on for one in self.facts.vantages]
        if any(one is not None and not 0 <= one < n for n, one in enumerate(before)):
            raise DecodeError(LAYER, "a capture goes on from one that is not before it")
        if not all(re.fullmatch("[a-z]+", problem.layer) for problem in self.facts.problems):
            raise DecodeError(LAYER, "problems are of layers that are none")  # views show them as they are
        reader = BlockReader(dict(enumerate(pipes)), self.captured, preface.limits)
        self.messages = StoredMessages(self._places(start + preface.facts.packed), self._pread, reader)
        for one in self.messages.places:
            self.messages.packed(one)

    def _pread(self, offset: int, length: int) -> bytes:
        return read_range(self._descriptor, offset, length)

    def _part(self, part: PackedPart, offset: int) -> bytes:
        data = self._pread(offset, part.packed)
        if len(data) != part.packed or zlib.crc32(data) != part.checksum:
            raise DecodeError(LAYER, "facts or the table of blocks are damaged")
        return data

    def _facts(self, offset: int) -> PacketFacts | LogFacts:
        part = self.preface.facts
        if part.size > _most(sum(self.captured), MAX_FACTS_TIMES):
            raise DecodeError(LAYER, "facts are larger than its captures can tell")
        told = unpacked(self._part(part, offset), part.size, zstandard.ZstdDecompressor())
        if not self.preface.logs:
            return from_json(told, PacketFacts)
        from rpcinspect.sources.log import LogFacts  # a fifth of our own start, which packets need not

        return from_json(told, LogFacts)

    def _places(self, offset: int) -> list[BlockPlace]:
        """Reads the table of blocks."""
        part = self.preface.table
        if part.packed % ROW.size:
            raise DecodeError(LAYER, "the table of blocks is damaged")
        data = self._part(part, offset)
        row, at, places = 0, offset + part.packed, []
        for count, packed, size, checksum in ROW.iter_unpack(data):
            places.append(BlockPlace(row, count, at, packed, size, checksum))
            if not 0 < count <= BLOCK_MESSAGES:
                raise DecodeError(LAYER, "a block has no messages, or too many")
            row, at = row + count, at + packed
        if at != self.size or _size(places) > _most(sum(self.captured), MAX_TIMES):
            raise DecodeError(LAYER, "blocks are larger than their file, or than its captures can tell")
        return places

    def close(self) -> None:
        """Closes the file; closing twice is fine."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def open_index(place: Path, paths: Sequence[str], limits: Limits) -> IndexFile | str | None:
    """Opens the index of captures. Returns a line that says why it can't be used; None where it is of
    other options, which is nobody's fault."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        return f"{place}: {error.strerror}, not used"
    opened = None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return f"{place}: not a file, not used"
        data = _preface(descriptor)
        preface = _understood(data)
        why = _mismatch(preface, paths)
        if why is not None or preface is None:
            return f"{place}: {why}, not used; {remedy(paths)}"
        if preface.limits == limits:
            opened = IndexFile(place, descriptor, preface, HEAD.size + len(data))
        return opened
    except DecodeError as error:
        return f"{place}: damaged ({error}), not used; {remedy(paths)}"
    except OSError as error:
        return f"{place}: {error.strerror}, not used"
    finally:
        if opened is None:
            os.close(descriptor)


def remedy(paths: Sequence[str]) -> str:
    """What makes a good index again."""
    return f"`rpcinspect browse --index {' '.join(map(quote, paths))}` makes it again"


def _preface(descriptor: int) -> bytes:
    head = read_range(descriptor, 0, HEAD.size)
    if len(head) < HEAD.size or not head.startswith(NAME + FORMAT):
        raise DecodeError(LAYER, "it does not begin as an index does")
    _, length, checksum = HEAD.unpack(head)
    data = read_range(descriptor, HEAD.size, min(length, MAX_PREFACE))
    if len(data) != length or zlib.crc32(data) != checksum:
        raise DecodeError(LAYER, "its first part is not as it was written")
    return data


def _understood(data: bytes) -> Preface | None:
    """Returns the preface; None where it says other things than this code's does."""
    try:
        return from_json(data, Preface)
    except DecodeError:
        return None


def _mismatch(preface: Preface | None, paths: Sequence[str]) -> str | None:
    """Says why an index is not of these captures and this code; None where it is."""
    if preface is None or preface.code != code_version():
        return "made by another version of rpcinspect"
    if len(preface.captures) != len(paths) or len(preface.known) != len(paths):
        return "made for other captures"
    for stamp, path in zip(preface.captures, paths, strict=True):
        if not stamp.fits(stamp_of(path)):
            return f"made for another version of {os.path.basename(path)}"
    return None
