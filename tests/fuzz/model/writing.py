"""Opcodes of one value after another, each in one of the forms that the protocols have for it.

`Writer` remembers what was put into the memo, so that later values may take it from there.
"""

from __future__ import annotations

import random
import struct

Draw = random.Random


class Writer:
    """Writes a program; every method gives the opcodes of what it names."""

    def __init__(self, draw: Draw, protocol: int, *, odd: float = 0.1) -> None:
        self.draw = draw
        self.protocol = protocol
        self.odd = odd
        """How often a form is not the usual one."""
        self._memo: list[tuple[int, str]] = []
        self._next = draw.choice((0, 0, 0, 250))

    def oddly(self) -> bool:
        return self.draw.random() < self.odd

    def put(self, kind: str, always: bool = False) -> bytes:
        """PUT, BINPUT, LONG_BINPUT, MEMOIZE of what lies on the stack now; nothing, mostly."""
        if not always and self.draw.random() > 0.15:
            return b""
        if self.oddly() and not always:
            return b"\x94"
        index, self._next = self._next, self._next + 1
        if self.oddly() and self._memo:
            index = self.draw.choice(self._memo)[0]  # over another
            self._memo = [one for one in self._memo if one[0] != index]
        self._memo.append((index, kind))
        forms = [b"r" + struct.pack("<I", index)]
        if index < 256:
            forms = [b"q" + bytes([index])] * 8 + forms
        if self.oddly():
            forms = [b"p%d\n" % index]
        return self.draw.choice(forms)

    def keep(self) -> tuple[bytes, bytes]:
        """PUT for what lies on the stack now, and the GET for it."""
        index, self._next = self._next, self._next + 1
        number = struct.pack("<I", index)
        return b"r" + number, b"j" + number

    def get(self, kind: str) -> bytes | None:
        """GET of something of a kind; `any` is of all kinds."""
        found = [index for index, one in self._memo if kind in (one, "any")]
        if not found:
            return None
        index = self.draw.choice(found)
        if self.oddly():
            return b"g%d\n" % index
        return b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index)

    def text(self, value: str) -> bytes:
        data = value.encode("utf-8", "surrogatepass")
        size = len(data)
        forms = [b"X" + struct.pack("<I", size) + data]
        if size < 256:
            forms.append(b"\x8c" + bytes([size]) + data)
        if self.oddly():
            forms = [b"\x8d" + struct.pack("<Q", size) + data]
            if value.isascii() and value.isprintable() and "\\" not in value:
                forms += [b"V" + data + b"\n", b"T" + struct.pack("<i", size) + data]
                if "'" not in value:
                    forms.append(b"S'" + data + b"'\n")
                if size < 256:
                    forms.append(b"U" + bytes([size]) + data)
        return self.draw.choice(forms) + self.put("text")

    def number(self, value: int) -> bytes:
        size = value.bit_length() // 8 + 1
        little = value.to_bytes(size, "little", signed=True)
        forms = [b"\x8a" + bytes([size]) + little]
        if -(1 << 31) <= value < 1 << 31:
            forms = [b"J" + struct.pack("<i", value)]
        if 0 <= value < 1 << 16:
            forms.append(b"M" + struct.pack("<H", value))
        if 0 <= value < 256:
            forms.append(b"K" + bytes([value]))
        if self.oddly():
            forms = [b"I%d\n" % value, b"L%dL\n" % value, b"\x8b" + struct.pack("<i", size) + little]
        return self.draw.choice(forms)

    def raw(self, value: bytes) -> bytes:
        size = len(value)
        forms = [b"B" + struct.pack("<I", size) + value]
        if size < 256:
            forms.append(b"C" + bytes([size]) + value)
        if self.oddly():
            forms = [b"\x8e" + struct.pack("<Q", size) + value, b"\x96" + struct.pack("<Q", size) + value]
        return self.draw.choice(forms) + self.put("bytes")

    def real(self, value: float) -> bytes:
        return b"F%r\n" % value if self.oddly() else b"G" + struct.pack(">d", value)

    def truth(self, value: bool) -> bytes:
        if self.oddly():
            return b"I01\n" if value else b"I00\n"
        return b"\x88" if value else b"\x89"

    def name(self, dotted: str) -> bytes:
        module, _, attribute = dotted.partition(":")
        if (self.draw.random() < 0.35 and self.protocol >= 4) or ("\n" in dotted):
            return self.text(module) + self.text(attribute) + b"\x93" + self.put("name")
        return f"c{module}\n{attribute}\n".encode() + self.put("name")

    def tuple(self, items: list[bytes]) -> bytes:
        if not items and not self.oddly():
            return b")"
        if 1 <= len(items) <= 3 and not self.oddly():
            return b"".join(items) + b" \x85\x86\x87"[len(items) : len(items) + 1] + self.put("tuple")
        return b"(" + b"".join(items) + b"t" + self.put("tuple")

    def list(self, items: list[bytes]) -> bytes:
        if self.oddly():
            return b"(" + b"".join(items) + b"l" + self.put("list")
        if self.oddly() or len(items) == 1:
            return b"]" + self.put("list") + b"".join(item + b"a" for item in items)
        return b"]" + self.put("list") + (b"(" + b"".join(items) + b"e" if items else b"")

    def dict(self, pairs: list[tuple[bytes, bytes]]) -> bytes:
        flat = b"".join(key + value for key, value in pairs)
        if self.oddly():
            return b"(" + flat + b"d" + self.put("dict")
        return b"}" + self.put("dict") + self.items(pairs)

    def items(self, pairs: list[tuple[bytes, bytes]]) -> bytes:
        """SETITEMS for what lies on the stack."""
        if not pairs:
            return b""
        if self.oddly() or len(pairs) == 1:
            return b"".join(key + value + b"s" for key, value in pairs)
        return b"(" + b"".join(key + value for key, value in pairs) + b"u"

    def attributes(self, pairs: list[tuple[str, bytes]]) -> bytes:
        """A dict with texts as keys. Keys are written behind the values of the pairs before."""
        return self.dict([(self.text(key), value) for key, value in pairs])

    def set(self, items: list[bytes], frozen: bool = False) -> bytes:
        if frozen:
            return b"(" + b"".join(items) + b"\x91" + self.put("set")
        return b"\x8f" + self.put("set") + (b"(" + b"".join(items) + b"\x90" if items else b"")

    def call(self, function: bytes, args: bytes) -> bytes:
        return function + args + b"R" + self.put("made")

    def new(self, cls: bytes, args: bytes, kwargs: bytes | None = None) -> bytes:
        if kwargs is not None:
            return cls + args + kwargs + b"\x92" + self.put("made")
        return cls + args + b"\x81" + self.put("made")

    def noise(self) -> bytes:
        """Nothing, or something without effect."""
        if not self.oddly():
            return b""
        return self.draw.choice(
            (
                b"N0",
                b"(1",
                b"K\x0120",
                b"(NK\x011",
                b"]0",
                b"\x80" + bytes([self._other_protocol()]),
                b"\x95" + bytes(8),
            )
        )

    def _other_protocol(self) -> int:
        self.protocol = self.draw.choice((0, 1, 2, 3, 4, 5))
        return self.protocol
