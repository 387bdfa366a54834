"""What `decode` does for `-f`, `-w` and `--format rpclog`: reads a filter, points at what is wrong with it,
and saves the messages that it picks.

In: what the command line named, a session. Out: a `Filter`; lines for people; a pcap or a log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from rich.cells import cell_len

from rpcinspect.commands.output import open_output
from rpcinspect.commands.redacting import redacted
from rpcinspect.errors import FilterError
from rpcinspect.filter.grammar import parse
from rpcinspect.filter.selection import Filter
from rpcinspect.pipeline import Decoding
from rpcinspect.session.model import NONE, Session
from rpcinspect.views.phrases import counted
from rpcinspect.views.shown import Shown
from rpcinspect.wire.ranges import Extent
from rpcinspect.writing.file import write_messages
from rpcinspect.writing.log import write_log
from rpcinspect.writing.pipes import Numbered

_REDACTED = "redacted, "
AROUND = 60
"""Characters that are shown on either side of a mistake."""


def read_filter(text: str) -> Filter:
    """The filter; `FilterError` where it is none."""
    return Filter(parse(text), text)


def pointed(error: FilterError) -> str:
    """What is wrong, the filter, and marks below the place."""
    low = max(0, error.start - AROUND)
    high = min(len(error.text), error.start + AROUND)
    text = "".join(c if c.isprintable() else " " for c in error.text)
    before = ("…" if low else "") + text[low : error.start]
    after = text[error.start : high] + ("…" if high < len(text) else "")
    marked = text[error.start : min(error.end, high)]
    return f"-f: {error.reason}\n{before}{after}\n{' ' * cell_len(before)}{'^' * max(1, cell_len(marked))}"


def save(
    path: Path, session: Session, shown: Shown | None, decoding: Decoding, key: bytes | None = None
) -> str:
    """Writes what is shown, with the answers and requests of that, as a capture; says how many these are.

    `decoding`: a second pass over the captures of the session; `key`: redacted by it.
    """
    kept = _kept(session, shown, decoding)
    told = f"{_told(kept, shown, session)}, {_REDACTED if key is not None else ''}in {path}"
    read = _reader(decoding)
    if key is not None:
        session, kept, read = redacted(session, kept, read, key, network=True)
    with open_output(path, private=True) as output:
        write_messages(output, session, kept, read)
    return told


def save_log(
    output: BinaryIO, session: Session, shown: Shown | None, decoding: Decoding, key: bytes | None = None
) -> str:
    """The same as a log, into what is open already."""
    kept = _kept(session, shown, decoding)
    told = f"{_told(kept, shown, session)}, {_REDACTED if key is not None else ''}as a log"
    read = _reader(decoding)
    if key is not None:
        session, kept, read = redacted(session, kept, read, key, network=False)
    left_out = write_log(output, session, kept, read, decoding.wire_facts)
    return told + (f"; {counted(left_out, 'message')} not of torch's form left out" if left_out else "")


def _kept(session: Session, shown: Shown | None, decoding: Decoding) -> list[Numbered]:
    rows = bytes([1]) * len(session.messages) if shown is None else shown.rows
    keep = bytearray(rows)
    partner = session.messages.partner
    for row, picked in enumerate(rows):
        if picked and partner[row] != NONE:
            keep[partner[row]] = 1
    kept = [Numbered(int(session.index[r.row]), r) for r in decoding.records() if keep[r.row]]
    kept.sort(key=lambda message: message.index)
    return kept


def _reader(decoding: Decoding) -> Callable[[Extent], bytes]:
    return lambda extent: extent.read(decoding.bytes)


def _told(kept: Sequence[Numbered], shown: Shown | None, session: Session) -> str:
    picked = len(session.messages) if shown is None else shown.rows.count(1)
    others = len(kept) - picked
    beside = "" if shown is None else f" and {counted(others, 'other')} that they answer or are answered by"
    return f"{counted(picked, 'message')}{beside}"
