"""Stand-ins of the same length: words, texts, integers and floats by a keyed hash, equal ones for equal ones.

In: a key, the names of workers. Out: `Pseudonyms`. Whoever has not the key can't go back; whoever sees two
equal stand-ins knows that the originals were equal, and how long they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from hashlib import blake2b, shake_256
from struct import pack, unpack

from rpcinspect.export.redaction.public import (
    COMPONENTS,
    EXCEPTIONS,
    NATIVE,
    PASSING,
    PHRASES,
    TYPE_WORDS,
    is_public,
)

FIRST = b"abcdefghijklmnopqrstuvwxyz"
LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
ORDERED = bytes(sorted(LETTERS))
SHORT = LETTERS + b"_"
TORCHSCRIPT = b"__torch__."
MAX_KNOWN = 256
"""Bytes of words whose stand-ins are remembered."""
ROUNDS = 6
"""Of a Feistel network."""


class Pseudonyms:
    """Stand-ins for names and values, from a key: equal ones get equal stand-ins."""

    def __init__(self, key: bytes, names: Iterable[str] = ()) -> None:
        """`names`: those of workers; the stand-ins have the same order, since torch's leader is the
        smallest."""
        self._key = blake2b(key, digest_size=32, person=b"rpcinspect").digest()
        self._names = self._ordered(sorted({name.encode("utf-8", "surrogateescape") for name in names}))
        self._token = self._pattern()
        self._known = lru_cache(maxsize=1 << 16)(self._word)

    def digest(self, what: bytes, data: bytes) -> bytes:
        """32 bytes that only this key and this data give."""
        return blake2b(data, digest_size=32, key=self._key, person=what[:16]).digest()

    def stream(self, what: bytes, data: bytes, length: int) -> bytes:
        """Returns `length` bytes that follow from the key, `what` and `data`."""
        return shake_256(self.digest(what, data)).digest(length)

    def _ordered(self, names: list[bytes]) -> dict[bytes, bytes]:
        """Stand-ins for names whose order they keep, by as many characters in front as that takes."""
        width = 1
        while len(ORDERED) ** width < len(names):
            width += 1
        found = {}
        for rank, name in enumerate(names):
            number = (rank * 2 + 1) * len(ORDERED) ** width // (2 * len(names))
            front = bytearray()
            for _ in range(width):
                number, digit = divmod(number, len(ORDERED))
                front.insert(0, ORDERED[digit])
            found[name] = (bytes(front) + self.filler(name))[: len(name)]
        return found

    def _pattern(self) -> re.Pattern[bytes]:
        names = b"|".join(re.escape(name) for name in sorted(self._names, key=len, reverse=True))
        known = rb"(?<![\w-])(?P<name>%b)(?![\w-]) |" % names if names else b""
        return re.compile(
            rb"On\ WorkerInfo\(id=\d{1,9},\ name=(?P<worker>[^)\n]{0,512})\) | "
            + known
            + rb"(?P<native>"
            + NATIVE
            + rb") | (?P<passing>"
            + PASSING
            + rb") | (?P<phrase>"
            + PHRASES
            + rb") | (?P<token>[^\s'\"\\()\[\]{}<>:,.=/\#|+*`;&!?^~-]+)",
            re.VERBOSE,
        )

    def filler(self, data: bytes) -> bytes:
        """Returns letters, which are no pickle, in place of unreadable bytes."""
        if not data:
            return b""
        noise = self.stream(b"word", data, len(data))
        first = FIRST[noise[0] % len(FIRST)]
        return bytes([first, *[LETTERS[byte % len(LETTERS)] for byte in noise[1:]]])

    def word(self, data: bytes) -> bytes:
        """Returns a stand-in for a whole string: letters and digits, one byte for each byte."""
        return self._known(data) if len(data) <= MAX_KNOWN else self._word(data)

    def _word(self, data: bytes) -> bytes:
        named = self._names.get(data)
        if named is not None:
            return named
        if len(data) in (1, 2) and all(byte in SHORT for byte in data):
            return self._short[len(data)][data]
        return self.filler(data)

    @cached_property
    def _short(self) -> dict[int, dict[bytes, bytes]]:
        """One-to-one, where a hash would give many the same: {length: {word: stand-in}}."""
        found = {}
        for words in ([bytes([a]) for a in SHORT], [bytes([a, b]) for a in SHORT for b in SHORT]):
            mixed = sorted(words, key=lambda word: self.digest(b"short", word))
            # what begins like an identifier goes on to do so
            begins = [word for word in mixed if not word[:1].isdigit()]
            others = [word for word in mixed if word[:1].isdigit()]
            plain = [word for word in words if not word[:1].isdigit()]
            digits = [word for word in words if word[:1].isdigit()]
            found[len(words[0])] = dict(zip([*plain, *digits], [*begins, *others], strict=True))
        return found

    def noise(self, data: bytes) -> bytes:
        """Returns a stand-in for a string of bytes."""
        return self.stream(b"bytes", data, len(data))

    def dotted(self, data: bytes) -> bytes:
        """A name of parts: each part by itself, those that Python gives stay, and torch's TorchScript."""
        if data.startswith(TORCHSCRIPT) and is_public(data[len(TORCHSCRIPT) :].decode("utf-8", "replace")):
            return data
        parts = data.split(b".")
        return b".".join([part if part in COMPONENTS or not part else self.word(part) for part in parts])

    def type_tag(self, data: bytes) -> bytes:
        """A type of TorchScript: names that are not its own are replaced."""
        return _TYPE_NAME.sub(
            lambda found: found[0] if found[0] in TYPE_WORDS else self.dotted(found[0]), data
        )

    def text(self, data: bytes) -> bytes:
        """A text of torch's or Python's around words of others: the words are replaced, one by one."""
        return self._token.sub(self._said, data)

    def _said(self, found: re.Match[bytes]) -> bytes:
        whole = found[0]
        if found["worker"] is not None:
            start = found.start("worker") - found.start()
            return whole[:start] + self.word(found["worker"]) + b")"
        if found["phrase"] is not None or whole in EXCEPTIONS:
            return whole
        if found["passing"] is not None:
            return _HEX.sub(b"0", whole) if whole[:1] in b"0[" else _DIGIT.sub(b"0", whole)
        if found["native"] is not None:
            head = whole[: whole.index(b": ") + 2]
            return head + b"x" * (len(whole) - len(head))
        return self.word(whole)

    def integer(self, value: int, low: int, high: int) -> int:
        """Maps an integer of [low, high] to another one, one-to-one. 0, 1 and -1 stay, which nearly every
        value is."""
        if value in (0, 1, -1) or not low <= value <= high:
            return value
        count = high - low + 1
        half = max(1, (count.bit_length() + 1) // 2)
        at = value - low
        while True:  # walks until it is in the range again, which keeps it one-to-one
            at = self._feistel(at, half, count)
            if at < count and (low + at) not in (0, 1, -1):
                return low + at

    def _feistel(self, value: int, half: int, count: int) -> int:
        mask = (1 << half) - 1
        left, right = value >> half, value & mask
        size = (half + 7) // 8 + 1
        for turn in range(ROUNDS):
            seed = pack("<BQ", turn, count & 0xFFFFFFFFFFFFFFFF) + right.to_bytes(size, "little")
            mixed = int.from_bytes(self.stream(b"integer", seed, size), "little") & mask
            left, right = right, left ^ mixed
        return left << half | right

    def float64(self, value: float) -> float:
        """Maps a float to another of the same sign and exponent. 0, 1, -1, infinities and NaN stay."""
        bits = int(unpack("<Q", pack("<d", value))[0])
        exponent = bits >> 52 & 0x7FF
        if value in (0.0, 1.0, -1.0) or exponent == 0x7FF:
            return float("nan") if value != value else value
        noise = int.from_bytes(self.digest(b"float", pack("<d", value))[:8], "little")
        return float(unpack("<d", pack("<Q", bits & ~((1 << 52) - 1) | noise & ((1 << 52) - 1)))[0])

    def digits(self, data: bytes) -> bytes:
        """Replaces the digits of a written number; the sign stays."""
        sign = data[:1] if data[:1] in (b"-", b"+") else b""
        noise = self.stream(b"digits", data, len(data) - len(sign))
        return sign + bytes([0x31 + byte % 9 for byte in noise])


_DIGIT = re.compile(rb"\d")
_HEX = re.compile(rb"[0-9a-fA-F](?!x)")
_TYPE_NAME = re.compile(rb"[^\s\[\],()]+")
