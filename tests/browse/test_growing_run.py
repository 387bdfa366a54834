"""A capture that is shown while it is read: what was noted of it may be behind what was decoded."""

from __future__ import annotations

from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.browse.listing import NO_ANSWER, Listing, RowList
from rpcinspect.pipeline import Decoding
from tests.cli.runner import CHAIN


def test_an_answer_that_was_not_noted_yet_is_none() -> None:
    with GrowingRun(Decoding([str(CHAIN)])) as reading:
        records = [one for block in reading.decoding.blocks() for one in block]
        reading._take(records[:1])
        assert reading.columns.from_client[0]
        assert reading.columns.partner[0] > 0  # is decoded
        rows = RowList(reading, Listing("calls", every=True), {})
        assert NO_ANSWER in rows.line(0, 100).text
        reading._take(records[1:])
        assert NO_ANSWER not in rows.line(0, 100).text
