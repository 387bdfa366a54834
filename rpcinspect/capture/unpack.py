"""Compressed input: told by its first bytes, unpacked piece by piece, up to the first damage.

In: chunks of packed bytes. Out: pieces of what they hold, each of bounded size; after damage, everything
before it, and the reason through `report`. How much is unpacked in all is whoever asks for pieces to decide.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

ReportReason = Callable[[str], None]
"""Takes the reason of something that reading survived."""

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_OUTPUT = 1 << 20
_ZSTD_INPUT = 1 << 9
_ZSTD_WINDOW = 1 << 27
"""What a frame may ask for: `zstd --long=27`."""


def compression_of(head: bytes) -> str | None:
    """`gzip`, `zstd` or None, by the first four bytes."""
    if head.startswith(_GZIP):
        return "gzip"
    # a skippable frame (0x184D2A50 to 5F) may come first
    if head.startswith(_ZSTD) or (head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5):
        return "zstd"
    return None


def _gunzip(chunks: Iterator[bytes], report: ReportReason) -> Iterator[bytes]:
    """The members' content in pieces of bounded size; after damage, everything before the damage."""
    member = None
    done = False  # a member ended well
    for chunk in chunks:
        rest = chunk
        while rest:
            if member is None:
                rest = rest.lstrip(b"\0") if done else rest  # tapes pad with zeros
                if not rest:
                    break
                member = zlib.decompressobj(31)
            before = member.copy()
            try:
                piece = member.decompress(rest, _OUTPUT)
            except zlib.error as error:
                yield from _inflate_bytewise(before, rest)
                report(f"the gzip data are damaged: {error}")
                return
            yield piece
            if member.eof:
                rest, member, done = member.unused_data, None, True
            else:
                rest = member.unconsumed_tail
    while member is not None and not member.eof:
        piece = member.decompress(b"", _OUTPUT)
        if not piece:
            report("the gzip data end too early")
            return
        yield piece


def _inflate_bytewise(member: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """Yields the output of `data` before its damage: zlib drops the output of a call that fails, so calls are
    small."""
    for at in range(len(data)):
        try:
            yield member.decompress(data[at : at + 1])
        except zlib.error:
            return


def _unzstd(chunks: Iterator[bytes], report: ReportReason) -> Iterator[bytes]:
    """The frames' content; after damage, everything before the damaged block."""
    import zstandard  # a compiled module that most runs do not need

    reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    frame = None
    for chunk in chunks:
        # Output can't be bounded, only input: a block of 128 KiB takes 4 bytes at least.
        for start in range(0, len(chunk), _ZSTD_INPUT):
            rest = chunk[start : start + _ZSTD_INPUT]
            while rest:
                if frame is None:
                    frame = reader.decompressobj()
                try:
                    yield frame.decompress(rest)
                except zstandard.ZstdError as error:
                    report(f"the Zstandard data are damaged: {error}")
                    return
                rest = b""
                if frame.eof:
                    rest, frame = frame.unused_data, None
    if frame is not None:
        report("the Zstandard data end too early")


DECOMPRESSORS: dict[str, Callable[[Iterator[bytes], ReportReason], Iterator[bytes]]] = {
    "gzip": _gunzip,
    "zstd": _unzstd,
}
