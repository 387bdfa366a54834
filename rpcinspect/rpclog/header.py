"""What the header line of a log's record says, read strictly.

In: a header as JSON has it, its lengths known to be lengths. Out: a `LoggedMessage`, `LoggedFailure`,
`LoggedWorker`, `LoggedEnd` or `LoggedLoss`; `DecodeError` where it says something that can't be. Keys that
are not known are left alone, so that writers can add their own.

The types of keys are those of structures, and msgspec holds a header to them. What is a header of its own
here (`MessageHeader`, `FailureHeader`, `StorageHeader`) is written in another form than it is handed on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert

from rpcinspect.errors import DecodeError
from rpcinspect.rpc.message import MessageType, is_request, is_response
from rpcinspect.wire.records import Placement
from rpcinspect.wire.tensorpipe import TpDevice

Header: TypeAlias = Mapping[str, Any]

MAX_NAME = 4096
MAX_TEXT = 1 << 14
"""Characters of what a failure says that are kept."""
INT64 = 1 << 63
MAX_REASON = 200
"""Characters of what msgspec says of a header, which may quote it."""
MAX_HOLES = 1 << 33
"""Bytes missing of a storage that is partly there."""
CPU = TpDevice("cpu", 0)

Int: TypeAlias = Annotated[int, Meta(ge=-INT64, le=INT64 - 1)]
Size: TypeAlias = Annotated[int, Meta(ge=0, le=INT64 - 1)]
Text: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME, pattern=r"^[^\ud800-\udc7f\udd00-\udfff]*\Z")]
"""Unicode, other bytes as `surrogateescape`: JSON can say halves of characters, too."""
Name: TypeAlias = Annotated[Text, Meta(min_length=1)]
Job: TypeAlias = Int | Text
Type: TypeAlias = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)] | str
"""A message type by its number or its name."""
Reason: TypeAlias = Literal["timeout", "connection", "error"]
"""Why a call ended without an answer."""

MESSAGE, FAILED, WORKER, CLOSED, LOST, SPAN = "message", "failed", "worker", "closed", "lost", "span"
"""The kinds of records, as `rpc` names them; others are passed over."""


class LoggedStorage(Struct, frozen=True, kw_only=True):
    """One storage of a message."""

    length: int
    missing: tuple[tuple[int, int], ...] = ()
    """Ranges [from, to) whose bytes do not follow."""
    placement: Placement = Placement.CERTAIN
    source: TpDevice = CPU
    target: TpDevice | None = None

    @property
    def present(self) -> int:
        """Bytes that follow."""
        return self.length - sum(stop - start for start, stop in self.missing)


class LoggedMessage(Struct, frozen=True, kw_only=True):
    """One message."""

    time_ns: int
    end_ns: int
    src: str
    dst: str
    type: int
    id: int
    request: bool
    job: Job = 0
    way: int = 0
    side: str | None = None
    payload: int = 0
    table: int = 0
    payload_missing: int = 0
    table_missing: int = 0
    storages: tuple[LoggedStorage, ...] = ()
    after_loss: bool = False


class LoggedFailure(Struct, frozen=True, kw_only=True):
    """A call that ended at its caller without an answer; `src` is the caller."""

    time_ns: int
    src: str
    dst: str
    id: int
    """Of the request."""
    reason: str
    """One of `Reason`."""
    text: str = ""
    type: int | None = None
    """Of the request, where it is told."""
    job: Job = 0
    way: int = 0


class LoggedWorker(Struct, frozen=True, kw_only=True):
    """A worker of a job."""

    name: Name | None = None
    id: Int | None = None
    group: Size = 0
    job: Job = 0
    addresses: tuple[Text, ...] = ()
    elsewhere: tuple[Text, ...] = ()


class LoggedEnd(Struct, frozen=True, kw_only=True):
    """Nothing more can go from or to `dst` in answer to requests of `src`."""

    src: Name
    dst: Name
    by: Literal["src", "dst"]
    """Who ended it."""
    how: Literal["closed", "reset"] = "closed"
    job: Job = 0
    way: Int = 0
    time_ns: Int


class LoggedLoss(Struct, frozen=True, kw_only=True):
    """Messages that the writer of the log could not write."""

    src: Name
    dst: Name
    job: Job = 0
    way: Int = 0
    request: bool = True


Logged: TypeAlias = LoggedMessage | LoggedFailure | LoggedWorker | LoggedEnd | LoggedLoss


class StorageHeader(Struct, kw_only=True):
    """One item of `storages`, unless it is a length only."""

    length: int
    missing: tuple[tuple[Int, Int], ...] = ()
    placement: Placement | UnsetType = UNSET
    source: Text = "cpu"
    target: Text | None = None

    def logged(self) -> LoggedStorage:
        """The storage, if all that is said of it can be."""
        length, missing = self.length, self.missing
        if not 0 <= length < 1 << 64:
            raise _wrong("the length of a storage is no length")
        at = 0
        for start, stop in missing:
            if not at <= start < stop <= length:
                raise _wrong("ranges of missing bytes are out of order or outside of their storage")
            at = stop
        gone = bool(length) and missing == ((0, length),)
        if not gone and sum(stop - start for start, stop in missing) > MAX_HOLES:
            raise _wrong("more bytes of a storage are missing than can be lost")
        placement = self.placement
        if placement is UNSET:
            placement = Placement.MISSING if gone else Placement.CERTAIN
        if placement is not Placement.CERTAIN and not gone and length:
            raise _wrong("placement is not one of those that its bytes allow")
        return LoggedStorage(
            length=length,
            missing=missing,
            placement=placement,
            source=_device(self.source),
            target=None if self.target is None else _device(self.target),
        )


class MessageHeader(Struct, kw_only=True):
    """A message."""

    time_ns: Int
    src: Name
    dst: Name
    type: Type
    id: Int
    bytes: Size = 0
    end_ns: Int | UnsetType = UNSET
    request: bool | UnsetType = UNSET
    job: Job = 0
    way: Int = 0
    side: Literal["src", "dst"] | None = None
    payload: Size = 0
    table: Size = 0
    payload_missing: Size = 0
    table_missing: Size = 0
    storages: tuple[StorageHeader | int, ...] = ()
    after_loss: bool = False

    def logged(self) -> LoggedMessage:
        """The message, if its bytes add up."""
        kind, time_ns = _type(self.type), self.time_ns
        storages = tuple(
            [
                (StorageHeader(length=item) if isinstance(item, int) else item).logged()
                for item in self.storages
            ]
        )
        if self.payload + self.table + sum([storage.present for storage in storages]) != self.bytes:
            raise _wrong("bytes is not the sum of what is announced")
        request = is_request(kind) or not is_response(kind) if self.request is UNSET else self.request
        return LoggedMessage(
            time_ns=time_ns,
            end_ns=time_ns if self.end_ns is UNSET else max(time_ns, self.end_ns),
            src=self.src,
            dst=self.dst,
            type=kind,
            id=self.id,
            request=request,
            job=self.job,
            way=self.way,
            side=self.side,
            payload=self.payload,
            table=self.table,
            payload_missing=self.payload_missing,
            table_missing=self.table_missing,
            storages=storages,
            after_loss=self.after_loss,
        )


class FailureHeader(Struct, kw_only=True):
    """A call that ended without an answer."""

    time_ns: Int
    src: Name
    dst: Name
    id: Int
    reason: Reason
    text: str = ""
    type: Type | None = None
    job: Job = 0
    way: Int = 0

    def logged(self) -> LoggedFailure:
        """The failure, its text cut."""
        return LoggedFailure(
            time_ns=self.time_ns,
            src=self.src,
            dst=self.dst,
            id=self.id,
            reason=self.reason,
            text=self.text[:MAX_TEXT],
            type=None if self.type is None else _type(self.type),
            job=self.job,
            way=self.way,
        )


READERS: dict[str, Callable[[Header], Logged]] = {
    MESSAGE: lambda header: convert(header, MessageHeader).logged(),
    FAILED: lambda header: convert(header, FailureHeader).logged(),
    WORKER: lambda header: convert(header, LoggedWorker),
    CLOSED: lambda header: convert(header, LoggedEnd),
    LOST: lambda header: convert(header, LoggedLoss),
}


def read_header(header: Header) -> Logged | None:
    """What it says; None where it is of a kind that is not known."""
    reader = READERS.get(header["rpc"])
    try:
        return None if reader is None else reader(header)
    except (ValidationError, UnicodeEncodeError) as error:  # the latter: half a character in a key
        raise _wrong(str(error)[:MAX_REASON]) from error


def _device(value: str) -> TpDevice:
    match = _DEVICE.fullmatch(value)
    if match is None:
        raise _wrong("a device is not named as torch names devices")
    return TpDevice(match[1], int(match[2] or 0))


def _type(value: int | str) -> int:
    """The number of a message type."""
    if isinstance(value, int):
        return value
    if value not in MessageType.__members__:
        raise _wrong("type is neither a name nor the number of a message type")
    return int(MessageType[value])


def _wrong(reason: str) -> DecodeError:
    return DecodeError("capture", f"the record can't be: {reason}")


_DEVICE = re.compile(r"(.{0,4096}?)(?::(-?\d{1,18}))?", re.ASCII | re.DOTALL)
"""`cpu`, `cuda:0`; -1 is an index that is not known."""
