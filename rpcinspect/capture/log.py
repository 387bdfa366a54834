"""Log captures: what a process wrote of its own messages, see docs/log-format.md.

In: a file that begins with `{"rpclog":`. Out: `LogBlock`s of records: the header line as JSON, the bytes that
are the message's own, and where those of its storages lie. What the header says of workers and messages is
not looked at here, only the lengths that lead to the next record.

A record that can't be is passed over up to the next line that begins like a header; so is the last one if it
was cut. Nothing is held but a window, and one message's payload at a time.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Annotated, Any, NoReturn, TypeAlias, TypeVar

from msgspec import Meta, Struct, ValidationError, convert

from rpcinspect.capture.block import LOG_MAGIC, LogBlock, LogRecord, ReportProblem
from rpcinspect.capture.source import WINDOW, Source
from rpcinspect.errors import CaptureError, NoRoomError
from rpcinspect.late_pattern import late

VERSION = 1
BEGIN = b'{"rpc'
"""What each line of a header begins with, the first one too."""

MAX_HEADER = 1 << 20
"""Bytes of a header line without its base64: room for 50,000 storages."""
MAX_LINE = 1 << 26
"""Bytes of a line with base64; what is larger belongs behind a header."""
MAX_BODY = 1 << 31
"""Bytes of payload and tensor table together, which are held in memory."""
MAX_LENGTH = 1 << 62
MAX_TIME = (1 << 63) - 1
MAX_REASON = 200
"""Characters of what a library says of a line, which may quote it."""
MAX_PROBLEMS = 1000
"""Of one log that are reported one by one."""
BATCH, BATCH_BYTES = 1000, WINDOW

Length: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_LENGTH)]
Time: TypeAlias = Annotated[int, Meta(ge=-MAX_TIME, le=MAX_TIME)]


class Damage(Exception):
    """A record that can't be; never leaves this module."""


class Cut(Damage):
    """The log ends before the record does."""


class Newer(Damage):
    """Written by a later version of the format."""


class FirstLine(Struct):
    """The first line of a log."""

    rpclog: Annotated[int, Meta(ge=1)]
    """The version of its format."""


class RecordFrame(Struct):
    """The keys of a record's header that say where the next record begins; every record has them."""

    rpc: str
    bytes: Length = 0
    time_ns: Time | None = None
    end_ns: Time | None = None
    base64: str | None = None


class OwnBytes(Struct):
    """Lengths of a message's pickle and tensor table, which lie before the bytes of its storages."""

    payload: Length = 0
    table: Length = 0


def read_log(source: Source, capture: int, report: ReportProblem) -> Iterator[LogBlock]:
    """Every record in file order; the first line is read at once, the rest as blocks are asked for.

    Raises `CaptureError` for a version that is not known.
    """
    return _LogWalk(source, capture, report).blocks()


