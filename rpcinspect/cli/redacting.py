"""Messages as captures of their own, for `-w` and `export rpclog`: as they were, or redacted.

In: a session and a second pass over its captures; a seed, or none. Out: a pcap or a log, and what was written
in words. What a recorder has written is redacted by `redact_file` when the recording is over.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from rpcinspect.cli.output import open_output
from rpcinspect.export.pcap.pipes import Numbered
from rpcinspect.export.pcap.writer import write_messages
from rpcinspect.export.redaction.redact import Redactor
from rpcinspect.export.rpclog import write_log
from rpcinspect.fields.phrases import counted
from rpcinspect.filter.shown import Shown
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import NONE, Session
from rpcinspect.tcp.ranges import Extent

KEY_BYTES = 32


def key_of(seed: str | None) -> bytes:
    """The key of a seed, which is a secret of the user's; a random one, which nobody keeps, without it."""
    return secrets.token_bytes(KEY_BYTES) if seed is None else seed.encode("utf-8", "surrogateescape")


def save(
    path: Path, session: Session, shown: Shown | None, decoding: Decoding, key: bytes | None = None
) -> str:
    """Writes what is shown, with the answers and requests of that, as a capture; says how many these are.

    `decoding`: a second pass over the captures of the session; `key`: redacted by it.
    """
    kept = _kept(session, shown, decoding)
    with open_output(path, private=True) as output:
        _write(output, session, kept, decoding, key, network=True)
    return f"{_told(kept, shown, session, key)}in {path}"


def save_log(
    output: BinaryIO, session: Session, shown: Shown | None, decoding: Decoding, key: bytes | None = None
) -> str:
    """The same as a log, into what is open already."""
    kept = _kept(session, shown, decoding)
    left_out = _write(output, session, kept, decoding, key, network=False)
    told = f"{_told(kept, shown, session, key)}as a log"
    return told + (f"; {counted(left_out, 'message')} not of torch's form left out" if left_out else "")


def redact_file(source: Path, target: Path, seed: str | None = None) -> int:
    """Writes a capture again, redacted: a log as a log, anything else as a pcap. Gives the count of messages.

    `target` appears only when it is whole; nothing that is not redacted is ever written beside it. The two
    may be the same file.
    """
    with Decoding([str(source)]) as decoding:
        records = list(decoding.records())
        session = decoding.session
        kept = _numbered(session, records)
        with open_output(target, private=True) as output:
            _write(output, session, kept, decoding, key_of(seed), network=not session.logged)
    return len(kept)


def _write(
    output: BinaryIO,
    session: Session,
    kept: Sequence[Numbered],
    decoding: Decoding,
    key: bytes | None,
    *,
    network: bool,
) -> int:
    """Writes a pcap, or a log; returns how many messages have no place in it."""

    def read(extent: Extent) -> bytes:
        return extent.read(decoding.bytes)

    if key is not None:
        redactor = Redactor(session, kept, read, key, network=network)
        session, kept, read = redactor.session, redactor.messages(), redactor.read
    if network:
        write_messages(output, session, kept, read)
        return 0
    return write_log(output, session, kept, read, decoding.wire_facts)


def _kept(session: Session, shown: Shown | None, decoding: Decoding) -> list[Numbered]:
    rows = bytes([1]) * len(session.messages) if shown is None else shown.rows
    keep = bytearray(rows)
    partner = session.messages.partner
    for row, picked in enumerate(rows):
        if picked and partner[row] != NONE:
            keep[partner[row]] = 1
    return _numbered(session, (record for record in decoding.records() if keep[record.row]))


def _numbered(session: Session, records: Iterable[RpcRecord]) -> list[Numbered]:
    """Messages with their indexes, in the order of these."""
    kept = [Numbered(int(session.index[record.row]), record) for record in records]
    return sorted(kept, key=lambda message: message.index)


def _told(kept: Sequence[Numbered], shown: Shown | None, session: Session, key: bytes | None) -> str:
    picked = len(session.messages) if shown is None else shown.rows.count(1)
    others = len(kept) - picked
    beside = "" if shown is None else f" and {counted(others, 'other')} that they answer or are answered by"
    return f"{counted(picked, 'message')}{beside}, {'' if key is None else 'redacted, '}"
