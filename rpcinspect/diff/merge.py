"""Aligned calls → the messages of both runs in one order that holds in both as far as there is one.

In: two runs and their alignment. Out: `Aligned` messages. What comes before something in both runs comes
before it here, so no message stands before one that it follows from. The other way round the order is the
same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from rpcinspect.diff.align import Alignment
from rpcinspect.diff.model import Aligned
from rpcinspect.diff.side import CallSignature, DiffSide
from rpcinspect.rpc.message import type_name


class _Entry(NamedTuple):
    """A message of both runs or of one, and the request that it answers."""

    a: int | None
    b: int | None
    request: tuple[int | None, int | None] | None
    sign: CallSignature
    control: bool


def merge(a: DiffSide, b: DiffSide, alignment: Alignment) -> list[Aligned]:
    """The messages of both runs, in order."""
    entries = list(_entries(a, b, alignment))
    both = [(entry.a, entry.b) for entry in entries if entry.a is not None and entry.b is not None]
    keys_a = _keys(both, 0, (entry.a for entry in entries if entry.b is None))
    keys_b = _keys(both, 1, (entry.b for entry in entries if entry.a is None))

    latest_a = _latest(a, b, alignment.pairs)
    latest_b = _latest(b, a, {partner: index for index, partner in alignment.pairs.items()})

    signs = sorted({*a.signs.values(), *b.signs.values()}, key=str)
    ranks = {sign: rank for rank, sign in enumerate(signs)}

    def rank(entry: _Entry) -> int:
        """Of the signs of both runs the one that comes first: it is the same the other way round."""
        its = entry.request if entry.request not in (None, (None, None)) else (entry.a, entry.b)
        assert its is not None
        return min(
            (ranks[run.signs[one]] for run, one in zip((a, b), its, strict=True) if one is not None),
            default=ranks[entry.sign],
        )

    def key(entry: _Entry) -> tuple[int, int, int, int, int, list[bytes]]:
        """Two pairs that have changed places have the same indexes: then what they are decides, then what
        they say."""
        if entry.a is not None and entry.b is not None:
            payloads = sorted(
                [a.messages[entry.a].rpc.message.payload, b.messages[entry.b].rpc.message.payload]
            )
            return max(entry.a, entry.b), min(entry.a, entry.b), 0, 0, rank(entry), payloads
        index = entry.a if entry.b is None else entry.b
        assert index is not None
        before = (keys_a if entry.b is None else keys_b)[index]
        latest = (latest_a if entry.b is None else latest_b).get(index, before)
        if latest < before:
            before, after = latest, -1
        else:
            after = 1
        payload = (a if entry.b is None else b).messages[index].rpc.message.payload
        return *before, after, index, rank(entry), [payload]

    entries.sort(key=key)
    places = {(entry.a, entry.b): place for place, entry in enumerate(entries)}
    return [_aligned(entry, places, a, b) for entry in entries]


def _entries(a: DiffSide, b: DiffSide, alignment: Alignment) -> Iterator[_Entry]:
    """Requests and answers, in no order."""
    taken = set(alignment.pairs.values())
    for call in a.calls.values():
        partner = alignment.pairs.get(call.index)
        other = None if partner is None else b.calls[partner]
        sign = a.signs[call.index]
        yield _Entry(call.index, partner, None, sign, call.control)
        answer = None if other is None else other.answer
        if call.answer is not None or answer is not None:
            yield _Entry(call.answer, answer, (call.index, partner), sign, call.control)
    for call in b.calls.values():
        if call.index not in taken:
            sign = b.signs[call.index]
            yield _Entry(None, call.index, None, sign, call.control)
            if call.answer is not None:
                yield _Entry(None, call.answer, (None, call.index), sign, call.control)
    taken = set(alignment.orphans.values())
    for orphan in a.orphans:
        partner = alignment.orphans.get(orphan.index)
        yield _Entry(orphan.index, partner, (None, None), a.signs[orphan.index], False)
    for orphan in b.orphans:
        if orphan.index not in taken:
            yield _Entry(None, orphan.index, (None, None), b.signs[orphan.index], False)


def _keys(
    both: Iterable[tuple[int, int]], side: int, alone: Iterable[int | None]
) -> dict[int, tuple[int, int]]:
    """Returns, for messages that one run alone has, the key of the pairs that come before."""
    known = {pair[side]: (max(pair), min(pair)) for pair in both}
    wanted = {index for index in alone if index is not None}
    keys: dict[int, tuple[int, int]] = {}
    latest = (-1, -1)
    for index in sorted(known.keys() | wanted):
        if index in wanted:
            keys[index] = latest
        else:
            latest = max(latest, known[index])
    return keys


def _latest(run: DiffSide, other: DiffSide, pairs: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """For messages of calls that one run alone has: the key of the answer that they were most likely sent
    for, which both runs have. It follows from them, so it comes after them, whatever came before them."""
    found: dict[int, tuple[int, int]] = {}
    parents = run.causes.decided().parents
    for call in run.calls.values():
        if call.index in pairs:
            continue
        index: int | None = call.index
        while index is not None and index not in pairs:
            index = parents.get(index)
        if index is None or index not in run.calls:
            continue
        answers = run.calls[index].answer, other.calls[pairs[index]].answer
        if answers[0] is None or answers[1] is None:
            continue
        for message in (call.index, call.answer):
            if message is not None:
                found[message] = max(answers[0], answers[1]), min(answers[0], answers[1])
    return found


def _aligned(
    entry: _Entry, places: dict[tuple[int | None, int | None], int], a: DiffSide, b: DiffSide
) -> Aligned:
    sign, is_answer = entry.sign, entry.request is not None
    run, index = (b, entry.b) if entry.a is None else (a, entry.a)
    assert index is not None
    asked = index if entry.request is None else entry.request[0 if run is a else 1]
    found = Aligned(
        a=entry.a,
        b=entry.b,
        type=type_name(run.messages[index].rpc.message.type),
        source=sign.caller,
        destination=sign.callee,
        function=sign.function,
        call=None if asked is None else run.called(asked),
        request=not is_answer,
        answers=None if entry.request is None else places.get(entry.request),
        control=entry.control,
    )
    if is_answer and entry.request != (None, None):
        found = replace(found, source=sign.callee, destination=sign.caller)
    return found
