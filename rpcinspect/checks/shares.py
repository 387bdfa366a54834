"""How much of a run a time is, and whether that is worth telling.

In: a session and times. Out: yes or no, and words. A job's run is from the first byte of its first message to
the last of its last one, as far as they were captured: not how long the capture goes on.
"""

from __future__ import annotations

import numpy as np

from rpcinspect.session.model import Session

LEAST_NS = 10_000_000
"""Less is within what one start of a job differs from the next one."""
LEAST_SHARE = 0.05
"""Of the run: less is hard to feel, and to measure."""


class Shares:
    """See the module's text."""

    def __init__(self, session: Session) -> None:
        columns = session.messages
        jobs = np.asarray(session.jobs, dtype=np.int64)[np.asarray(columns.pipe)]
        begin, end = np.asarray(columns.time_ns), np.asarray(columns.end_time_ns)
        self._runs: dict[int, int] = {}
        for job in np.unique(jobs).tolist():
            its = np.flatnonzero(jobs == job)
            self._runs[job] = int(end[its].max() - begin[its].min())

    def worth_telling(self, job: int, time_ns: int) -> bool:
        """Whether that is much."""
        return time_ns >= LEAST_NS and time_ns >= LEAST_SHARE * self._runs.get(job, 0)

    def of(self, job: int, time_ns: int) -> str:
        """`12 % of the run`."""
        return f"{time_ns / max(1, self._runs.get(job, 0)):.0%} of the run".replace("%", " %")
