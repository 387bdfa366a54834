"""What the header line of a log's record says, read strictly.

In: a header as JSON has it, its lengths known to be lengths. Out: a `LoggedMessage`, `LoggedFailure`,
`LoggedWorker`, `LoggedEnd` or `LoggedLoss`; `DecodeError` where it says something that can't be. Keys that
are not known are left alone, so that writers can add their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from rpcinspect.errors import DecodeError
from rpcinspect.rpc.message import MessageType, is_request, is_response
from rpcinspect.wire.records import Placement
from rpcinspect.wire.tensorpipe import TpDevice

Header: TypeAlias = Mapping[str, Any]
Job: TypeAlias = int | str

MAX_NAME = 4096
MAX_ADDRESSES = 64
MAX_TEXT = 1 << 14
"""Characters of what a failure says that are kept."""
REASONS = ("timeout", "connection", "error")
"""Why a call ended without an answer."""
INT64 = 1 << 63
MAX_HOLES = 1 << 33
"""Bytes missing of a storage that is partly there."""
CPU = TpDevice("cpu", 0)

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
    """One of `REASONS`."""
    text: str = ""
    type: int | None = None
    """Of the request, where it is told."""
    job: Job = 0
    way: int = 0


class LoggedWorker(Struct, frozen=True, kw_only=True):
    """A worker of a job."""

    name: str | None
    id: int | None
    group: int = 0
    job: Job = 0
    addresses: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


class LoggedEnd(Struct, frozen=True, kw_only=True):
    """Nothing more can go from or to `dst` in answer to requests of `src`."""

    src: str
    dst: str
    job: Job
    way: int
    by_src: bool
    how: str
    time_ns: int


class LoggedLoss(Struct, frozen=True, kw_only=True):
    """Messages that the writer of the log could not write."""

    src: str
    dst: str
    job: Job
    way: int
    request: bool


Logged: TypeAlias = LoggedMessage | LoggedFailure | LoggedWorker | LoggedEnd | LoggedLoss


def read_header(header: Header) -> Logged | None:
    """What it says; None where it is of a kind that is not known."""
    reader = READERS.get(header["rpc"])
    return None if reader is None else reader(header)


def _message(header: Header) -> LoggedMessage:
    kind = _type(header)
    time_ns = _int(header, "time_ns")
    payload, table = _size(header, "payload"), _size(header, "table")
    storages = tuple([_storage(item) for item in _list(header, "storages")])
    if payload + table + sum([storage.present for storage in storages]) != _size(header, "bytes"):
        raise _wrong("bytes is not the sum of what is announced")
    side = header.get("side")
    if side not in (None, "src", "dst"):
        raise _wrong("side is neither src nor dst")
    return LoggedMessage(
        time_ns=time_ns,
        end_ns=max(time_ns, _int(header, "end_ns", time_ns)),
        src=_name(header, "src"),
        dst=_name(header, "dst"),
        type=kind,
        id=_int(header, "id"),
        request=_flag(header, "request", is_request(kind) or not is_response(kind)),
        job=_job(header),
        way=_int(header, "way", 0),
        side=side,
        payload=payload,
        table=table,
        payload_missing=_size(header, "payload_missing"),
        table_missing=_size(header, "table_missing"),
        storages=storages,
        after_loss=_flag(header, "after_loss", False),
    )


def _failure(header: Header) -> LoggedFailure:
    reason, text = header.get("reason"), header.get("text", "")
    if reason not in REASONS:
        raise _wrong(f"reason is none of {', '.join(REASONS)}")
    if not isinstance(text, str):
        raise _wrong("text is no text")
    return LoggedFailure(
        time_ns=_int(header, "time_ns"),
        src=_name(header, "src"),
        dst=_name(header, "dst"),
        id=_int(header, "id"),
        reason=reason,
        text=text[:MAX_TEXT],
        type=None if header.get("type") is None else _type(header),
        job=_job(header),
        way=_int(header, "way", 0),
    )


def _worker(header: Header) -> LoggedWorker:
    name = header.get("name")
    return LoggedWorker(
        name=None if name is None else _name(header, "name"),
        id=None if header.get("id") is None else _int(header, "id"),
        group=_size(header, "group"),
        job=_job(header),
        addresses=_addresses(header, "addresses"),
        elsewhere=_addresses(header, "elsewhere"),
    )


def _end(header: Header) -> LoggedEnd:
    how = header.get("how", "closed")
    if how not in ("closed", "reset"):
        raise _wrong("how is neither closed nor reset")
    if header.get("by") not in ("src", "dst"):
        raise _wrong("by is neither src nor dst")
    return LoggedEnd(
        src=_name(header, "src"),
        dst=_name(header, "dst"),
        job=_job(header),
        way=_int(header, "way", 0),
        by_src=header["by"] == "src",
        how=how,
        time_ns=_int(header, "time_ns"),
    )


def _loss(header: Header) -> LoggedLoss:
    return LoggedLoss(
        src=_name(header, "src"),
        dst=_name(header, "dst"),
        job=_job(header),
        way=_int(header, "way", 0),
        request=_flag(header, "request", True),
    )


READERS: dict[str, Callable[[Header], Logged]] = {
    MESSAGE: _message,
    FAILED: _failure,
    WORKER: _worker,
    CLOSED: _end,
    LOST: _loss,
}


def _storage(item: Any) -> LoggedStorage:
    if type(item) is int:
        item = {"length": item}
    if not isinstance(item, dict):
        raise _wrong("a storage is neither a length nor an object")
    length = item.get("length")
    if type(length) is not int or not 0 <= length < 1 << 64:
        raise _wrong("length is no length")
    missing = tuple([_range(pair) for pair in _list(item, "missing")])
    at = 0
    for start, stop in missing:
        if not at <= start < stop <= length:
            raise _wrong("ranges of missing bytes are out of order or outside of their storage")
        at = stop
    gone = bool(length) and missing == ((0, length),)
    if not gone and sum(stop - start for start, stop in missing) > MAX_HOLES:
        raise _wrong("more bytes of a storage are missing than can be lost")
    placement = item.get("placement", "missing" if gone else "certain")
    if placement not in PLACEMENTS or (placement != "certain" and not gone and length):
        raise _wrong("placement is not one of those that its bytes allow")
    target = item.get("target")
    return LoggedStorage(
        length=length,
        missing=missing,
        placement=PLACEMENTS[placement],
        source=_device(item.get("source", "cpu")),
        target=None if target is None else _device(target),
    )


def _device(value: Any) -> TpDevice:
    match = _DEVICE.fullmatch(value) if isinstance(value, str) else None
    if match is None or not _is_text(value):
        raise _wrong("a device is not named as torch names devices")
    return TpDevice(match[1], int(match[2] or 0))


def _type(header: Header) -> int:
    """Message types by name, or by number where they have none here."""
    value = header.get("type")
    if isinstance(value, str) and value in MessageType.__members__:
        return int(MessageType[value])
    if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
        raise _wrong("type is neither a name nor the number of a message type")
    return value


def _int(header: Header, key: str, default: int | None = None) -> int:
    value = header.get(key, default)
    if type(value) is not int or not -INT64 <= value < INT64:
        raise _wrong(f"{key} is no integer of 64 bits")
    return value


def _size(header: Header, key: str) -> int:
    value = _int(header, key, 0)
    if value < 0:
        raise _wrong(f"{key} is negative")
    return value


def _name(header: Header, key: str) -> str:
    value = header.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or not _is_text(value):
        raise _wrong(f"{key} is no name")
    return value


def _flag(header: Header, key: str, default: bool) -> bool:
    value = header.get(key, default)
    if not isinstance(value, bool):
        raise _wrong(f"{key} is neither true nor false")
    return value


def _job(header: Header) -> Job:
    value = header.get("job", 0)
    if isinstance(value, str) and len(value) <= MAX_NAME and _is_text(value):
        return value
    return _int(header, "job", 0)


def _list(header: Header, key: str) -> list[Any]:
    value = header.get(key, [])
    if not isinstance(value, list):
        raise _wrong(f"{key} is no list")
    return value


def _range(pair: Any) -> tuple[int, int]:
    if not isinstance(pair, list) or len(pair) != 2 or any(type(end) is not int for end in pair):
        raise _wrong("a range of missing bytes is no pair of numbers")
    return pair[0], pair[1]


def _addresses(header: Header, key: str) -> tuple[str, ...]:
    value = _list(header, key)[:MAX_ADDRESSES]
    if not all(isinstance(item, str) and len(item) <= MAX_NAME and _is_text(item) for item in value):
        raise _wrong(f"{key} are no addresses")
    return tuple(value)


def _is_text(value: str) -> bool:
    """Whether it is Unicode, other bytes as `surrogateescape`: JSON can say halves of characters, too."""
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _wrong(reason: str) -> DecodeError:
    return DecodeError("capture", f"the record can't be: {reason}")


PLACEMENTS = {placement.value: placement for placement in Placement}
_DEVICE = re.compile(r"(.{0,4096}?)(?::(-?\d{1,18}))?", re.ASCII | re.DOTALL)
"""`cpu`, `cuda:0`; -1 is an index that is not known."""
