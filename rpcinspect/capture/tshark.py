"""Captures that tshark reads for us: all formats and link types that Wireshark opens, tunnels, fragments,
what it decrypts below TCP.

In: a `Source`, preferences for tshark. Out: the same as of the native readers, but TCP segments in place of
packets (`TcpBlock`), since tshark has read the headers; their payloads lie in a deleted temporary file.

tshark runs as a program of its own and prints one line per packet (`tshark_fields`). It is started without
what would change or delay payloads: reassembly of TCP, analysis, names.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing

from rpcinspect.capture.block import ReportProblem, TcpBlock
from rpcinspect.capture.child import ChildTool
from rpcinspect.capture.segments import SegmentSource
from rpcinspect.capture.source import Source
from rpcinspect.capture.tshark_fields import FIELDS
from rpcinspect.errors import DOCTOR, CaptureError, RpcInspectError
from rpcinspect.limits import Unpacking

BATCH = 1 << 22
"""Bytes of output that make a block."""
MAX_LINE = 1 << 28
"""A longer line is no packet."""

PREFERENCES = (
    "tcp.desegment_tcp_streams:FALSE",
    "tcp.analyze_sequence_numbers:FALSE",
    "tcp.calculate_timestamps:FALSE",
    "tcp.relative_sequence_numbers:FALSE",
    "tcp.summary_in_tree:FALSE",
    "ip.summary_in_tree:FALSE",
    "ip.defragment:TRUE",
    "ipv6.defragment:TRUE",
)
"""Ours come first: those that the user gives count."""

PLACES = ("/Applications/Wireshark.app/Contents/MacOS",)
"""Where installers put the programs of Wireshark beside PATH."""

INSTALL = "install it (Debian, Ubuntu: apt install tshark; macOS: brew install wireshark); " + DOCTOR


def find_program(name: str) -> str | None:
    """Returns the path of one of Wireshark's programs; None where it is missing."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(PLACES))


class Tshark(SegmentSource):
    """A capture that tshark reads."""

    END = b"\n"
    """What ends a packet in its output."""

    def __init__(
        self,
        source: Source,
        preferences: Sequence[str],
        capture: int,
        report: ReportProblem,
        unpacking: Unpacking,
    ) -> None:
        """Starts tshark and waits for its first packets; owns `source` from then on. It may unpack what we do
        not, and then `unpacking` is for that.

        Raises `CaptureError` where it is not there or can't read the file, `RpcInspectError` where it does
        not know a preference.
        """
        program = self._program()
        if program is None:
            raise CaptureError(f"{source.name}: --reader {self.format} needs tshark; {INSTALL}")
        super().__init__(source.name, source.compression, capture, report)
        self._source = source
        self._rest = b""
        try:
            self._path, descriptors = source.shared()
            self.ended_early = source.ended_early
            self.read_to = source.size()
            self._allowed = unpacking.allowed(self.read_to)
            child = ChildTool(self._command(program, preferences), descriptors)
            self._child = self._opened.enter_context(closing(child))
            self._first = self._batch()
            if self._first is None:
                self._refuse()
        except BaseException:
            super().close()
            raise

    def blocks(self) -> Iterator[TcpBlock]:
        if self._first is not None:
            yield self._first
            yield from super().blocks()

    def close(self) -> None:
        """Ends tshark and closes the files."""
        super().close()
        self._source.close()

    def _program(self) -> str | None:
        """Returns the path of tshark; None where it is missing."""
        return find_program("tshark")

    def _command(self, program: str, preferences: Sequence[str]) -> list[str]:
        """Returns the program with its arguments."""
        command = [program, "-n", "-r", self._path, "-T", "fields"]
        for form in ("separator=/t", "occurrence=a", "aggregator=,", "quote=n", "header=n"):
            command += ["-E", form]
        for field in FIELDS:
            command += ["-e", field]
        for preference in (*PREFERENCES, *preferences):
            command += ["-o", preference]
        return command

    def _lines(self) -> list[bytes]:
        """Packets of about `BATCH` bytes of output. One that was cut is dropped."""
        pieces, size = [self._rest], len(self._rest)
        ended = False
        while size < BATCH or self.END not in pieces[-1]:
            piece = self._child.read(BATCH)
            if not piece:
                ended = True
                break
            pieces.append(piece)
            size += len(piece)
            if size > MAX_LINE + BATCH:
                break
        *lines, self._rest = b"".join(pieces).split(self.END)
        if len(self._rest) > MAX_LINE:
            self._report(f"tshark's line for packet {self._packet + 1} has no end", self._packet + 1)
            self._child.close()
        if ended:
            self._rest = b""
        return lines

    def _end_early(self, reason: str) -> None:
        super()._end_early(reason)
        self._child.close()

    def _finish(self) -> None:
        """Reports how tshark ended, too."""
        super()._finish()
        code = self._child.result()
        if code and self._packet:
            self._report(f"tshark: {self._told(code)}, after packet {self._packet:,}", self._packet)

    def _refuse(self) -> None:
        """Raises if the end without a packet was an error."""
        code = self._child.result()
        if code == 0:
            return
        told = self._told(code)
        if "-o flag" in told:
            raise RpcInspectError(f"tshark: {told}")
        raise CaptureError(f"{self.name}: tshark can't read it: {told}")

    def _told(self, code: int) -> str:
        """Returns why tshark ended, where it names the file without its path."""
        return told_by(self._child, code).replace(f'The file "{self._path}"', "the file")


def told_by(child: ChildTool, code: int) -> str:
    """Returns tshark's own error message: its last own line that begins no list, with its rest."""
    if code < 0:
        return f"ended by signal {-code}"
    lines = child.complaint()
    starts = [at for at, line in enumerate(lines) if line.startswith("tshark: ")]
    own = [at for at in starts if not lines[at].endswith(":")] or starts
    if not own:
        return f"ended with code {code}"
    end = next((at for at in starts if at > own[-1]), len(lines))
    return " ".join(lines[own[-1] : end]).removeprefix("tshark: ").rstrip(".")
