"""Messages as a capture of their own that decodes by itself: a pcap or a log, as they were or redacted.

In: a session, which rows of it are meant, records, an open output; a key where values are to be replaced.
Out: the bytes.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from rpcinspect.export.pcap.pipes import Numbered
from rpcinspect.export.pcap.writer import write_messages
from rpcinspect.export.redaction.redact import Redactor
from rpcinspect.export.rpclog import write_log
from rpcinspect.files.output import open_whole
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import NONE, Session
from rpcinspect.tcp.ranges import Extent

KEY_BYTES = 32


def key_of(seed: str | None) -> bytes:
    """The key of a seed, which is a secret of the user's; a random one, which nobody keeps, without it."""
    return secrets.token_bytes(KEY_BYTES) if seed is None else seed.encode("utf-8", "surrogateescape")


def with_partners(session: Session, rows: bytes, records: Iterable[RpcRecord]) -> list[Numbered]:
    """The messages that have a 1 in `rows`, with the answers and requests of these, in the order of time."""
    keep = bytearray(rows)
    partner = session.messages.partner
    for row, picked in enumerate(rows):
        if picked and partner[row] != NONE:
            keep[partner[row]] = 1
    return _numbered(session, (record for record in records if keep[record.row]))


def save_messages(
    output: BinaryIO,
    session: Session,
    kept: Sequence[Numbered],
    decoding: Decoding,
    key: bytes | None,
    *,
    network: bool,
    most: int | None = None,
) -> int:
    """Writes a pcap, or a log; returns how many messages have no place in it. `key`: redacted by it; `most`:
    bytes of a storage that a log keeps, of longer ones a hash."""

    def read(extent: Extent) -> bytes:
        return extent.read(decoding.bytes)

    if key is not None:
        redactor = Redactor(session, kept, read, key, network=network)
        session, kept, read = redactor.session, redactor.messages(), redactor.read
    if network:
        write_messages(output, session, kept, read)
        return 0
    return write_log(output, session, kept, read, decoding.wire_facts, most)


def redact_file(source: Path, target: Path, seed: str | None = None) -> int:
    """Writes a capture again, redacted: a log as a log, anything else as a pcap. Returns the number of
    messages.

    `target` appears only when it is whole; nothing that is not redacted is ever written beside it. The two
    may be the same file.
    """
    return _written_again(source, target, key=key_of(seed))


def shorten_log(source: Path, target: Path, most: int) -> int:
    """Writes a log again; of storages longer than `most` the hashes of their tensors are kept, not the bytes.
    Returns the number of messages."""
    return _written_again(source, target, most=most)


def _written_again(source: Path, target: Path, *, key: bytes | None = None, most: int | None = None) -> int:
    with Decoding([str(source)]) as decoding:
        records = list(decoding.records())
        session = decoding.session
        kept = _numbered(session, records)
        with open_whole(target, private=True) as output:
            save_messages(output, session, kept, decoding, key, network=not session.logged, most=most)
    return len(kept)


def _numbered(session: Session, records: Iterable[RpcRecord]) -> list[Numbered]:
    kept = [Numbered(int(session.index[record.row]), record) for record in records]
    return sorted(kept, key=lambda message: message.index)
