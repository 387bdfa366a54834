"""The one error tree. Also used in processes of live workers, therefore with Python's own library alone.

Five situations have five different answers in this package:

* *not yet*: more bytes are needed; a stage yields nothing, no exception is involved.
* *not ours*: another protocol; a stream is skipped with a reason.
* *unknown*: understood framing, unknown content; kept whole (`UnknownCommand`).
* *damaged*: the bytes contradict the format: `DecodeError`, turned into a `Problem` by the pipeline.
* *missing*: bytes that were not captured: a `Problem` or a `placement`, never an exception.
"""

from __future__ import annotations

DOCTOR = "rpcinspect doctor shows what works here"
"""The end of a line that tells of something missing on this machine."""


class RpcInspectError(Exception):
    """Base of everything that this package raises on purpose."""


class CaptureError(RpcInspectError):
    """The input can't be read as a capture at all."""


class UnknownFormatError(CaptureError):
    """The input is readable but is in no capture format that we know."""


class OutputError(RpcInspectError):
    """What was asked for can't be written."""


class NoRoomError(OutputError):
    """There is no room for temporary files."""


class FilterError(RpcInspectError):
    """A filter that can't be read; `start` and `end` are the place in its text."""

    def __init__(self, reason: str, text: str, start: int, end: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.text = text
        self.start = start
        self.end = end


class ReplayError(RpcInspectError):
    """A replay can't start or go on: a worker, a connection or the store does not do what it must."""


class DeviceError(ReplayError):
    """A replay was to use a device that PyTorch does not have here."""


class RecordError(RpcInspectError):
    """A recording can't begin; nothing was started."""


class CommandError(RpcInspectError):
    """A command to be recorded can't be run; `code` is what a shell would exit with."""

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.code = code


class DecodeError(RpcInspectError):
    """The bytes contradict the format.

    `layer` names the decoder, `offset` counts from the start of the bytes that the decoder was given.
    """

    def __init__(self, layer: str, reason: str, offset: int | None = None) -> None:
        super().__init__(reason if offset is None else f"{reason} (at byte {offset})")
        self.layer = layer
        self.reason = reason
        self.offset = offset


class LimitExceeded(DecodeError):
    """A bound of `Limits` was reached; carries its name, the bound and the value that went over it."""

    def __init__(self, layer: str, limit: str, bound: int, value: int, offset: int | None = None) -> None:
        super().__init__(layer, f"{value:,} is over the limit {limit} = {bound:,}", offset)
        self.limit = limit
        self.bound = bound
        self.value = value
