"""Inputs made from inputs: bytes changed anyhow, and parts changed with what belongs around them repaired.

An input with structure is a row of parts (`pack`, `unpack`): each may be changed, lost, doubled or moved, and
the others stay what they are. So a length that is damaged does not hide from the fuzzer what lies behind it.
`frames` and `opcodes` are the same for what is inside a part: frames of TensorPipe, opcodes of a pickle.
"""

from __future__ import annotations

import pickletools
import random
import struct
from collections.abc import Callable, Sequence

Mutate = Callable[[bytes, random.Random], bytes]

MAX_BYTES = 1 << 16
"""Of an input. Larger ones find nothing that smaller ones don't, and take longer."""

NUMBERS = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0xFFFF, 0x10000, (1 << 31) - 1, 1 << 31)
NUMBERS += ((1 << 32) - 1, 1 << 32, 1 << 40, 1 << 60, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 10**10)

TOKENS = (
    b"\x1b[31m",
    b"\x1b]0;x\x07",
    b"\x9b31m",
    b"\r\n",
    "\u202e\u2066".encode(),
    b"</script><script>alert(1)</script>",
    b'"><img src=x onerror=alert(1)>',
    b"<!--<script>",
    b"]]>\"'`\\",
    b"{{7*7}}{%raw%}",
    b'"""\nimport os\n"""',
    b"\xed\xa0\x80\xff\xfe",
    b"\0",
    b"../../x",
    b"cos\nsystem\n",
    b"\x80\x02",
    b"\x80\x04\x95",
    b"0" * 40,
    b"nan",
    b"_gather_to_leader",
)
"""What views, templates and terminals may mistake for their own."""


# --- bytes ---


