"""Frames behind losses: what is placed is the only possible place, in every world that the capture allows."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.tcp.stream import Stream
from rpcinspect.tensorpipe.align import MAX_WALK, Places, align, fits
from rpcinspect.tensorpipe.control import frame
from rpcinspect.tensorpipe.frame import HEADER, HEADER_BYTES
from tests.tensorpipe.conversations import stream_of
from tests.thorough import examples

LONGEST = 40
"""Frames of the naive model are no longer: more than any stream of its tests can hold."""


def lane(lengths: Sequence[int], holes: Sequence[tuple[int, int]] = (), *, cut: int = 0) -> Stream:
    """A stream of frames with these lengths, but for its first `cut` bytes."""
    data = b"".join(frame(bytes([200]) * n) for n in lengths)[cut:]
    shifted = [(max(a - cut, 0), b - cut) for a, b in holes if b > cut]
    return stream_of(data or b"\xff", holes=shifted)


def origin(stream: Stream) -> int:
    assert stream.origin is not None
    return stream.origin


def offsets(lengths: Sequence[int]) -> list[int]:
    """Where each frame begins, and where the last one ends."""
    out = [0]
    for n in lengths:
        out.append(out[-1] + HEADER_BYTES + n)
    return out


def placed(
    stream: Stream, start: int | None, end: int | None, groups: Sequence[Sequence[int]], *, cut: int = 0
) -> Places:
    """`align`, all positions counted from the first frame of which the stream may lack `cut` bytes."""
    base = origin(stream) - cut
    found = align(
        stream, None if start is None else base + start, None if end is None else base + end, groups
    )
    return [[None if at is None else at - base for at in group] for group in found]


# --- the naive model ---


class Seen:
    """What is known of a lane: its bytes where they were captured, positions counted from its first frame."""

    def __init__(self, data: bytes, known: Sequence[bool]) -> None:
        self._hints = {
            at: [(i, data[at + i]) for i in range(HEADER_BYTES) if 0 <= at + i < len(data) and known[at + i]]
            for at in range(-LONGEST, len(data) + LONGEST)
        }
        self.reach: dict[int, set[int]] = {}
        """Where frames may end, any number of them, that begin at a position."""
        for at in sorted(self._hints, reverse=True):
            found = self.reach[at] = {at}
            for length in range(LONGEST):
                behind = at + HEADER_BYTES + length
                if behind in self._hints and self.allows(at, length):
                    found |= self.reach[behind]

    def allows(self, at: int, length: int) -> bool:
        """Whether a frame of that length may begin there."""
        hints = self._hints.get(at, [])
        header = HEADER.pack(length)
        return all(header[i] == byte for i, byte in hints)

    def lies(self, at: int, group: Sequence[int]) -> bool:
        """Whether these frames may follow each other from there on."""
        return all(self.allows(at + n, length) for n, length in zip(offsets(group), group, strict=False))


def naive(seen: Seen, start: int | None, end: int | None, groups: Sequence[Sequence[int]]) -> list[set[int]]:
    """Every position that each group has in some world: frames tile the lane, a group's follow each other,
    and between two groups lies any number of any frames.
    """
    sizes = [offsets(group)[-1] for group in groups]
    forward: list[set[int]] = []
    for number, group in enumerate(groups):
        if number:
            ends = [at + sizes[number - 1] for at in forward[-1]]
            reached = set().union(*(seen.reach.get(at, set()) for at in ends))
        else:
            reached = set(seen.reach) if start is None else {start}
        forward.append({at for at in reached if seen.lies(at, group)})
    out: list[set[int]] = []
    for size, found in zip(reversed(sizes), reversed(forward), strict=True):
        if out:
            good = {at for at in found if seen.reach.get(at + size, set()) & out[0]}
        else:
            good = {at for at in found if end is None or at + size == end}
        out.insert(0, good)
    return out


LENGTHS = st.lists(st.integers(0, 2), min_size=1, max_size=5)
HOLES = st.lists(st.tuples(st.integers(0, 45), st.integers(1, 9)), max_size=2)


@st.composite
def kept_groups(draw: st.DrawFn, lengths: list[int]) -> list[list[int]]:
    """Runs of the frames whose messages were captured."""
    kept = draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
    groups: list[list[int]] = [[]]
    lost = False
    for length, is_kept in zip(lengths, kept, strict=True):
        if is_kept:
            if lost:
                groups.append([])
            groups[-1].append(length)
        lost = not is_kept
    if lost:
        groups.append([])
    return groups


@given(st.data(), LENGTHS, HOLES, st.integers(0, 20), st.booleans(), st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_a_place_is_the_only_one_in_every_world(
    data: st.DataObject,
    lengths: list[int],
    holes: list[tuple[int, int]],
    cut: int,
    start_known: bool,
    end_known: bool,
) -> None:
    groups = data.draw(kept_groups(lengths))
    total = offsets(lengths)[-1]
    cut = min(cut, total - 1)
    ranges = [(a, min(a + n, total)) for a, n in holes if a < total and a + n > cut]
    stream = lane(lengths, ranges, cut=cut)
    raw = b"".join(frame(bytes([200]) * n) for n in lengths)
    known = tuple(i >= cut and not any(a <= i < b for a, b in ranges) for i in range(total))
    start, end = 0 if start_known else None, total if end_known else None
    possible = naive(Seen(raw, known), start, end, groups)
    found = placed(stream, start, end, groups, cut=cut)
    for group, positions, worlds in zip(groups, found, possible, strict=True):
        assert worlds, "the model lost the true world"
        assert len(positions) == len(group)
        if group and positions[0] is not None:
            assert positions == [positions[0] + n for n in offsets(group)[:-1]]
            assert worlds == {positions[0]}
        else:
            assert set(positions) <= {None}
        if start_known and end_known and all(known) and group:
            assert (positions[0] is not None) == (len(worlds) == 1)


# --- one thing at a time ---


def test_nothing_is_due() -> None:
    assert placed(lane([1]), 0, 9, []) == []
    assert placed(lane([1]), 0, 9, [[], []]) == [[], []]


def test_without_an_end_nothing_is_known() -> None:
    assert placed(lane([3, 4]), None, None, [[3, 4]]) == [[None, None]]
    assert placed(lane([3, 4]), None, None, [[3], [4]]) == [[None], [None]]


def test_from_a_known_start() -> None:
    assert placed(lane([3, 4, 5]), 0, None, [[3, 4], [5]]) == [[0, 11], [None]]


def test_from_a_known_end() -> None:
    assert placed(lane([3, 4, 5]), None, 36, [[3], [4, 5]]) == [[None], [11, 23]]


def test_frames_before_the_first_captured_byte() -> None:
    """The end is known, so frames that were never captured have a place all the same."""
    stream = lane([5, 6, 7], cut=20)  # the second frame is cut in its length
    assert placed(stream, None, 42, [[5, 6, 7]], cut=20) == [[0, 13, 27]]
    assert placed(stream, None, 42, [[1 << 40, 5, 6, 7]], cut=20) == [[-(1 << 40) - 8, 0, 13, 27]]


@pytest.mark.parametrize("hidden", [(0, 8), (3, 4), (7, 8), (14, 15), (9, 12)])
def test_a_length_that_was_not_captured_contradicts_nothing(hidden: tuple[int, int]) -> None:
    assert placed(lane([5, 6], [hidden]), 0, None, [[5, 6]]) == [[0, 13]]


@pytest.mark.parametrize("wrong", [[4, 6], [5, 7], [5, 6, 1]])
def test_a_length_that_was_captured_contradicts_all_of_its_group(wrong: list[int]) -> None:
    data = [5, 6, 9]
    assert placed(lane(data), 0, None, [wrong]) == [[None] * len(wrong)]
    assert placed(lane(data), None, 44, [wrong]) == [[None] * len(wrong)]


def test_two_ends_that_contradict_each_other() -> None:
    """The last group would begin before the first one ends."""
    assert placed(lane([5, 6]), 0, 27, [[5, 6], [6]]) == [[0, 13], [None]]


def test_a_start_that_contradicts_leaves_nothing_to_the_end() -> None:
    assert placed(lane([5, 6, 7]), 0, 42, [[4], [7]]) == [[None], [None]]


def test_between_two_known_ends_the_walk_must_meet_both() -> None:
    lengths = [1, 2, 3, 4, 5]
    assert placed(lane(lengths), 0, 55, [[1], [3], [5]]) == [[0], [19], [42]]
    hole = offsets(lengths)[3]
    assert placed(lane(lengths, [(hole, hole + 1)]), 0, 55, [[1], [3], [5]]) == [[0], [None], [42]]
    assert placed(lane(lengths), 0, 55, [[1], [6], [5]]) == [[0], [None], [42]]


def test_groups_keep_their_order() -> None:
    lengths = [1, 2, 3, 2, 1]
    assert placed(lane(lengths), 0, 49, [[1], [3], [2], [1]]) == [[0], [19], [30], [40]]
    assert placed(lane(lengths), 0, 49, [[1], [2, 3], [2], [1]]) == [[0], [9, 19], [30], [40]]
    # either of the two frames may have been lost
    assert placed(lane(lengths), 0, 49, [[1], [2], [1]]) == [[0], [None], [40]]


def test_a_length_is_found_only_at_a_frame() -> None:
    """[256] and [1] look alike in memory if one looks at the wrong byte."""
    lengths = [0, 1, 0, 256, 0]
    places = offsets(lengths)
    assert placed(lane(lengths), 0, places[-1], [[0], [256], [0]]) == [[0], [places[3]], [places[4]]]
    assert placed(lane([0, 1, 1, 0]), 0, 34, [[0], [256], [0]]) == [[0], [None], [26]]


@pytest.mark.parametrize("length", [2**31, 2**63, 2**64 - 1])
def test_absurd_lengths(length: int) -> None:
    stream = lane([1, 2, 3])
    assert placed(stream, 0, 30, [[1], [length], [3]]) == [[0], [None], [19]]
    assert placed(stream, 0, 30, [[1, length], [3]]) == [[None, None], [None]]
    assert placed(stream, 0, 30, [[length], [3]]) == [[None], [None]]
    assert placed(stream, None, 30, [[1], [length]]) == [[None], [-length + 22]]  # never captured
    assert placed(lane([1, 2, 3], [(9, 17)]), 0, 30, [[1, length], [3]])[1] == [None]


def test_released_bytes_confirm_nothing_and_contradict_nothing() -> None:
    stream = stream_of(frame(b"a" * 5) + frame(b"b" * 6), sizes=(13,))
    stream.release(origin(stream) + 13)
    assert placed(stream, None, 27, [[5, 6]]) == [[0, 13]]
    assert fits(stream, origin(stream) + 27, [5, 6]) in (1, 2)  # a whole run may still be kept


# --- fits ---


@pytest.mark.parametrize(
    ("lengths", "confirmed"),
    [([], 0), ([7], 1), ([6, 7], 2), ([5, 6, 7], 3), ([9, 5, 6, 7], 3), ([6], -1), ([5, 7], -1), ([19], -1)],
)
def test_how_many_lengths_confirm_an_end(lengths: list[int], confirmed: int) -> None:
    stream = lane([5, 6, 7])
    assert fits(stream, origin(stream) + 42, lengths) == confirmed


def test_hidden_lengths_do_not_confirm() -> None:
    stream = lane([5, 6, 7], [(14, 15)])
    assert fits(stream, origin(stream) + 42, [5, 6, 7]) == 2
    assert fits(stream, origin(stream) + 42, [19, 7]) == -1  # the frame would begin at the first one
    stream = lane([5, 6, 7], cut=20)
    assert fits(stream, origin(stream) + 22, [5, 6, 7]) == 1


# --- time ---


def seconds(stream: Stream, start: int | None, end: int | None, groups: Sequence[Sequence[int]]) -> float:
    began = time.process_time()
    placed(stream, start, end, groups)
    return time.process_time() - began


def test_many_groups_take_linear_time() -> None:
    count = 20_000
    stream = stream_of(frame(b"ab") * count, sizes=(60_000,))
    assert seconds(stream, 0, 10 * count, [[2]] * (count // 2)) < 2
    assert seconds(stream, 0, 10 * count, [[2], [2] * (count // 2), [2], [2]]) < 2


def test_lengths_that_look_alike_take_linear_time() -> None:
    """Read as bytes, 256 after 256 is to be found in 1 after 1 at every wrong place."""
    count = 40_000
    stream = stream_of(frame(b"a") * count, sizes=(60_000,))
    assert seconds(stream, 0, 9 * count, [[1], [256] * (count // 2), [1]]) < 2


def test_a_walk_has_an_end() -> None:
    count = MAX_WALK + 3
    stream = stream_of(frame(b"") * count, sizes=(60_000,))
    end = 8 * count
    found = placed(stream, 0, end, [[0], [0] * (count - 2), [0]])
    assert (found[0], set(found[1]), found[2]) == ([0], {None}, [end - 8])
