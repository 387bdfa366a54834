"""Recording from within a program: `with rpcinspect.recording("run.rpclog"):`, `init_rpc` inside.

In: a path; the log is appended to, so that several processes, or several recordings, can share it. Out: the
log, whole when the block ends. `RecordError` says why it can't begin. torch is imported by the process's own
code, or by the module that records in the processes of a command, which does here what it does there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from multiprocessing.util import Finalize
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from rpcinspect.errors import OutputError, RecordError
from rpcinspect.files.output import open_growing
from rpcinspect.recorder.library import QUEUE_BYTES, build_agent
from rpcinspect.recorder.startup import rpcinspect_agent, rpcinspect_notes

TensorPolicy = Literal["none", "small", "all"]
WhenFull = Literal["wait", "drop"]


class Recording:
    """What `recording` gives: counts, of the time being or of the end."""

    def __init__(self, path: Path, tensors: TensorPolicy, when_full: WhenFull, queue_bytes: int) -> None:
        self.path = path
        self._options = (tensors, when_full, queue_bytes)
        self._recorders: rpcinspect_agent.Recorders | None = None

    def __enter__(self) -> Recording:
        if self._recorders is not None:
            raise RecordError("this recording has already begun")
        library = build_agent(sys.executable)
        try:
            os.close(open_growing(self.path, append=True))
        except OutputError as error:
            raise RecordError(str(error)) from error
        self._recorders = record_here(library.settings(self.path, *self._options))
        # the process may end before the block does; not atexit, which children of multiprocessing do not run
        Finalize(None, self._recorders.close, exitpriority=-100)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._recorders is not None
        self._recorders.remove()
        self._recorders.close()

    def flush(self) -> None:
        """Writes everything that was sent until now into the log."""
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


def record_here(settings: Mapping[str, Any]) -> rpcinspect_agent.Recorders:
    """Has this process's next agents recorded, with the settings that startup/rpcinspect_agent.py reads.
    Raises `RecordError` where RPC has been started."""
    if has_started_rpc():
        raise RecordError("RPC has been started before: recording begins before init_rpc")
    return rpcinspect_agent.stand_in_for(rpcinspect_agent.torch_rpc(), dict(settings))


def note_here(folder: str, recorders: rpcinspect_agent.Recorders) -> Callable[[], None]:
    """Has this process, and those that it forks, leave notes in a folder, as processes of a command do;
    returns what ends that."""
    rpc = rpcinspect_agent.torch_rpc()
    before = rpc.api._init_rpc_states
    notes = rpcinspect_notes.Notes(folder)
    notes.follow(rpc, recorders.why_not, recorders.job)
    notes.at_end(recorders.close)

    def end() -> None:
        rpc.api._init_rpc_states = before
        notes.at_end(dict)  # a note is kept until this process ends: not its recorder

    return end


def has_started_rpc() -> bool:
    """Returns whether this process is a worker of RPC now."""
    return bool(rpcinspect_agent.torch_rpc()._is_current_rpc_agent_set())


def recording(
    path: str | Path,
    *,
    tensors: TensorPolicy = "all",
    when_full: WhenFull = "wait",
    queue_bytes: int = QUEUE_BYTES,
) -> Recording:
    """Records this process's RPC from the next `init_rpc` on; use it in a `with` statement."""
    if tensors not in ("none", "small", "all"):
        raise RecordError(f"tensors={tensors!r}: none, small or all")
    if when_full not in ("wait", "drop"):
        raise RecordError(f"when_full={when_full!r}: wait or drop")
    return Recording(Path(path), tensors, when_full, queue_bytes)
