"""How the process of a worker ended, and the words for it that findings, views and recorders share.

In: what a log tells of a process, or what the recorder of a command found out. Out: an `ProcessEnd`; short
English.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import asdict

if TYPE_CHECKING:
    from rpcinspect.rpclog.header import LoggedProcess, LogJob

EndKind = Literal["exit", "signal", "running", "unknown"]


class ProcessEnd(Struct, frozen=True, kw_only=True):
    """The end of a process, as far as its recorder could know."""

    how: EndKind
    """`exit`: by itself; `signal`: by that; `running`: not when the recording ended; `unknown`: nobody tells.
    """
    status: int | None = None
    """Its exit status; None of one that ended by itself where nobody told more."""
    signal: str | None = None
    """`SIGKILL`."""
    error: str | None = None
    """The class of the exception with which it ended, such as `ValueError`."""
    time_ns: int | None = None
    """When its recorder heard of it."""
    pid: int | None = None
    oom_kills: int = 0
    """Processes of the job's memory group that the kernel killed for lack of memory while it was recorded.
    Whether this is one of them the kernel does not say."""

    @classmethod
    def of(cls, said: LoggedProcess) -> ProcessEnd:
        """Returns the end of a process as a log has it."""
        return cls(**{name: getattr(said, name) for name in cls.__struct_fields__})

    def logged(self, name: str, worker_id: int | None, job: LogJob) -> LoggedProcess:
        """Returns the end as a record of a log, for a worker."""
        from rpcinspect.rpclog.header import LoggedProcess  # only where there is a log

        return LoggedProcess(name=name, id=worker_id, job=job, **asdict(self))

    @property
    def over(self) -> bool:
        """Returns whether the process certainly ended."""
        return self.how in ("exit", "signal")

    @property
    def well(self) -> bool:
        """Returns whether the process ended by itself, without a sign of a fault."""
        return self.how == "exit" and not self.status and self.error is None

    def __str__(self) -> str:
        """`killed by SIGKILL`, `exit status 1 (ValueError)`."""
        if self.how == "signal":
            what = f"killed by {self.signal or 'a signal'}"
        elif self.how == "exit":
            what = "ended by itself" if self.status is None else f"exit status {self.status}"
        else:
            what = "still running" if self.how == "running" else "unknown"
        return f"{what} ({self.error})" if self.error else what

    @property
    def sentence(self) -> str:
        """Returns a predicate for a worker's name: `was killed by SIGKILL`, `ended by itself with exit status
        1`."""
        if self.how == "signal":
            return f"was {self}"
        if self.how == "exit":
            return str(self) if self.status is None else f"ended by itself with {self}"
        return "still ran when the recording ended" if self.how == "running" else "ended, it is not known how"


def agreed(told: list[ProcessEnd]) -> ProcessEnd | None:
    """Returns the end that all records of one worker's processes agree on; `unknown` where they differ."""
    if not told:
        return None
    return told[0] if all(one == told[0] for one in told) else ProcessEnd(how="unknown")
