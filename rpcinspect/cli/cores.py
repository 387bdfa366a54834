"""How many processors this process may use, which is not how many the machine has.

In: what the kernel says of us: the processors that we may run on, and in a container the share of them that
is ours (cgroup v2, `docker run --cpus 2`). Out: a number, 1 where nothing is said.
"""

from __future__ import annotations

import os
from pathlib import Path

OWN_GROUP = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Returns how many threads can run at the same time."""
    if hasattr(os, "sched_getaffinity"):
        there = len(os.sched_getaffinity(0))
    else:
        there = os.cpu_count() or 1
    return max(1, min(there, int(_share(there))))


def _share(there: int) -> float:
    """Returns the least share that our group, or one around it, may have; of no group: what is there."""
    least = float(there)
    try:
        said = OWN_GROUP.read_text()
        own = next(line for line in said.splitlines() if line.startswith("0::"))[3:].strip("/")
    except (OSError, StopIteration, UnicodeDecodeError):
        return least
    group = GROUPS / own
    for one in (group, *group.parents):
        try:
            quota, period = (one / "cpu.max").read_text().split()
            least = min(least, int(quota) / int(period))
        except (OSError, ValueError, ZeroDivisionError):
            continue  # no limit ("max"), or none to be seen from inside of a container
    return least
