"""rpcinspect: decode, replay and diff captured `torch.distributed.rpc` traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rpcinspect.errors import (
        CaptureError,
        CommandError,
        DecodeError,
        DeviceError,
        FilterError,
        LimitExceeded,
        NoRoomError,
        OutputError,
        RecordError,
        ReplayError,
        RpcInspectError,
        UnknownFormatError,
    )
    from rpcinspect.library import (
        Call,
        Comparison,
        Context,
        Finding,
        Message,
        PlanOptions,
        ReplayOptions,
        Report,
        RRef,
        Rules,
        Run,
        Tensor,
        Worker,
        compare,
        open,
        record_batches,
        replay,
        table_schema,
        to_pyshark,
    )
    from rpcinspect.recorder.in_process import recording

__all__ = [
    "Call",
    "CaptureError",
    "CommandError",
    "Comparison",
    "Context",
    "DecodeError",
    "DeviceError",
    "FilterError",
    "Finding",
    "LimitExceeded",
    "Message",
    "NoRoomError",
    "OutputError",
    "PlanOptions",
    "RRef",
    "RecordError",
    "ReplayError",
    "ReplayOptions",
    "Report",
    "RpcInspectError",
    "Rules",
    "Run",
    "Tensor",
    "UnknownFormatError",
    "Worker",
    "__version__",
    "compare",
    "open",
    "record_batches",
    "recording",
    "replay",
    "table_schema",
    "to_pyshark",
]


def __getattr__(name: str) -> object:
    """Loads what is asked for: a start of the command line must not pay for the library."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "recording":
        from rpcinspect.recorder.in_process import recording

        return recording
    from rpcinspect import errors

    if hasattr(errors, name):
        return getattr(errors, name)
    from rpcinspect import library

    return getattr(library, name)


def __dir__() -> list[str]:
    return sorted(__all__)
