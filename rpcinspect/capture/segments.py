"""Captures whose headers another program has read: what it says of each packet → blocks of TCP segments.

In: lines as `tshark_fields` wants them, from the subclass. Out: `TcpBlock`s; as a source, it serves their
payloads, which lie in a deleted temporary file, in place of the capture.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

from rpcinspect.capture.block import ReportProblem, TcpBlock
from rpcinspect.capture.source import Source
from rpcinspect.capture.tshark_fields import FieldLines
from rpcinspect.errors import NoRoomError
from rpcinspect.files.temporary import Temporary


class SegmentSource(Source):
    """Segments of one capture; `_lines` gives the packets."""

    format = "tshark"
    """What the output says of the format of the file and of who read it."""

    def __init__(self, name: str, compression: str | None, capture: int, report: ReportProblem) -> None:
        self._report = report
        self._parser = FieldLines(capture)
        self._opened = ExitStack()
        self._spool = self._opened.enter_context(Temporary())
        super().__init__(name, os.dup(self._spool.fileno()), compression)
        self._spooled = 0
        self._packet = 0
        self._allowed: int | None = None
        """Bytes of payload that are taken; None: any number."""

    @property
    def has_segments(self) -> bool:
        """Returns whether any packet that was read so far holds TCP."""
        return bool(self._parser.directions)

    def blocks(self) -> Iterator[TcpBlock]:
        """Blocks in the order of the capture."""
        while (block := self._batch()) is not None:
            yield block

    def progress(self) -> tuple[int, int | None]:
        """Bytes of payload; nobody knows how many there are."""
        return self._spooled, None

    def close(self) -> None:
        """Ends what reads the capture and closes the files."""
        self._opened.close()
        super().close()

    def _lines(self) -> list[bytes]:
        """Returns the lines of the next packets; none at the end of the capture."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Reports what could not be read; for an open capture only once."""
        if self._parser.unreadable:
            self._report(f"{self._parser.unreadable:,} lines of tshark's output are not packets", None)

    def _end_early(self, reason: str) -> None:
        self.ended_early = reason
        self._report(reason, None)

    def _batch(self) -> TcpBlock | None:
        """The next packets; None once there are no more and what can't be read is reported."""
        while True:
            lines = self._lines()
            if not lines:
                self._finish()
                return None
            block = self._parser.feed(lines, self._spooled)
            if block is not None:
                return block if self._keep(block) else None

    def _keep(self, block: TcpBlock) -> bool:
        """Puts the payloads of a block where they can be read again; False: there is no room for them."""
        window = block.segments.window
        if self._allowed is not None and self._spooled + len(window) > self._allowed:
            self._end_early(
                f"its packets hold more than {self._spooled:,} bytes, which is much for a file of "
                f"{self.read_to:,}: the rest is not read; --unpack-limit sets another limit"
            )
            return False
        try:
            self._spool.write(window)
        except NoRoomError as error:
            self._end_early(f"the rest is not read: {error}")
            return False
        self._spooled += len(window)
        self._packet += block.packets
        return True
