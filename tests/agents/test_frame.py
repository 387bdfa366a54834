"""What an agent gets of captured text, against Unicode's own list of what is not seen."""

from __future__ import annotations

from rpcinspect.agents.frame import framed, visible

INVISIBLE = (
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x200B, 0x2010)),
    *(*range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0),
    *(*range(0xFFF0, 0xFFF9), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000)),
)
"""Unicode's Default_Ignorable_Code_Point."""


def test_what_nobody_sees_is_escaped() -> None:
    assert all(
        visible(chr(one)).startswith("\\") for one in (*INVISIBLE, *range(32), 127, 0x9B, 0x2028, 0x2800)
    )
    assert visible("worker é 数 → tensor") == "worker é 数 → tensor"
    assert visible("a\x1b[2J\ud800\n") == "a\\x1b[2J\\ud800\\n"


def test_a_mark_is_new_in_each_frame() -> None:
    frames = [framed(["begin 0", "end 0"], "lines 1 to 2 of 2").split("\n") for _ in range(2)]
    assert frames[0][2:4] == ["| begin 0", "| end 0"]
    marks = [frame[1].removeprefix("begin ") for frame in frames]
    assert [frame[4] for frame in frames] == [f"end {mark}" for mark in marks]
    assert marks[0] != marks[1]
    assert all(mark in frame[0] for mark, frame in zip(marks, frames, strict=True))