class _LogWalk:
    """Walks one log; keeps the state between blocks."""

    def __init__(self, source: Source, capture: int, report: ReportProblem) -> None:
        self._source = source
        self._capture = capture
        self._report = report
        self._windows = _Windows(source)
        self._damaged = False
        self._problems = 0
        line = self._windows.line(0, MAX_HEADER)
        if line is None:
            raise CaptureError(f"{source.name}: cut within the first line of a log")
        try:
            _check_version(line)
        except Damage as damage:
            raise CaptureError(f"{source.name}: {damage}") from damage
        self._begin = len(line)

    def blocks(self) -> Iterator[LogBlock]:
        at, number = self._begin, 0
        batch: list[LogRecord] = []
        held = 0
        while True:
            found = self._next(at, number + 1)
            if found is None:
                break
            record, at = found
            if record is None:
                continue
            number += 1
            batch.append(record)
            held += len(record.payload) + len(record.table)
            if len(batch) >= BATCH or held >= BATCH_BYTES or self._windows.left(at) == 0:
                yield self._block(batch)
                batch, held = [], 0
        if batch or self._damaged:
            yield self._block(batch)

    def _block(self, records: list[LogRecord]) -> LogBlock:
        damaged, self._damaged = self._damaged, False
        return LogBlock(capture=self._capture, records=tuple(records), damaged=damaged)

    def _next(self, at: int, number: int) -> tuple[LogRecord | None, int] | None:
        """The record at `at`, or None where there is none, and where to go on; None at the end."""
        try:
            line = self._windows.line(at, MAX_LINE)
            if line is None:
                if self._windows.left(at):
                    self._tell("the log ends within a header line", at)
                return None
            if line == b"\n":
                return None, self._windows.behind_newlines(at)
            if line.startswith(LOG_MAGIC):
                _check_version(line)
                return None, at + len(line)
            header, frame, text = _read_header(line)
            return self._record(header, frame, text, number, at, at + len(line))
        except NoRoomError as error:
            self._source.ended_early = f"the rest is not read: {error}"
            self._tell(self._source.ended_early, at)
            return None
        except Newer as newer:
            self._tell(f"the rest is not read: {newer}", at)
            self._damaged = True
            return None
        except Damage as damage:
            found = self._windows.find(at, b"\n" + BEGIN)
            if found is None:
                there = self._source.size() - at
                self._tell(f"the last {there:,} bytes of the log are not a whole record: {damage}", at)
                self._damaged |= not isinstance(damage, Cut)
                return None
            self._damaged = True
            passed = found + 1 - at
            self._tell(f"{passed:,} bytes of the log hold no record: {damage}", at)
            return None, found + 1

    def _tell(self, reason: str, at: int) -> None:
        self._problems += 1
        if self._problems <= MAX_PROBLEMS:
            self._report(reason, offset=at)
        elif self._problems == MAX_PROBLEMS + 1:
            self._report("the log is damaged in more places, which are not listed", offset=at)

    def _record(
        self,
        header: dict[str, Any],
        frame: RecordFrame,
        text: bytes | None,
        number: int,
        at: int,
        body_at: int,
    ) -> tuple[LogRecord, int]:
        total = frame.bytes
        own = _typed(header, OwnBytes) if frame.rpc == "message" else OwnBytes()
        payload, table = own.payload, own.table
        kept = payload + table
        if kept > total:
            raise Damage(f"it announces {kept:,} of {total:,} bytes")
        if kept > MAX_BODY:
            raise Damage(f"it announces a payload of {kept:,} bytes")
        times = (frame.time_ns, frame.end_ns)
        if text is not None:
            data, rest = self._decode(text, total, kept)
            return LogRecord(number, at, header, times, data[:payload], data[payload:kept], rest), body_at
        end = body_at + total
        if not total:
            return LogRecord(number, at, header, times, b"", b"", body_at), body_at
        last = self._windows.peek(end - 1, 2)
        if not last:
            there = self._source.size() - body_at
            raise Cut(f"it ends after {there:,} of {total:,} bytes")
        if last[1:] not in (b"", b"\n"):
            raise Damage(f"no line ends after the {total:,} bytes that it announces")
        parts = self._windows.take(body_at, payload), self._windows.take(body_at + payload, table)
        self._source.give_back(at, body_at + kept)  # what is behind are storages, which are not read yet
        return LogRecord(number, at, header, times, *parts, body_at + kept), end + len(last) - 1

    def _decode(self, text: bytes, total: int, kept: int) -> tuple[bytes, int]:
        """Decodes base64; returns the bytes, and where the storages' part was put aside."""
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError as error:
            raise Damage(f"its base64 is invalid: {error}") from error
        if len(data) != total:
            raise Damage(f"its base64 says {len(data):,} bytes, {total:,} are announced")
        rest = self._source.put_aside(memoryview(data)[kept:]) if len(data) > kept else 0
        return data, rest


