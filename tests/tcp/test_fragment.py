"""IP fragments put together: any order, copies, overlaps, what is missing, and the bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.tcp import fragment
from rpcinspect.tcp.fragment import (
    AGAIN,
    BAD,
    INCOMPLETE,
    PART,
    PATIENCE_NS,
    Datagram,
    Fragment,
    FragmentPiece,
    Reassembly,
)
from tests.thorough import examples

BODY = bytes(range(1, 41))


def part(
    start: int,
    end: int,
    *,
    body: bytes = BODY,
    more: bool | None = None,
    number: int = 1,
    row: int = 0,
    time_ns: int = 0,
    captured: int | None = None,
) -> Fragment:
    """Bytes [start, end) of a packet; in the file they lie 1000 bytes further."""
    there = body[start:end][:captured]
    return Fragment(
        row=row,
        time_ns=time_ns,
        addresses=(1,),
        identification=number,
        protocol=6,
        more=end < len(body) if more is None else more,
        pieces=[FragmentPiece(start, end, 1000 + start, there)],
    )


class Bench:
    """A stage with its counts."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.stage = Reassembly(self._count)

    def _count(self, reason: str, number: int) -> None:
        self.counts[reason] += number

    def feed(self, fragments: Sequence[Fragment], capture: int = 0) -> list[Datagram]:
        """Whole packets; first parts that are handed on before are left out."""
        return [datagram for datagram in self.stage.feed(capture, fragments) if datagram.whole]

    def told(self) -> dict[str, int]:
        return {reason: number for reason, number in self.counts.items() if number}


def test_in_order() -> None:
    bench = Bench()
    assert bench.feed([part(0, 16), part(16, 32)]) == []
    assert bench.told() == {INCOMPLETE: 2}
    [whole] = bench.feed([part(32, 40, row=5)])
    assert whole.content() == (BODY, 40)
    assert (whole.row, whole.protocol, whole.addresses) == (5, 6, (1,))
    assert [(piece.start, piece.offset) for piece in whole.pieces] == [(0, 1000), (16, 1016), (32, 1032)]
    assert bench.told() == {PART: 2}


@given(order=st.permutations(range(5)), again=st.lists(st.integers(0, 4), max_size=4))
@settings(max_examples=examples(100), deadline=None)
def test_any_order_and_copies(order: list[int], again: list[int]) -> None:
    bench = Bench()
    fragments = [part(8 * at, 8 * at + 8) for at in [*order, *again]]
    [whole] = bench.feed(fragments)
    assert whole.content() == (BODY, 40)
    # one was the last that it lacked
    assert bench.told() == {PART: 4, **({AGAIN: len(again)} if again else {})}


@st.composite
def overlapping(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    """Parts of a packet of 80 bytes, in the order of capture, no two with the same place."""
    places = draw(
        st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=12, unique=True)
    )
    pieces = []
    for start, size in places:
        size = min(size, 10 - start) * 8
        pieces.append((start * 8, draw(st.binary(min_size=size, max_size=size))))
    return [
        piece
        for at, piece in enumerate(pieces)
        if (piece[0], len(piece[1])) not in [(start, len(data)) for start, data in pieces[:at]]
    ]


@given(overlapping())
@settings(max_examples=examples(300), deadline=None)
def test_the_first_copy_of_a_byte_wins(pieces: list[tuple[int, bytes]]) -> None:
    bench = Bench()
    model: dict[int, int] = {}
    expected = None
    found: list[Datagram] = []
    for start, data in pieces:
        end = start + len(data)
        body = bytes(start) + data
        found += bench.feed([part(start, end, body=body, more=end < 80)])
        for at, byte in enumerate(data, start):
            model.setdefault(at, byte)
        if expected is None and len(model) == 80:
            expected = bytes(model[at] for at in range(80))
    # a copy that comes once it is whole may begin another packet, never a whole one with the same bytes
    if expected is None:
        assert found == []
    else:
        assert found[0].content() == (expected, 80)


def test_copies_that_differ_are_kept_apart() -> None:
    bench = Bench()
    other = bytes(40)
    parts = [part(0, 16), part(8, 24, body=BODY[:16] + other[16:]), part(16, 40, body=other)]
    [whole] = bench.feed(parts)
    assert whole.content()[0] == BODY[:16] + other[16:]
    assert whole.copies == []  # all equal
    [whole] = bench.feed([part(0, 24, number=2), part(8, 32, body=other, number=2), part(32, 40, number=2)])
    assert whole.content()[0] == BODY[:24] + other[24:32] + BODY[32:]
    assert [(copy.start, copy.offset, copy.data) for copy in whole.copies] == [(8, 1008, bytes(16))]


def test_a_first_part_is_handed_on_at_once() -> None:
    bench = Bench()
    [first] = bench.stage.feed(0, [part(0, 16, row=3)])
    assert (first.whole, first.row, first.protocol) == (False, 3, 6)
    assert first.content() == (BODY[:16], 16)
    bench.stage.gave_segment(first)
    assert bench.told() == {}
    assert len(bench.feed([part(16, 40)])) == 1
    assert bench.told() == {}


