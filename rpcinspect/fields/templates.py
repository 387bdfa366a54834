"""Text of which the messages of a pattern differ in their ids only, made once for all of them.

In: a message of a pattern, and what tells of any message. Out: that text with a place for each id.
"""

from __future__ import annotations

from collections.abc import Callable

from rpcinspect.rpc.patterns import Ids, Pattern
from rpcinspect.rpc.record import RpcRecord

MARKS = (-0x5ADE_0FF1_CE0D_DB17, -0x5ADE_0FF1_CE0D_DB18)
"""Ids that stand for any others while the text of a pattern is made."""


def template(
    record: RpcRecord,
    pattern: Pattern,
    tell: Callable[[RpcRecord], str],
    write: Callable[[int], str],
    place: str,
) -> str:
    """Returns the text of `tell` for messages of a record's pattern, as a template for %. `write` writes an
    id, `place` stands for one. Empty where ids can't be told from the rest of the text."""

    def told(ids: Ids) -> str:
        rpc = pattern.with_ids(record.tp, ids)
        return tell(RpcRecord(record.row, record.tp, rpc, record.facts, ()))

    marks = list(map(write, MARKS[: len(record.ids)]))
    pieces = [told(MARKS[: len(record.ids)])]
    for mark in marks:
        found = pieces.pop().split(mark)
        if len(found) != 2:
            return ""
        pieces += found
    ids = [*map(write, record.ids), ""]
    same = "".join([text for pair in zip(pieces, ids, strict=True) for text in pair])
    return place.join([piece.replace("%", "%%") for piece in pieces]) if same == told(record.ids) else ""
