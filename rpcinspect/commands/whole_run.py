"""A whole run in memory, for whatever tells of more than single messages: `--graph`, `--latency`, pages.

In: a decoding, a filter or none. Out: the run, ready to be asked, and what the filter picked. All records are
kept meanwhile: an answer may need any two of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.trace.answers import Trace, trace

if TYPE_CHECKING:
    from rpcinspect.filter.selection import Filter
    from rpcinspect.views.shown import Shown


def read_run(decoding: Decoding, chosen: Filter | None = None) -> tuple[Trace, Shown | None]:
    """Reads everything. Answers are of the whole run; which of them are shown is up to the view."""
    records: list[RpcRecord] = []
    selection = None
    if chosen is not None:
        from rpcinspect.filter.selection import Selection

        selection = Selection(chosen, decoding.bytes)
    for record in decoding.records():
        records.append(record)
        if selection is not None:
            selection.feed(record)
    session = decoding.session
    messages = [records[row] for row in session.order.tolist()]
    run = trace(session, messages, ends=decoding.ends, source=decoding.bytes)
    return run, None if selection is None else selection.finish(session)
