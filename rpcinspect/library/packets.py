"""The packets of one message as pyshark has them: what Wireshark says of TCP, beside what we know of it.

In: a run and the index of a message. Out: pyshark's packets, dissected by tshark together with all the others
of their capture and by the dissector that `export wireshark` writes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rpcinspect.capture.pyshark_packets import dissected, load_pyshark
from rpcinspect.errors import CaptureError
from rpcinspect.export.wireshark.dissector import SCRIPT, write_dissector
from rpcinspect.library.run import Run
from rpcinspect.run.message import Message


def to_pyshark(run: Run, *, message: int) -> Iterator[Any]:
    """Yields the packets of a message as `pyshark` has them, retransmissions included, in the order of their
    capture; of several captures that with its first byte. All have `tcp`, the first one `torchrpc.function`,
    `.type`, `.latency` and the like (docs/pyshark.md).

    Raises `IndexError` where there is no such message, `CaptureError` where pyshark or tshark is missing and
    for captures that are no files: logs, standard input.
    """
    told = run.model.whole.message(message)
    captures = run.captures
    capture = captures[told.record.tp.capture] if captures else None
    if told.record.tp.pipe.logged or capture is None or not Path(capture.path).is_file():
        raise CaptureError(f"message {message}: packets come from a file of them, and it was read from none")
    load_pyshark(capture.path)
    return _packets(run, told, capture.path)


def _packets(run: Run, told: Message, path: str) -> Iterator[Any]:
    whole, partner = run.model.whole, told.partner
    records = [told.record] if partner is None else [told.record, partner.record]
    with tempfile.TemporaryDirectory(prefix="rpcinspect-") as name:
        folder = Path(name)
        write_dissector(folder, whole.session, run.decoding, sorted(records, key=lambda one: one.row))
        yield from dissected(path, f"torchrpc.part == {told.index}", folder / SCRIPT)
