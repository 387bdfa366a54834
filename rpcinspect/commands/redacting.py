"""Redaction at the command line: the key, and whole files.

In: a seed, or none; a capture. Out: a key; the same capture redacted, in its own format. What a recorder has
written is redacted by `redact_file` when the recording is over.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from rpcinspect.commands.output import open_output
from rpcinspect.pipeline import Decoding
from rpcinspect.redaction.redact import Redactor
from rpcinspect.session.model import Session
from rpcinspect.writing.file import write_messages
from rpcinspect.writing.log import write_log
from rpcinspect.writing.pipes import Numbered
from rpcinspect.writing.talks import Read

KEY_BYTES = 32


def key_of(seed: str | None) -> bytes:
    """The key of a seed, which is a secret of the user's; a random one, which nobody keeps, without it."""
    return secrets.token_bytes(KEY_BYTES) if seed is None else seed.encode("utf-8", "surrogateescape")


def redacted(
    session: Session, kept: Sequence[Numbered], read: Read, key: bytes, *, network: bool
) -> tuple[Session, list[Numbered], Read]:
    """What a writer of captures takes, redacted; `network`: for a pcap."""
    redactor = Redactor(session, kept, read, key, network=network)
    return redactor.session, redactor.messages(), redactor.read


def redact_file(source: Path, target: Path, seed: str | None = None) -> int:
    """Writes a capture again, redacted: a log as a log, anything else as a pcap. Gives the count of messages.

    `target` appears only when it is whole; nothing that is not redacted is ever written beside it. The two
    may be the same file.
    """
    with Decoding([str(source)]) as decoding:
        records = list(decoding.records())
        session = decoding.session
        kept = [Numbered(int(session.index[record.row]), record) for record in records]
        kept.sort(key=lambda message: message.index)
        network = not session.logged
        made, messages, read = redacted(
            session, kept, lambda extent: extent.read(decoding.bytes), key_of(seed), network=network
        )
        with open_output(target, private=True) as output:
            if network:
                write_messages(output, made, messages, read)
            else:
                write_log(output, made, messages, read, decoding.wire_facts)
    return len(kept)
