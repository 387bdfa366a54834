"""The RPC payloads in a capture, cut out by their signature: no TensorPipe, no TCP beyond ordering.

Deliberately another way than the package's own: it only has to work on captures without loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.places import content

# how every descriptor of an RPC message starts: 4 payloads, the first of 4 and 8 bytes
SIGNATURE = bytes.fromhex("b9 03 bd 00 ba 04 b9 02 04 bd 00 b9 02 08 bd 00 b9 02")
LINK_HEADERS = {0: 4, 1: 14, 101: 0, 113: 16, 276: 20}


def payloads(path: Path) -> Iterator[tuple[bytes, bytes, bytes, bytes]]:
    """The four payloads of each message in a little-endian pcap file of IPv4."""
    for stream in _streams(path):
        at = stream.find(SIGNATURE)
        while at >= 0:
            end = _descriptor_end(stream, at)
            found = _frames(stream, end) if end else None
            if found is not None:
                yield found[0]
                at = found[1] - 1
            at = stream.find(SIGNATURE, at + 1)


def _descriptor_end(stream: bytes, signature: int) -> int:
    """The frame of the descriptor starts 8 bytes before the signature, or 10 in the layout of 1.8."""
    for start in (signature - 8, signature - 10):
        end = start + 8 + int.from_bytes(stream[start : start + 8], "little")
        if stream[end : end + 8] == b"\x04" + bytes(7):
            return end
    return 0


def _frames(stream: bytes, at: int) -> tuple[tuple[bytes, bytes, bytes, bytes], int] | None:
    out = []
    for _ in range(4):
        length = int.from_bytes(stream[at : at + 8], "little")
        out.append(stream[at + 8 : at + 8 + length])
        at += 8 + length
    return ((out[0], out[1], out[2], out[3]), at) if at <= len(stream) else None


def _streams(path: Path) -> list[bytes]:
    connections: dict[bytes, list[tuple[int, dict[int, bytes]]]] = {}
    for packet in _packets(path):
        if not packet or packet[0] >> 4 != 4 or packet[9] != 6:
            continue
        segment = packet[(packet[0] & 15) * 4 : int.from_bytes(packet[2:4], "big") or len(packet)]
        key = packet[12:20] + segment[:4]
        sequence = int.from_bytes(segment[4:8], "big")
        if segment[13] & 2:  # SYN
            connections.setdefault(key, []).append((sequence + 1, {}))
        start, parts = connections.setdefault(key, [(sequence, {})])[-1]
        data = segment[(segment[12] >> 4) * 4 :]
        if data:
            parts.setdefault(sequence - start & 0xFFFFFFFF, data)
    return [_joined(parts) for runs in connections.values() for _, parts in runs]


def _joined(parts: dict[int, bytes]) -> bytes:
    stream = bytearray()
    for offset in sorted(parts):
        if offset <= len(stream):
            stream += parts[offset][len(stream) - offset :]
    return bytes(stream)


def _packets(path: Path) -> Iterator[bytes]:
    raw = content(path)
    if raw[:4] not in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1"):
        return
    header = LINK_HEADERS[int.from_bytes(raw[20:22], "little")]
    at = 24
    while at + 16 <= len(raw):
        captured = int.from_bytes(raw[at + 8 : at + 12], "little")
        yield raw[at + 16 + header : at + 16 + captured]
        at += 16 + captured
