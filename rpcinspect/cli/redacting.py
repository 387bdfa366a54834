"""Messages as captures of their own, for `-w` and `export rpclog`, and what was written in words.

In: a session and a second pass over its captures; a key, or none. Out: a pcap or a log.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from rpcinspect.export.pcap.pipes import Numbered
from rpcinspect.export.save import save_messages, with_partners
from rpcinspect.fields.phrases import counted
from rpcinspect.files.output import open_whole
from rpcinspect.filter.matches import Shown
from rpcinspect.pipeline import Decoding
from rpcinspect.session.model import Session


def save(
    path: Path, session: Session, shown: Shown | None, decoding: Decoding, key: bytes | None = None
) -> str:
    """Writes the shown messages, with their answers and requests, as a pcap; returns a line with their
    number."""
    kept = _kept(session, shown, decoding)
    with open_whole(path, private=True) as output:
        save_messages(output, session, kept, decoding, key, network=True)
    return f"{_told(kept, shown, session, key)}in {path}"


def save_log(
    output: BinaryIO, session: Session, shown: Shown | None, decoding: Decoding, key: bytes | None = None
) -> str:
    """Writes the shown messages, with their answers and requests, into an open log; returns a line with their
    number."""
    kept = _kept(session, shown, decoding)
    left_out = save_messages(output, session, kept, decoding, key, network=False)
    told = f"{_told(kept, shown, session, key)}as a log"
    return told + (f"; {counted(left_out, 'message')} not of torch's form left out" if left_out else "")


def _kept(session: Session, shown: Shown | None, decoding: Decoding) -> list[Numbered]:
    rows = bytes([1]) * len(session.messages) if shown is None else shown.rows
    return with_partners(session, rows, decoding.records())


def _told(kept: Sequence[Numbered], shown: Shown | None, session: Session, key: bytes | None) -> str:
    picked = len(session.messages) if shown is None else shown.rows.count(1)
    others = len(kept) - picked
    beside = (
        f" and {counted(others, 'other')} that they answer or are answered by" if picked else " that match"
    )
    beside = "" if shown is None else beside
    return f"{counted(picked, 'message')}{beside}, {'' if key is None else 'redacted, '}"
