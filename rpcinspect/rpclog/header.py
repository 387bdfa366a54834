"""What the header line of a log's record says, read strictly.

In: a header as JSON has it, its lengths known to be lengths. Out: a `LoggedMessage`, `LoggedFailure`,
`LoggedWorker`, `LoggedProcess`, `LoggedEnd` or `LoggedLoss`; `DecodeError` where it says something that can't
be. Keys that are not known are left alone, so that writers can add their own.

The types of keys are those of structures, and msgspec holds a header to them. What is a header of its own
here (`MessageHeader`, `StorageHeader`) is written in another form than it is handed on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert
from msgspec.structs import replace

from rpcinspect.errors import DecodeError
from rpcinspect.rpc.message import MessageType, is_request, is_response
from rpcinspect.tensorpipe.control_types import TpDevice
from rpcinspect.tensorpipe.records import Placement

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
LogName: TypeAlias = Annotated[Text, Meta(min_length=1)]
LogJob: TypeAlias = Int | Text
Int32: TypeAlias = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)]
Type: TypeAlias = Int32 | str
"""A message type by its number or its name."""
Digest: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
"""sha256 of the elements of a tensor."""
Reason: TypeAlias = Literal["timeout", "connection", "error"]
"""Why a call ended without an answer."""

MESSAGE, FAILED, WORKER, CLOSED, LOST, SPAN = "message", "failed", "worker", "closed", "lost", "span"
PROCESS = "process"
"""The kinds of records, as `rpc` names them; others are passed over."""


class LoggedStorage(Struct, frozen=True, kw_only=True):
    """A storage of a message in a log."""

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


class SaidOfMessage(Struct, frozen=True, kw_only=True):
    """What is handed on of a message as it is written."""

    time_ns: Int
    src: LogName
    dst: LogName
    id: Int
    job: LogJob = 0
    way: Int = 0
    side: Literal["src", "dst"] | None = None
    payload: Size = 0
    table: Size = 0
    payload_missing: Size = 0
    table_missing: Size = 0
    after_loss: bool = False
    sha256: tuple[Digest | None, ...] = ()
    """Of each tensor whose bytes were left out; None of the others."""


class LoggedMessage(SaidOfMessage, frozen=True, kw_only=True):
    """A message in a log."""

    end_ns: int
    type: int
    request: bool
    storages: tuple[LoggedStorage, ...] = ()


class LoggedFailure(Struct, frozen=True, kw_only=True):
    """A call that ended at its caller without an answer; `src` is the caller."""

    time_ns: Int
    src: LogName
    dst: LogName
    type: Int32 | None = None
    """Of the request, where it is told."""
    id: Int
    """Of the request."""
    job: LogJob = 0
    way: Int = 0
    reason: Reason
    text: str = ""


class LoggedWorker(Struct, frozen=True, kw_only=True):
    """A worker of a job."""

    name: LogName | None = None
    id: Int | None = None
    group: Size = 0
    job: LogJob = 0
    addresses: tuple[Text, ...] = ()
    elsewhere: tuple[Text, ...] = ()


class LoggedProcess(Struct, frozen=True, kw_only=True):
    """How the process of a worker ended."""

    name: LogName
    id: Int | None = None
    job: LogJob = 0
    pid: Size | None = None
    how: Literal["exit", "signal", "running", "unknown"]
    status: Int32 | None = None
    """Of `exit`, where it is known."""
    signal: Annotated[str, Meta(pattern=r"^SIG[A-Z0-9+]{1,16}\Z")] | None = None
    """Of `signal`."""
    error: Text | None = None
    """The class of an exception with which it ended."""
    time_ns: Int | None = None
    oom_kills: Size = 0
    """Processes of its memory group that the kernel killed meanwhile for lack of memory."""


class LoggedEnd(Struct, frozen=True, kw_only=True):
    """The end of all traffic that belongs to requests from `src` to `dst`."""

    time_ns: Int
    src: LogName
    dst: LogName
    job: LogJob = 0
    way: Int = 0
    by: Literal["src", "dst"]
    """Who ended it."""
    how: Literal["closed", "reset"] = "closed"


class LoggedLoss(Struct, frozen=True, kw_only=True):
    """Messages that the writer of the log could not write."""

    src: LogName
    dst: LogName
    job: LogJob = 0
    way: Int = 0
    request: bool = True


Logged: TypeAlias = LoggedMessage | LoggedFailure | LoggedWorker | LoggedProcess | LoggedEnd | LoggedLoss


class StorageHeader(Struct, kw_only=True):
    """An item of `storages` that is an object, not a plain length."""

    length: int
    missing: tuple[tuple[Int, Int], ...] = ()
    placement: Placement | UnsetType = UNSET
    source: Text = "cpu"
    target: Text | None = None

    def logged(self) -> LoggedStorage:
        """Returns the storage. Raises `DecodeError` where lengths contradict each other."""
        length, missing = self.length, self.missing
        if not 0 <= length < 1 << 64:
            raise _wrong("the length of a storage is not a number of bytes")
        at = 0
        for start, stop in missing:
            if not at <= start < stop <= length:
                raise _wrong("ranges of missing bytes are out of order or outside of their storage")
            at = stop
        gone = bool(length) and missing == ((0, length),)
        if not gone and sum(stop - start for start, stop in missing) > MAX_HOLES:
            raise _wrong("more bytes of a storage are missing than it has")
        placement = self.placement
        if placement is UNSET:
            placement = Placement.MISSING if gone else Placement.CERTAIN
        if placement is not Placement.CERTAIN and not gone and length:
            raise _wrong("placement contradicts the storage's bytes")
        return LoggedStorage(
            length=length,
            missing=missing,
            placement=placement,
            source=_device(self.source),
            target=None if self.target is None else _device(self.target),
        )


class MessageHeader(SaidOfMessage, frozen=True, kw_only=True):
    """A message."""

    type: Type
    bytes: Size = 0
    end_ns: Int | UnsetType = UNSET
    request: bool | UnsetType = UNSET
    storages: tuple[StorageHeader | int, ...] = ()

    def logged(self) -> LoggedMessage:
        """Returns the message. Raises `DecodeError` where its bytes do not add up."""
        kind, time_ns = _type(self.type), self.time_ns
        storages = tuple(
            [
                (StorageHeader(length=item) if isinstance(item, int) else item).logged()
                for item in self.storages
            ]
        )
        if self.payload + self.table + sum([storage.present for storage in storages]) != self.bytes:
            raise _wrong("bytes is not the sum of the announced lengths")
        request = is_request(kind) or not is_response(kind) if self.request is UNSET else self.request
        return LoggedMessage(
            type=kind,
            end_ns=time_ns if self.end_ns is UNSET else max(time_ns, self.end_ns),
            request=request,
            storages=storages,
            **{name: getattr(self, name) for name in SaidOfMessage.__struct_fields__},
        )


def read_header(header: Header) -> Logged | None:
    """Returns the record that a header describes; None for a kind of record that is not known."""
    reader = READERS.get(header["rpc"])
    try:
        return None if reader is None else reader(header)
    except (ValidationError, UnicodeEncodeError) as error:  # the latter: half a character in a key
        raise _wrong(str(error)[:MAX_REASON]) from error


def _failure(header: Header) -> LoggedFailure:
    """A failure, its type as a number and its text cut."""
    kind = header.get("type")
    if isinstance(kind, str):
        header = {**header, "type": _type(kind)}
    said = convert(header, LoggedFailure)
    return said if len(said.text) <= MAX_TEXT else replace(said, text=said.text[:MAX_TEXT])


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
        raise _wrong("type is neither the name nor the number of a message type")
    return int(MessageType[value])


def _wrong(reason: str) -> DecodeError:
    return DecodeError("capture", f"the record is invalid: {reason}")


_DEVICE = re.compile(r"(.{0,4096}?)(?::(-?\d{1,18}))?", re.ASCII | re.DOTALL)
"""`cpu`, `cuda:0`; -1 is an index that is not known."""

READERS: dict[str, Callable[[Header], Logged]] = {
    MESSAGE: lambda header: convert(header, MessageHeader).logged(),
    FAILED: _failure,
    WORKER: lambda header: convert(header, LoggedWorker),
    PROCESS: lambda header: convert(header, LoggedProcess),
    CLOSED: lambda header: convert(header, LoggedEnd),
    LOST: lambda header: convert(header, LoggedLoss),
}