def change_bytes(data: bytes, draw: random.Random) -> bytes:
    """One to four small changes."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        draw.choice(_CHANGES)(changed, draw)
    return bytes(changed[:MAX_BYTES])


def _flip(data: bytearray, draw: random.Random) -> None:
    if data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _set(data: bytearray, draw: random.Random) -> None:
    if data:
        data[draw.randrange(len(data))] = draw.randrange(256)


def _number(data: bytearray, draw: random.Random) -> None:
    if not data:
        return
    size = draw.choice((1, 2, 4, 8))
    at = draw.randrange(len(data))
    if draw.random() < 0.3 and at + size <= len(data):
        old = int.from_bytes(data[at : at + size], "little")
        value = old + draw.choice((-8, -1, 1, 8))
    else:
        value = draw.choice(NUMBERS)
    value &= (1 << 8 * size) - 1
    data[at : at + size] = value.to_bytes(size, draw.choice(("little", "big")))


def _delete(data: bytearray, draw: random.Random) -> None:
    at, size = _range(data, draw)
    del data[at : at + size]


def _double(data: bytearray, draw: random.Random) -> None:
    at, size = _range(data, draw)
    data[at:at] = data[at : at + size] * draw.choice((1, 1, 3))


def _move(data: bytearray, draw: random.Random) -> None:
    at, size = _range(data, draw)
    taken = data[at : at + size]
    where, _ = _range(data, draw)
    data[where : where + size] = taken


def _insert(data: bytearray, draw: random.Random) -> None:
    at, _ = _range(data, draw)
    data[at:at] = draw.choice((draw.randbytes(draw.choice((1, 2, 4, 9))), draw.choice(TOKENS)))


def _cut(data: bytearray, draw: random.Random) -> None:
    at, _ = _range(data, draw)
    del data[at:]


def _range(data: bytearray, draw: random.Random) -> tuple[int, int]:
    at = draw.randrange(len(data) + 1)
    return at, min(len(data) - at, draw.choice((1, 2, 4, 8, 16, 64, 1024)))


_CHANGES = (_flip, _set, _set, _number, _number, _number, _delete, _double, _move, _insert, _insert, _cut)


# --- parts ---

_LENGTH = struct.Struct("<I")


def pack(parts: Sequence[bytes]) -> bytes:
    """Parts as one input."""
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def unpack(data: bytes) -> list[bytes]:
    """Parts of any input: a length that is too large is what is left."""
    parts, at = [], 0
    while at + 4 <= len(data):
        end = at + 4 + _LENGTH.unpack_from(data, at)[0]
        parts.append(data[at + 4 : end])
        at = min(end, len(data))
    return parts


def change_parts(data: bytes, draw: random.Random, inside: Mutate = change_bytes, head: int = 0) -> bytes:
    """One or two changes of whole parts, or inside one; `head` bytes of each are changed rarely."""
    parts = unpack(data)
    for _ in range(draw.choice((1, 1, 2))):
        if not parts:
            return pack([draw.randbytes(8)])
        at = draw.randrange(len(parts))
        part = parts[at]
        match draw.randrange(8):
            case 0:
                del parts[at]
            case 1:
                parts.insert(draw.randrange(len(parts) + 1), part)
            case 2:
                parts.insert(draw.randrange(len(parts)), parts.pop(at))
            case 3:
                parts[at] = change_bytes(part[:head], draw)[:head].ljust(head, b"\0") + part[head:]
            case _:
                parts[at] = part[:head] + inside(part[head:], draw)
    return pack(parts)[:MAX_BYTES]


# --- what is inside of parts ---


def change_frames(data: bytes, draw: random.Random) -> bytes:
    """Of a row of frames: one body changed and its length repaired, a length alone, or a whole frame."""
    bodies, at = [], 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        if at + 8 + size > len(data):
            break
        bodies.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    if not bodies or draw.random() < 0.25:
        return change_bytes(data, draw)
    rest = data[at:]
    chosen = draw.randrange(len(bodies))
    match draw.randrange(5):
        case 0:
            del bodies[chosen]
        case 1:
            bodies.insert(chosen, bodies[chosen])
        case _:
            bodies[chosen] = change_bytes(bodies[chosen], draw)
    heads = [len(body) for body in bodies]
    if draw.random() < 0.15 and heads:
        at = draw.randrange(len(heads))
        heads[at] = draw.choice((*NUMBERS, heads[at] + 1, max(0, heads[at] - 1)))
    return b"".join(n.to_bytes(8, "little") + b for n, b in zip(heads, bodies, strict=True)) + rest


def change_opcodes(data: bytes, draw: random.Random) -> bytes:
    """Of a pickle: opcodes lost, doubled, moved, put in, or a string changed and its length repaired."""
    starts: list[tuple[int, object]] = []
    try:
        for opcode, argument, at in pickletools.genops(data):
            starts.append((at or 0, argument if opcode.name == "BINUNICODE" else None))
    except Exception:  # pickletools raises what it likes for what is no pickle
        return change_bytes(data, draw)
    if len(starts) < 3 or draw.random() < 0.25:
        return change_bytes(data, draw)
    ends = [at for at, _ in starts[1:]] + [len(data)]
    rows = [data[at:end] for (at, _), end in zip(starts, ends, strict=True)]
    for _ in range(draw.choice((1, 1, 2, 5))):
        at = draw.randrange(len(rows))
        match draw.randrange(7):
            case 0:
                rows[at] = b""
            case 1:
                rows[at] *= 2
            case 2:
                rows.insert(draw.randrange(len(rows)), rows[at])
            case 3:
                rows.insert(at, draw.choice(OPCODES))
            case 4:
                rows[at] = draw.choice(OPCODES)
            case _:
                row = rows[at]
                if row[:1] == b"X" and len(row) >= 5:
                    text = change_bytes(row[5:], draw)
                    rows[at] = b"X" + len(text).to_bytes(4, "little") + text
                else:
                    rows[at] = row[:1] + change_bytes(row[1:], draw)
    return b"".join(rows)[:MAX_BYTES]


OPCODES = (
    *(bytes([code]) for code in b"(.0123)NRQabdeglopst}]\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94"),
    *(b"K\x01", b"M\x01\x02", b"J\xff\xff\xff\xff", b"h\x00", b"h\x01", b"q\x00", b"q\x01", b"U\x01x"),
    *(b"X\x01\0\0\0a", b"\x8c\x01a", b"\x8a\x08" + b"\xff" * 8, b"cos\nsystem\n", b"ios\nsystem\n"),
    *(b"G" + bytes(8), b"F1e999\n", b"I00\n", b"L9L\n", b"S'x'\n", b"V\\u0041\n", b"P1\n", b"\x82\x01"),
    *(b"\x95" + bytes(8), b"\x95\x01" + bytes(7), b"B\x01\0\0\0b", b"C\x01b", b"\x96" + bytes(8), b"\x97"),
    *(b"\x98", b"j\0\0\0\0", b"r\0\0\0\0", b"\x8b\x01\0\0\0\x01", b"\x8e\x01" + bytes(7) + b"b"),
    *(b"cbuiltins\ngetattr\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"\x8d\x01" + bytes(7) + b"a"),
)