class _Windows:
    """A window of the log that moves on."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._start = 0
        self._data = b""

    def line(self, at: int, limit: int) -> bytes | None:
        """The line that begins at `at`, with its newline; None if the log ends before that."""
        if not self._start <= at <= self._start + len(self._data):
            self._start, self._data = at, self._source.window(at, 1)
        searched = 0
        while True:
            begin = at - self._start
            end = self._data.find(b"\n", begin + searched, begin + limit)
            if end >= 0:
                return self._data[begin : end + 1]
            searched = len(self._data) - begin
            if searched >= limit:
                raise Damage(f"a line of more than {limit:,} bytes")
            wanted = searched + 1 if searched < WINDOW else 2 * searched
            self._start, self._data = at, self._source.window(at, min(wanted, limit))
            if len(self._data) <= searched:
                return None

    def behind_newlines(self, at: int) -> int:
        """Where the newlines at `at` end, as far as the window has them: a writer may leave thousands."""
        match = _NEWLINES.match(self._data, at - self._start)
        return at if match is None else self._start + match.end()

    def find(self, at: int, what: bytes) -> int | None:
        """Returns the next place of these bytes from `at` on; moves the window there."""
        found = self._data.find(what, max(0, at - self._start)) if at >= self._start else -1
        if found >= 0:
            return self._start + found
        at = max(at, self._start + len(self._data) - len(what) + 1)
        while len(data := self._source.window(at, len(what))) >= len(what):
            found = data.find(what)
            if found >= 0:
                self._start, self._data = at, data
                return at + found
            at += len(data) - len(what) + 1
        return None

    def held(self, at: int, length: int) -> bytes | None:
        """Bytes at `at`, if the window has them."""
        begin = at - self._start
        return self._data[begin : begin + length] if 0 <= begin <= len(self._data) - length else None

    def take(self, at: int, length: int) -> bytes:
        """Bytes at `at`, which are there; the window stays where it is."""
        held = self.held(at, length)
        return self._source.pread(at, length) if held is None else held

    def peek(self, at: int, length: int) -> bytes:
        """A few bytes anywhere, fewer at the end of the log; the window stays where it is."""
        held = self.held(at, length)
        if held is not None:
            return held
        if at + length > self._source.size():
            return self._source.window(at, length)[:length]
        return self._source.pread(at, length)

    def left(self, at: int) -> int:
        """Bytes of the window from `at` on."""
        return max(0, self._start + len(self._data) - at)


def _check_version(line: bytes) -> None:
    """The first line of a log, or of one that was appended to another."""
    said = _object(line)
    try:
        version = _typed(said, FirstLine).rpclog
    except Damage as damage:
        raise Damage("the first line of a log has no version") from damage
    if version > VERSION:
        raise Newer(
            f"version {version} of the log format is newer than {VERSION}, the newest read here: update"
        )


def _read_header(line: bytes) -> tuple[dict[str, Any], RecordFrame, bytes | None]:
    """Returns a header line as JSON, again as a frame, and the text of `base64`, which is cut out before."""
    if not line.startswith(BEGIN):
        raise Damage("no header where one should begin")
    text = None
    if len(line) > MAX_HEADER:
        head, mark, tail = line.rpartition(b'"base64"')
        match = _BASE64_TAIL.fullmatch(tail)
        head = head.rstrip()
        if not mark or match is None or not head.endswith(b",") or len(head) > MAX_HEADER:
            raise Damage(f"a header of more than {MAX_HEADER:,} bytes, whose last item is not base64")
        text, line = match[1], head[:-1] + b"}"
    header = _object(line)
    frame = _typed(header, RecordFrame)
    header.pop("base64", None)
    return header, frame, text if frame.base64 is None else frame.base64.encode("ascii", "replace")


def _object(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Damage(f"it is not JSON: {error}"[:MAX_REASON]) from error
    if not isinstance(said, dict):
        raise Damage("it is not a JSON object")
    return said


def _refuse(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not a number")


def _typed(header: dict[str, Any], kind: type[Typed]) -> Typed:
    """Returns a header as a structure. Raises `Damage` where a value has the wrong type."""
    try:
        return convert(header, kind)
    except (ValidationError, UnicodeEncodeError) as error:  # the latter: half a character in a key
        raise Damage(f"its header is invalid: {error}"[:MAX_REASON]) from error


Typed = TypeVar("Typed", RecordFrame, OwnBytes, FirstLine)

_NEWLINES = late(rb"\n+")
_BASE64_TAIL = late(rb'\s*:\s*"([A-Za-z0-9+/=]*)"\s*}\s*')
