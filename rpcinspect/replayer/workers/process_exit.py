"""How a process of a live group came to its end before it was to: by which signal, with how much memory, and
what it got last; that in words, too.

In: what the parent of all workers tells of a child, and the last that it wrote. Out: an `EarlyExit`. The
system tells nobody why a process was killed: what is said of that is what is known beside it.
"""

from __future__ import annotations

import signal
from pathlib import Path

from msgspec import Struct

from rpcinspect.session.words import amount

NO_MEMORY = (
    *("std::bad_alloc", "MemoryError", "Cannot allocate memory", "can't allocate memory"),
    *("can't start new thread", "Resource temporarily unavailable"),
)
"""What Python, C++ and torch write where they get no memory, or no thread for lack of it."""
QUOTED_LINES = 10
CRASH = "Fatal Python error"
"""How Python begins what it says of one."""


class Exit(Struct, frozen=True):
    """The end of a process, as far as the system shows it."""

    code: int | None
    """Negative: the number of the signal that ended it; None: its parent has ended, too, and nobody can
    tell."""
    peak_bytes: int | None = None
    """The most that it had in memory at once."""
    parent_code: int | None = None
    """The parent's, where that has ended."""

    @property
    def signal(self) -> str | None:
        """Name of the signal that ended it."""
        return signal_name(-self.code) if self.code is not None and self.code < 0 else None

    @property
    def text(self) -> str:
        """What became of the process, as the rest of a sentence."""
        if self.code is not None:
            return _how(self.code)
        return "is gone" if self.parent_code is None else f"is gone: its parent process {self.parent_text}"

    @property
    def parent_text(self) -> str:
        """Returns what became of the parent, as the rest of a sentence."""
        return "ended" if self.parent_code is None else _how(self.parent_code)


class EarlyExit(Struct, frozen=True, kw_only=True):
    """A process of a live group that has ended early."""

    who: str
    """In words, such as `the live worker w1`."""
    worker: str | None
    """The captured worker that it stands for; None: the group's store."""
    exit: Exit
    memory_bytes: int | None = None
    """How much it was allowed to take after it had joined; None: as much as there was."""
    oom_kills: int = 0
    """Processes that the kernel has ended meanwhile, on the whole machine, for lack of memory."""
    output: str = ""
    """The last that it wrote."""
    last_message: int | None = None
    """Index of the request, or of the answer to one of its own, that it was sent last."""

    @property
    def no_memory(self) -> bool:
        """Returns whether the process had a memory limit, and its last output reports a failed allocation."""
        return self.memory_bytes is not None and any(words in self.output for words in NO_MEMORY)

    @property
    def text(self) -> str:
        """Returns how the process ended and the known reason, in one line."""
        parts = [f"{self.who} {self.exit.text}"]
        if self.no_memory and self.memory_bytes is not None:
            parts.append(f"it ran out of memory; its limit is {amount(self.memory_bytes)} (--memory)")
        if self.exit.signal == "SIGKILL":
            parts.append(f"this replay did not cause that{self._oom()}")
            if self.exit.peak_bytes is not None:
                parts.append(f"it had at most {amount(self.exit.peak_bytes)} in memory")
        if self.last_message is not None:
            parts.append(f"the last message sent to it is #{self.last_message}")
        return "; ".join(parts)

    def _oom(self) -> str:
        if not self.oom_kills:
            return ""
        times = "once" if self.oom_kills == 1 else f"{self.oom_kills} times"
        return f", and the kernel has ended a process for lack of memory {times} meanwhile"


def _how(code: int) -> str:
    return f"was ended by {signal_name(-code)}" if code < 0 else f"ended with code {code}"


def quoted(text: str) -> str:
    """Returns the last lines of an output, for the end of a sentence; of a crash its first, where it
    happened."""
    lines = [line for line in text.splitlines() if line.strip()]
    crash = next((place for place, line in enumerate(lines) if line.startswith(CRASH)), None)
    lines = lines[-QUOTED_LINES:] if crash is None else lines[crash : crash + QUOTED_LINES]
    return ":\n" + "\n".join(lines) if lines else ""


def signal_name(number: int) -> str:
    """`SIGSEGV`; those of no name by their number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def count_oom_kills() -> int:
    """Returns how many processes the kernel has killed for lack of memory since the machine started; 0 where
    it has no count."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
