"""What `header.py` reads, written: the first line of a log and the header lines of its records.

In: the same records. Out: lines; what a header announces is to follow it, and a newline after that.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import asdict

from rpcinspect.capture.log import VERSION
from rpcinspect.rpc.message import TYPE_NAMES
from rpcinspect.rpclog.header import (
    CLOSED,
    FAILED,
    LOST,
    MESSAGE,
    PROCESS,
    SPAN,
    WORKER,
    LoggedEnd,
    LoggedFailure,
    LoggedLoss,
    LoggedMessage,
    LoggedProcess,
    LoggedStorage,
    LoggedWorker,
)
from rpcinspect.tensorpipe.control_types import TpDevice
from rpcinspect.tensorpipe.records import Placement

FIRST_LINE = b'{"rpclog":%d}\n' % VERSION


def message_line(said: LoggedMessage) -> bytes:
    """Payload, table and what is there of each storage are to follow."""
    present = sum([storage.present for storage in said.storages])
    header: dict[str, Any] = {
        "rpc": MESSAGE,
        "time_ns": said.time_ns,
        "end_ns": said.end_ns,
        "src": said.src,
        "dst": said.dst,
        "type": TYPE_NAMES.get(said.type, said.type),
        "id": said.id,
        "request": said.request,
        "job": said.job,
        "bytes": said.payload + said.table + present,
        "payload": said.payload,
        "table": said.table,
        "storages": [_storage(storage) for storage in said.storages],
    }
    others = {
        "way": said.way,
        "side": said.side,
        "payload_missing": said.payload_missing,
        "table_missing": said.table_missing,
        "after_loss": said.after_loss,
        "sha256": said.sha256,
    }
    return _line(header | {key: value for key, value in others.items() if value})


def failure_line(said: LoggedFailure) -> bytes:
    """A call that ended without an answer."""
    header = asdict(said)
    if said.type is None:
        del header["type"]
    else:
        header["type"] = TYPE_NAMES.get(said.type, said.type)
    return _line({"rpc": FAILED, **header})


def worker_line(said: LoggedWorker) -> bytes:
    """A worker."""
    told = {key: value for key, value in asdict(said).items() if value not in ((), None)}
    return _line({"rpc": WORKER, **told})


def process_line(said: LoggedProcess) -> bytes:
    """How the process of a worker ended."""
    told = {key: value for key, value in asdict(said).items() if value is not None}
    if not said.oom_kills:
        del told["oom_kills"]
    return _line({"rpc": PROCESS, **told})


def end_line(said: LoggedEnd) -> bytes:
    """The end of a way."""
    return _line({"rpc": CLOSED, **asdict(said)})


def loss_line(said: LoggedLoss) -> bytes:
    """Messages that are not in the log."""
    return _line({"rpc": LOST, **asdict(said)})


def span_line(time_ns: int, end_ns: int) -> bytes:
    """Returns the line that says which time a log covers."""
    return _line({"rpc": SPAN, "time_ns": time_ns, "end_ns": end_ns})


def _line(header: dict[str, Any]) -> bytes:
    return json.dumps(header, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def _storage(storage: LoggedStorage) -> dict[str, Any]:
    item: dict[str, Any] = {"length": storage.length, "source": _device(storage.source)}
    if storage.target is not None:
        item["target"] = _device(storage.target)
    if storage.missing:
        item["missing"] = storage.missing
        item["placement"] = storage.placement.value
    elif storage.placement is not Placement.CERTAIN:
        item["placement"] = storage.placement.value
    return item


def _device(device: TpDevice) -> str:
    return f"{device.type}:{device.index}"
