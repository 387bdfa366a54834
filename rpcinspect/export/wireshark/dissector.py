"""A run as a table for Wireshark, and the dissector in Lua that shows it beside Wireshark's own fields.

In: a finished session, its messages again, then the segments of its captures again. Out: two files in a
folder. The table is text and no code: it is read line by line, whatever was captured. The head of
`torchrpc.lua` says what is in it.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from msgspec import Struct

from rpcinspect.capture.block import Int64s
from rpcinspect.export.wireshark.frames import MessageFrames, frames_of
from rpcinspect.export.wireshark.labels import MessageLabel, MessageLabels
from rpcinspect.files.output import OutputFolder
from rpcinspect.files.place import writing
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session
from rpcinspect.tensorpipe.records import TpMessage

SCRIPT, TABLE = "torchrpc.lua", "torchrpc.tsv"
FIRST_LINE = "messages-of-torch-rpc 1"


class Written(Struct, frozen=True):
    """How much was written."""

    messages: int
    packets: int
    """That carry them, in all captures."""
    bytes: int


def write_dissector(
    folder: Path, session: Session, decoding: Decoding, records: Iterable[RpcRecord]
) -> Written:
    """Writes the dissector with a table of these messages of the session, in the order of completion; reads
    the packets of `decoding` again. Raises `OutputError`, of captures without packets too.
    """
    labels, count = MessageLabels(session, decoding.bytes), 0
    output = OutputFolder(folder, private=True)

    def described() -> Iterator[tuple[int, TpMessage]]:
        nonlocal count
        for record in records:
            label = labels.of(record)
            table.write(f"{_message_line(label)}\n".encode())
            count += 1
            yield label.index, record.tp

    try:
        with writing(folder), io.BufferedWriter(output.new(TABLE)) as table:
            table.write(f"{FIRST_LINE}\n".encode())
            found = frames_of(decoding, described())
            for line in _packet_lines(found):
                table.write(f"{line}\n".encode())
        with writing(folder), output.new(SCRIPT) as script:
            script.write(Path(__file__).with_name(SCRIPT).read_bytes())
        size = output.put(mark=SCRIPT)
    finally:
        output.drop()
    return Written(count, len(np.unique(found.capture << 48 | found.packet)), size)


def _message_line(label: MessageLabel) -> str:
    """Returns the line of a message; texts are printable, so that no tab is in any."""
    parts = (
        *("M", label.index, int(label.request), label.type, label.source, label.destination),
        *(label.function, label.call, label.partner, label.parent, label.latency_ns, label.context),
        *(label.error, " ".join(label.findings), label.tensors, int(label.housekeeping), label.line),
    )
    return "\t".join(["" if part is None else str(part) for part in parts])


def _packet_lines(found: MessageFrames) -> Iterator[str]:
    for message, capture, rows in found.each():
        begins = np.flatnonzero(rows.begins)
        head = int(begins[0]) if len(begins) else 0
        parts = (
            *("P", capture, message, ranges(rows.packet), int(rows.packet[head]) if len(begins) else 0),
            *(_seconds(rows.time_ns[head]), rows.packet[0], _seconds(rows.time_ns[0])),
        )
        yield "\t".join(map(str, parts))


def ranges(packets: Int64s) -> str:
    """`3-5,9` for ascending numbers."""
    ends = np.flatnonzero(np.diff(packets) > 1)
    first, last = packets[[0, *(ends + 1)]].tolist(), packets[[*ends, -1]].tolist()
    return ",".join([f"{a}" if a == b else f"{a}-{b}" for a, b in zip(first, last, strict=True)])


def _seconds(time_ns: int) -> str:
    return f"{time_ns // 10**9}.{time_ns % 10**9:09}"
