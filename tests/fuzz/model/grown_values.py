"""Lists and dicts that something is given, and that get their items only then.

The tree of such a pickle looks as if they had been whole when they were given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tests.fuzz.model.honest_values import HonestValues

Taker = Callable[["GrownValues", bytes], bytes]


class GrownValues(HonestValues):
    """Has everything that takes a list or a dict."""

    def grown(self, depth: int) -> bytes:
        """Something that is given a list or a dict which gets its items later."""
        w, draw = self.w, self.draw
        put, get = w.keep()
        if draw.random() < 0.5:
            head = b"]" + put + (self.leaf() + b"a" if draw.random() < 0.3 else b"")
            given = draw.choice(self.TAKE_LISTS)(self, get)
            tail = get + b"(" + b"".join(self.any(depth - 1) for _ in range(draw.choice((1, 2)))) + b"e"
        else:
            head = b"}" + put
            given = draw.choice(self.TAKE_DICTS)(self, get)
            tail = get + w.text(draw.choice(("a", "x", "data"))) + self.any(depth - 1) + b"s"
        return head + given + tail + b"\x87"

    def _objects(self, data: bytes) -> bytes:
        w = self.w
        made = b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR"
        dtype = w.call(w.name("numpy:dtype"), w.tuple([w.text("O8"), w.truth(False), w.truth(True)]))
        return made + b"(K\x01K\x02\x85" + dtype + b"\x89" + data + b"tb"

    def _fields(self, fields: bytes) -> bytes:
        w = self.w
        made = w.call(w.name("numpy:dtype"), w.tuple([w.text("V8"), w.truth(False), w.truth(True)]))
        return made + b"(K\x03" + w.text("|") + b"N" + w.tuple([w.text("a")]) + fields + b"K\x08K\x01K\x10tb"

    def _with_state(self, cls: str, key: str, value: bytes) -> bytes:
        w = self.w
        return w.new(w.name(cls), w.tuple([])) + b"}" + w.text(key) + value + b"sb"

    def _reduced(self, cls: str, value: bytes) -> bytes:
        return self.w.name(cls) + value + b"\x85R"

    def _partially(self, kwargs: bytes) -> bytes:
        return b"cfunctools\npartial\ncjob\nstep\n\x85R(cjob\nstep\n)" + kwargs + b"Ntb"

    TAKE_LISTS: ClassVar[tuple[Taker, ...]] = (
        *(_objects, _objects),
        lambda self, given: self._with_state("collections:UserList", "data", given),
        lambda self, given: self._with_state("collections:ChainMap", "maps", given),
        *(
            lambda self, given, cls=cls: self._reduced(cls, given)
            for cls in (
                "builtins:list",
                "builtins:tuple",
                "builtins:set",
                "builtins:frozenset",
                "collections:deque",
            )
        ),
        lambda self, given: b"ctorch\nSize\n" + given + b"\x85R",
        lambda self, given: b"cjob\nPair\n" + given + b"N\x86\x81",
        lambda self, given: b"cbuiltins\nValueError\n)R}X\x09\x00\x00\x00__notes__" + given + b"sb",
    )

    TAKE_DICTS: ClassVar[tuple[Taker, ...]] = (
        *(_fields, _fields, _partially),
        lambda self, given: self._with_state("collections:UserDict", "data", given),
        lambda self, given: self._reduced("collections:Counter", given),
        lambda self, given: b"ctypes\nSimpleNamespace\n)R" + given + b"b",
        lambda self, given: b"cuuid\nUUID\n)\x81" + given + b"b",
        lambda self, given: b"cjob\nPlain\n)\x81" + given + b"b",
        lambda self, given: b"cbuiltins\nKeyError\n)R" + given + b"b",
    )
