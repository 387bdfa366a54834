"""Opcodes: their operands as Python itself has them, and integers as CPython writes them."""

from __future__ import annotations

import pickle
import pickletools

from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.pickles.opcodes import COUNTED, FIXED, LINES, integer, opcode_places


@given(
    st.integers()
    | st.integers(-1 << 63, (1 << 63) - 1)
    | st.integers(-70_000, 70_000)
    | st.integers(250, 260).map(lambda n: 1 << 8 * n)
    | st.integers(250, 260).map(lambda n: -(1 << 8 * n))
)
def test_an_integer_is_written_as_cpython_does(value: int) -> None:
    assert pickle.dumps(value, 2) == b"\x80\x02" + integer(value) + b"."


def test_operands_are_those_of_pickletools() -> None:
    for opcode in pickletools.opcodes:
        op = ord(opcode.code)
        size = opcode.arg.n if opcode.arg is not None else 0
        counted = {-2: 1, -3: 4, -4: 4, -5: 8}
        if size >= 0:
            assert FIXED.get(op, 0) == size, opcode.name
        elif size == -1:
            assert LINES[op] == (2 if opcode.name in ("GLOBAL", "INST") else 1), opcode.name
        else:
            assert COUNTED[op] == counted[size], opcode.name
        assert (op in FIXED) + (op in COUNTED) + (op in LINES) == (size != 0), opcode.name


def test_places_are_those_of_pickletools() -> None:
    for protocol in range(6):
        data = pickle.dumps([1, 300, -1, 1 << 90, "text", b"raw", (1.5, None), {"x": int}], protocol)
        starts = [place for _, _, place in pickletools.genops(data)]
        assert list(opcode_places(data, len(data))) == list(
            zip(starts, [*starts[1:], len(data)], strict=True)
        )
