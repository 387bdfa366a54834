"""Messages as a capture of their own that decodes by itself: a pcap or a log, as they were or redacted.

In: a session, which rows of it are meant, records, an open output. Out: the bytes, and how many messages they
hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import BinaryIO

from rpcinspect.export.pcap.pipes import Numbered
from rpcinspect.export.pcap.writer import write_messages
from rpcinspect.export.redaction.redact import Redactor
from rpcinspect.export.rpclog import write_log
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import NONE, Session
from rpcinspect.tcp.ranges import Extent


def save_messages(
    output: BinaryIO,
    session: Session,
    rows: bytes,
    records: Iterable[RpcRecord],
    decoding: Decoding,
    key: bytes | None,
    *,
    network: bool,
) -> int:
    """Writes the messages that have a 1 in `rows`, with the answers and requests of these, as packets or as
    a log. `key`: they are redacted by it; None: as they were.
    """
    keep = bytearray(rows)
    partner = session.messages.partner
    for row, picked in enumerate(rows):
        if picked and partner[row] != NONE:
            keep[partner[row]] = 1
    kept = numbered(session, (record for record in records if keep[record.row]))
    write_kept(output, session, kept, decoding, key, network=network)
    return len(kept)


def numbered(session: Session, records: Iterable[RpcRecord]) -> list[Numbered]:
    """Messages with their indexes, in the order of these."""
    kept = [Numbered(int(session.index[record.row]), record) for record in records]
    return sorted(kept, key=lambda message: message.index)


def write_kept(
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