def test_a_first_part_that_completes_gives_the_whole_only() -> None:
    bench = Bench()
    assert list(bench.stage.feed(0, [part(16, 40)])) == []
    [whole] = bench.stage.feed(0, [part(0, 16)])
    assert whole.whole


def test_a_first_part_may_say_that_it_gave_a_segment_when_the_whole_is_there() -> None:
    bench = Bench()
    first, whole = bench.stage.feed(0, [part(0, 16), part(16, 40)])
    assert whole.whole
    assert bench.told() == {PART: 1}
    bench.stage.gave_segment(first)
    assert bench.told() == {}


def test_snap_length_leaves_zeros() -> None:
    bench = Bench()
    [whole] = bench.feed([part(0, 16), part(16, 32, captured=3), part(32, 40)])
    assert whole.content() == (BODY[:19] + bytes(13) + BODY[32:], 19)
    assert [(piece.start, piece.offset, piece.data) for piece in whole.between(18, 34)] == [
        (18, 1018, BODY[18:19]),
        (32, 1032, BODY[32:34]),
    ]


def test_what_can_not_be() -> None:
    bench = Bench()
    bench.feed(
        [
            part(8, 8, more=True),  # nothing
            part(0xFFF8, 0x10008, more=True),  # beyond the longest packet
            part(8, 16, more=False),
            part(16, 24, more=True),  # behind the end
            part(8, 24, more=False),  # another end
            part(0, 16, more=False, number=2),
            part(0, 24, more=True, number=2),
            part(16, 24, number=3),
            part(0, 16, more=False, number=3),  # before what is there
        ]
    )
    assert bench.told() == {BAD: 5, INCOMPLETE: 3}


def test_others_are_not_mixed_in() -> None:
    bench = Bench()
    other = bytes(40)
    assert bench.feed([part(0, 16), part(16, 40, number=2), part(0, 16, body=other, number=2)])[
        0
    ].content() == (
        bytes(16) + BODY[16:],
        40,
    )
    later = part(16, 40)
    later.addresses = (2,)
    assert bench.feed([later]) == []


def test_a_number_that_comes_again() -> None:
    bench = Bench()
    other = bytes(reversed(BODY))
    # the rest of the first packet was lost
    [whole] = bench.feed([part(0, 16), part(0, 16, body=other), part(16, 40, body=other)])
    assert whole.content()[0] == other
    assert bench.told() == {INCOMPLETE: 1, PART: 1}
    [whole] = bench.feed([part(0, 16), part(16, 40)])  # and again, after a whole one
    assert whole.content()[0] == BODY


@pytest.mark.parametrize("later", [PATIENCE_NS + 1, -PATIENCE_NS - 1])
def test_what_stays_incomplete_is_given_up(later: int) -> None:
    bench = Bench()
    assert bench.feed([part(0, 16), part(16, 40, time_ns=later)]) == []
    assert bench.told() == {INCOMPLETE: 2}
    assert len(bench.feed([part(0, 16, time_ns=later)])) == 1


def test_captures_are_not_mixed() -> None:
    bench = Bench()
    assert bench.feed([part(0, 16)], capture=0) == []
    assert bench.feed([part(16, 40)], capture=1) == []


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragment, "MAX_BYTES", 10_000)
    bench = Bench()
    bench.feed([part(0, 1000, body=bytes(2000), number=number) for number in range(100)])
    assert bench.stage._held <= 10_000
    assert bench.feed([part(1000, 2000, body=bytes(2000), number=0)]) == []
    assert len(bench.feed([part(1000, 2000, body=bytes(2000), number=99)])) == 1
    monkeypatch.setattr(fragment, "MAX_PACKETS", 5)
    bench.feed([part(0, 8, number=number) for number in range(100, 200)])
    assert len(bench.stage._waiting) == 5
    monkeypatch.setattr(fragment, "MAX_DONE", 3)
    for number in range(300, 400):
        bench.feed([part(0, 8, number=number), part(8, 40, number=number)])
    assert len(bench.stage._done) == 3
    assert len(bench.stage._waiting) <= 5


def test_one_packet_in_very_many_parts() -> None:
    body = bytes(range(256)) * 255
    bench = Bench()
    [whole] = bench.feed([part(at, at + 8, body=body) for at in reversed(range(0, len(body), 8))])
    assert whole.content() == (body, len(body))


def test_several_pieces_in_one_fragment() -> None:
    bench = Bench()
    one = part(8, 32, more=True)
    one.pieces = [FragmentPiece(8, 16, 500, BODY[8:16]), FragmentPiece(16, 32, 700, BODY[16:32])]
    [whole] = bench.feed([part(0, 8), one, part(32, 40)])
    assert whole.content() == (BODY, 40)
    assert [(p.start, p.offset) for p in whole.between(10, 20)] == [(10, 502), (16, 700)]
