"""Options of `replay` with which one looks into live workers, or holds them.

In: values from the command line. Out: a class of options, and what a replay takes of them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec.structs import replace

from rpcinspect.cli.guard import UsageMistake
from rpcinspect.cli.options import option
from rpcinspect.cli.replay_options import LOOKING, PlayOptions
from rpcinspect.cli.requirements import missing_extra

if TYPE_CHECKING:
    from rpcinspect.replayer.options import ReplayOptions
    from rpcinspect.replayer.planning.sources import Sources
    from rpcinspect.replayer.playing.debugging import DebugOptions
    from rpcinspect.replayer.workers.workers import WorkerOptions

PORTS = 1 << 16
HELD_S = 1e6
"""How long somebody may look at a worker that holds."""


class DebuggingOptions(PlayOptions, frozen=True, kw_only=True):
    """Options for looking into live workers."""

    stop_at: Annotated[
        list[str],
        option(
            "--stop-at N|error|nonfinite|FUNCTION",
            "Hold a live worker there, with pdb on this terminal; repeatable.",
            **LOOKING,
        ),
    ] = []
    debug_port: Annotated[
        int | None,
        option(
            "--debug-port PORT", "At stops, wait for an editor's debugger (debugpy) at this port.", **LOOKING
        ),
    ] = None
    watch: Annotated[
        Literal["nonfinite"] | None,
        option(
            "--watch nonfinite", "Say which message first carries NaN or Inf, and who made it.", **LOOKING
        ),
    ] = None
    anomaly: Annotated[
        bool,
        option(
            "--anomaly", "Use torch's anomaly mode: a NaN gradient fails, its forward is shown.", **LOOKING
        ),
    ] = False
    gradients: Annotated[
        bool,
        option("--gradients", "Show gradients by parameter, before each context is cleaned up.", **LOOKING),
    ] = False
    hooks: Annotated[
        list[str],
        option(
            "--hook MODULE:FUNCTION", "Call this in live workers with each message; repeatable.", **LOOKING
        ),
    ] = []

    def debug_options(self) -> "DebugOptions":
        """Returns what live workers are to look for and where they hold."""
        from rpcinspect.replayer.playing.debugging import DebugOptions

        for hook in self.hooks:
            module, colon, function = hook.partition(":")
            if not colon or not all(part.isidentifier() for part in f"{module}.{function}".split(".")):
                raise UsageMistake(f"--hook {hook}: not MODULE:FUNCTION")
        return DebugOptions(
            stop_at=tuple(self.stop_at),
            watch=self.watch is not None,
            anomaly=self.anomaly,
            hooks=tuple(self.hooks),
            port=self.debug_port,
        )

    def replay_options(self, files: "Sources") -> "ReplayOptions":
        from rpcinspect.cli.terminal import WorkerTerminal

        return replace(
            super().replay_options(files),
            gradients=self.gradients,
            debug=self.debug_options(),
            terminal=WorkerTerminal(),
        )

    def worker_options(self, files: "Sources") -> "WorkerOptions":
        made = replace(super().worker_options(files), debug=True)
        # While one holds, no call of another may time out.
        return replace(made, rpc_timeout_s=HELD_S) if self.stop_at else made

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        if self.stop_at and self.player == "agent":
            yield "--stop-at needs the wire engine: torch's agent can't be held before a message"
        if (self.watch or self.hooks) and self.player == "agent":
            yield f"{'--watch' if self.watch else '--hook'} needs the wire engine"
        if self.stop_at and "-" in self.files:
            yield "--stop-at reads from standard input what you type; give the capture as a file"
        if self.stop_at and self.repeat > 1:
            yield "--stop-at and --repeat can't be used together"
        if self.debug_port is not None:
            if not self.stop_at:
                yield "--debug-port needs --stop-at, which says where live workers wait for the editor"
            if not 0 < self.debug_port < PORTS:
                yield f"--debug-port {self.debug_port}: not a port"
            missing = missing_extra("debug", "--debug-port needs debugpy")
            if missing is not None:
                yield missing
