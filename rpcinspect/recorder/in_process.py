"""Recording from within a program: `with rpcinspect.recording("run.rpclog"):`, `init_rpc` inside.

In: a path; the log is appended to, so that several processes, or several recordings, can share it. Out: the
log, whole when the block ends. `RecordError` says why it can't begin. torch is imported by the process's own
code, or by the modules that run in the processes of a command; none of rpcinspect's others needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from multiprocessing.util import Finalize
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, cast

from rpcinspect.errors import RecordError
from rpcinspect.recorder.library import build_agent
from rpcinspect.recorder.recording_file import begin_recording

QUEUE_BYTES = 64 << 20

Tensors = Literal["none", "small", "all"]
WhenFull = Literal["wait", "drop"]


class Recorders(Protocol):
    """Of startup/rpcinspect_agent.py."""

    refused: str | None

    def remove(self) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> Mapping[str, Any]: ...
    def counters(self) -> Mapping[str, Any]: ...


class Recording:
    """What `recording` gives: counts, of the time being or of the end."""

    def __init__(self, path: Path, tensors: Tensors, when_full: WhenFull, queue_bytes: int) -> None:
        self.path = path
        self._tensors = tensors
        self._when_full = when_full
        self._queue_bytes = queue_bytes
        self._recorders: Recorders | None = None

    def __enter__(self) -> Recording:
        if self._recorders is not None:
            raise RecordError("this recording has begun already")
        library = build_agent(sys.executable)
        os.close(begin_recording(self.path, append=True))
        rpc = _rpc()
        if rpc._is_current_rpc_agent_set():
            raise RecordError("RPC has been started before: recording begins before init_rpc")
        settings = {
            "library": library.path,
            "torch": library.torch,
            "output": str(self.path.resolve()),
            "tensors": self._tensors,
            "when_full": self._when_full,
            "queue_bytes": self._queue_bytes,
            "queues": None,
        }
        from rpcinspect.recorder.startup import rpcinspect_agent

        self._recorders = cast(Recorders, rpcinspect_agent.install(rpc, settings, self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._recorders is not None
        self._recorders.remove()
        self._recorders.close()

    # what startup/rpcinspect_agent.py asks of notes

    def follow(self, rpc: Any, why_not: Callable[[Any], str | None]) -> None:
        """Nobody reads notes here."""

    def at_end(self, close: Callable[[], Mapping[str, Any]]) -> None:
        """The block may not come to its end before the process does."""
        Finalize(None, close, exitpriority=-100)  # not atexit, which children of multiprocessing do not run

    def flush(self) -> None:
        """Everything that was sent until now is in the log."""
        if self._recorders is not None:
            self._recorders.flush()

    @property
    def why(self) -> str | None:
        """Why the last agent that was made is not recorded; None for one that is."""
        return None if self._recorders is None else self._recorders.refused

    @property
    def counters(self) -> Mapping[str, Any]:
        """`messages`, `bytes`, `dropped`, `failed`; `failure`, if recording ended early."""
        return {} if self._recorders is None else self._recorders.counters()


def recording(
    path: str | Path,
    *,
    tensors: Tensors = "all",
    when_full: WhenFull = "wait",
    queue_bytes: int = QUEUE_BYTES,
) -> Recording:
    """Records this process's RPC from the next `init_rpc` on; use it in a `with` statement."""
    if tensors not in ("none", "small", "all"):
        raise RecordError(f"tensors={tensors!r}: none, small or all")
    if when_full not in ("wait", "drop"):
        raise RecordError(f"when_full={when_full!r}: wait or drop")
    return Recording(Path(path), tensors, when_full, queue_bytes)


def _rpc() -> Any:
    """torch.distributed.rpc, from a module that may import torch."""
    from rpcinspect.recorder.startup import rpcinspect_agent

    return rpcinspect_agent.torch_rpc()
