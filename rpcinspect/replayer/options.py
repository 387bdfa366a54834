"""How a plan is carried out, as the user has said it: what live workers run with, what is compared how, what
is shown, and where it stops.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, field

from rpcinspect.equality.rules import Rules
from rpcinspect.replayer.planning.devices import Devices
from rpcinspect.replayer.planning.model import Engine
from rpcinspect.replayer.playing.attach import JoinOptions
from rpcinspect.replayer.playing.debug_relay import Terminal
from rpcinspect.replayer.playing.debugging import DebugOptions
from rpcinspect.replayer.playing.inputs import KeptMessages
from rpcinspect.replayer.workers.outputs import Show
from rpcinspect.replayer.workers.parent_process import ParentProcess
from rpcinspect.replayer.workers.seeds import Seeds
from rpcinspect.replayer.workers.workers import WorkerOptions


class ReplayOptions(Struct, frozen=True, kw_only=True):
    """How a plan is carried out."""

    workers: WorkerOptions = field(default_factory=WorkerOptions)
    parent: ParentProcess | None = None
    """One that was begun for these workers, and is theirs now; None: it is started when it is needed."""
    rules: Rules = field(default_factory=lambda: Rules(strict=True))
    """What counts as a difference. Forms should: identical answers have them."""
    timeout_s: float | None = None
    """The longest wait for an answer; None: as the captured times suggest."""
    memory: int | None = None
    """Bytes that each live worker may take beyond those that it has when it has joined; 0: as much as there
    is; None: as the captured sizes suggest."""
    speed: float | None = None
    """1.0: at the captured pace; None: as fast as causality allows."""
    repeat: int = 1
    record: Path | None = None
    """Where the played workers' own connections are written as a capture."""
    gradients: bool = False
    """Whether to show what the leaves of live workers hold in each context."""
    debug: DebugOptions | None = None
    """What to stop at and to look for; None: live workers have no debugger."""
    terminal: Terminal | None = None
    """Of their debuggers."""
    engine: Engine = "wire"
    """That of the plan."""
    devices: Devices = field(default_factory=Devices)
    """Where tensors are; the workers' options must allow CUDA for it."""
    join: JoinOptions | None = None
    """The group that others have started and that is joined; None: live workers are started."""
    seeds: Seeds = field(default_factory=Seeds)
    """Of the live workers."""
    show: Show | None = None
    """Shows lines that live workers write."""
    kept: KeptMessages | None = None
    """Where live messages that differ are kept; None: they are not."""
    search_seeds: range | None = None
    """Seeds to try for live workers whose messages are not as captured, before all else."""
