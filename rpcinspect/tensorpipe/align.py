"""Where expected frames lie on a lane of which the beginning, some messages or some bytes were lost.

In: a finished stream and the lengths of the frames that must be on it, in groups: between two groups an
unknown number of unknown frames lies, since messages were lost there. Out: the position of each frame, or
None where more than one place is possible. Nothing is placed by what is likely: a group is placed from an end
of the stream that is known, or because it fits in one place only, and only if every length that was captured
there is the expected one.
"""

from __future__ import annotations

from collections.abc import Sequence

from rpcinspect.tcp.stream import Stream
from rpcinspect.tensorpipe.frame import HEADER_BYTES, announced

MAX_WALK = 200_000
"""Frames between two known places that are looked at when a group is to be found among them."""

NO_FRAME = chr(0x10FFFF)
"""Lengths become letters, so that a group is found as a word is in a text, in linear time. This one stands
for every length that no frame has; `MAX_WALK` keeps others below it.
"""

Groups = Sequence[Sequence[int]]
Places = list[list[int | None]]


def align(stream: Stream, start: int | None, end: int | None, groups: Groups) -> Places:
    """Positions of the frames of every group.

    `start` is where the first group begins, `end` where the last one ends; None: not known, or frames of lost
    messages lie between. Positions may lie before the stream's first byte: such frames were not captured.
    """
    places: Places = [[None] * len(group) for group in groups]
    if not groups:
        return places
    first, last = 0, len(groups) - 1
    low, high = start, end
    if start is not None:
        stop = _lay(stream, start, groups[0], places[0])
        low, first = stop, 1
    if end is not None and last >= first:
        begin = end - sum(n + HEADER_BYTES for n in groups[last])
        if start is None or (low is not None and begin >= low):
            stop = _lay(stream, begin, groups[last], places[last])
            high = begin if stop is not None else None
        else:
            high = None  # the two ends contradict each other
        last -= 1
    middle = groups[first : last + 1]
    if middle and low is not None and high is not None:
        frames = _walk(stream, low, high)
        if frames is not None:
            for index, at in enumerate(_only_places(frames, middle)):
                if at is not None:
                    size = len(middle[index])
                    places[first + index] = [position for position, _ in frames[at : at + size]]
    return places


def fits(stream: Stream, end: int, lengths: Sequence[int]) -> int:
    """How many captured lengths confirm these frames as the last before `end`; -1: one contradicts it."""
    position = end - sum(n + HEADER_BYTES for n in lengths)
    confirmed = 0
    for length in lengths:
        found = announced(stream, position)
        if found is not None:
            if found != length:
                return -1
            confirmed += 1
        position += HEADER_BYTES + length
    return confirmed


def _lay(stream: Stream, start: int, lengths: Sequence[int], places: list[int | None]) -> int | None:
    """Lays frames one after the other from `start` on; returns where they end.

    None, and nothing is placed, if a captured length contradicts them.
    """
    position = start
    found: list[int | None] = []
    for length in lengths:
        if announced(stream, position) not in (None, length):
            return None
        found.append(position)
        position += HEADER_BYTES + length
    places[:] = found
    return position


def _walk(stream: Stream, low: int, high: int) -> list[tuple[int, int]] | None:
    """(position, length) of every frame in [low, high); None if a length is missing or the end is missed."""
    frames: list[tuple[int, int]] = []
    while low < high:
        length = announced(stream, low)
        if length is None or len(frames) >= MAX_WALK:
            return None
        frames.append((low, length))
        low += HEADER_BYTES + length
    return frames if low == high else None


def _only_places(frames: Sequence[tuple[int, int]], groups: Groups) -> list[int | None]:
    """Index of the first frame of each group where only one is possible.

    Groups keep their order and don't overlap. The first fit from the left and the first from the right are
    the outermost places that a group can have; if they are the same, it is the only one.
    """
    letters: dict[int, str] = {}
    text = "".join([letters.setdefault(length, chr(len(letters))) for _, length in frames])
    words = ["".join([letters.get(length, NO_FRAME) for length in group]) for group in groups]
    left = _greedy(text, words)
    right = _greedy(text[::-1], [word[::-1] for word in reversed(words)])
    if left is None or right is None:
        return [None] * len(groups)
    mirrored = [len(text) - at - len(word) for at, word in zip(reversed(right), words, strict=True)]
    return [a if a == b and word else None for a, b, word in zip(left, mirrored, words, strict=True)]


def _greedy(text: str, words: Sequence[str]) -> list[int] | None:
    """The leftmost place of each word behind the one before; None if there is none."""
    at = 0
    found = []
    for word in words:
        place = text.find(word, at)
        if place < 0:
            return None
        found.append(place)
        at = place + len(word)
    return found
