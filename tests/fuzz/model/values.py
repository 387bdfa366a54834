"""Values for generated pickles: what they are made of, put into each other.

`Values` draws them for one program. `wild` is how often something is drawn that a gate may have to refuse;
with little of it a good share of programs passes, and what passes is near the edge of what may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tests.fuzz.model.writing import Draw, Writer

RPC = "torch.distributed.rpc.internal"
TEXTS = ("", "x", "a b", "/tmp/x", "cpu", "w0", "1.5", "f8", "O8", "é", "0", "C", "__class__")
NUMBERS = (0, 1, 2, 3, 5, -1, 255, 256, 65536, 1 << 31, -(1 << 31), 1 << 40, (1 << 63) - 1, 1 << 70, -5)
DEPTH = 5
Recipe = Callable[[Any, int], bytes]


class Values:
    """Draws the opcodes of values."""

    HONEST: ClassVar[tuple[Recipe, ...]] = ()
    WILD: ClassVar[tuple[Recipe, ...]] = ()

    def __init__(self, draw: Draw, writer: Writer, wild: float) -> None:
        self.draw = draw
        self.w = writer
        self.wild = wild

    def wildly(self) -> bool:
        return self.draw.random() < self.wild

    def any(self, depth: int = DEPTH) -> bytes:
        """A value of any kind, after some noise."""
        return self.w.noise() + self.plainly(depth)

    def plainly(self, depth: int) -> bytes:
        if self.wildly():
            return self.draw.choice(self.WILD)(self, depth)
        if depth <= 0 or self.draw.random() < 0.35:
            return self.leaf()
        known = self.w.get("any") if self.draw.random() < 0.1 else None
        if known is not None:
            return known
        if self.draw.random() < 0.5:
            return self.container(depth)
        return self.honest(depth)

    def leaf(self) -> bytes:
        draw = self.draw
        match draw.randrange(9):
            case 0:
                return b"N"
            case 1:
                return self.w.truth(draw.random() < 0.5)
            case 2 | 3:
                return self.w.number(draw.choice(NUMBERS))
            case 4:
                return self.w.real(draw.choice((0.0, 1.5, -2.25, 1e300)))
            case 5:
                return self.w.raw(draw.choice((b"", b"a", b"\x00" * 8, b"A" * 16)))
            case 6:
                return self.tensor()
            case _:
                return self.w.text(draw.choice(TEXTS))

    def container(self, depth: int) -> bytes:
        draw, w = self.draw, self.w
        count = draw.choice((0, 1, 1, 2, 3))
        match draw.randrange(6):
            case 0 | 1:
                return w.tuple([self.any(depth - 1) for _ in range(count)])
            case 2 | 3:
                return w.list([self.any(depth - 1) for _ in range(count)])
            case 4:
                pairs = [(w.text(draw.choice(TEXTS)), self.any(depth - 1)) for _ in range(count)]
                return w.dict(pairs)
            case _:
                return w.set([self.leaf() for _ in range(count)], frozen=draw.random() < 0.4)

    def tensor(self) -> bytes:
        return self.reducing("_tensor_receiver", [self.w.number(self.draw.choice((0, 1, 2, 3, 0, 1, 9, -1)))])

    def reducing(self, kind: str, args: list[bytes]) -> bytes:
        """A call of one of rpc's class methods."""
        w = self.w
        owner = w.name("builtins:getattr" if self.draw.random() < 0.9 else "__builtin__:getattr")
        method = w.call(owner, w.tuple([w.name(f"{RPC}:_InternalRPCPickler"), w.text(kind)]))
        return w.call(method, w.tuple(args))

    def pairs(self, depth: int) -> bytes:
        return self.w.items([(self.w.text(key), self.any(depth)) for key in self.some(TEXTS)])

    def some(self, of: tuple[str, ...]) -> list[str]:
        return self.draw.sample(of, self.draw.choice((0, 1, 2)))

    def appended(self, depth: int) -> bytes:
        items = [self.any(depth) for _ in range(self.draw.choice((0, 1, 2)))]
        if len(items) == 1:
            return items[0] + b"a"
        return b"(" + b"".join(items) + b"e" if items else b""

    def made_by(self, function: bytes, args: list[bytes]) -> bytes:
        """A call in one of the ways that pickles have."""
        w = self.w
        match self.draw.randrange(8):
            case 0:
                return w.new(function, w.tuple(args))
            case 1:
                return w.new(function, w.tuple(args), w.dict([]))
            case 2:
                return b"(" + function + b"".join(args) + b"o" + w.put("made")
            case _:
                return w.call(function, w.tuple(args))

    def args(self, depth: int) -> list[bytes]:
        return [self.any(depth) for _ in range(self.draw.choice((0, 1, 1, 2)))]

    def later(self, function: bytes, args: list[bytes]) -> bytes:
        """partial, as CPython writes it. The function is written twice: it may put nothing into the memo."""
        w = self.w
        made = w.call(w.name("functools:partial"), function + b"\x85")
        return made + b"(" + function + w.tuple(args) + b"}N" + b"tb"

    def honest(self, depth: int) -> bytes:
        """As somebody's pickling writes it."""
        return self.draw.choice(self.HONEST)(self, depth - 1)

    def wild_one(self, depth: int) -> bytes:
        """What may carry code."""
        return self.draw.choice(self.WILD)(self, depth)
