"""A whole run in memory, for whatever tells of more than single messages: `--graph`, `--latency`, pages.

In: a decoding, a filter or none. Out: the run, ready to be asked, and what the filter picked. All records are
kept meanwhile: an answer may need any two of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.run import Run

if TYPE_CHECKING:
    from rpcinspect.filter.selection import Filter
    from rpcinspect.views.shown import Shown


def read_run(decoding: Decoding, chosen: Filter | None = None) -> tuple[Run, Shown | None]:
    """Reads everything. Answers are of the whole run; which of them are shown is up to the view."""
    if chosen is None:
        return Run.of(decoding, list(decoding.records())), None
    from rpcinspect.filter.selection import Selection

    selection = Selection(chosen, decoding.bytes)
    records: list[RpcRecord] = []
    for record in decoding.records():
        records.append(record)
        selection.feed(record)
    return Run.of(decoding, records), selection.finish(decoding.session)
