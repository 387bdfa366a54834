"""How many processes of our control group the kernel has killed for lack of memory.

In: /proc/self/cgroup and the counter of that group, of either version. Out: a number that only grows; None
where the kernel keeps none, as for the root group of version 2. A command begins in our group.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")


def oom_kills() -> int | None:
    """The count by now; of version 2 with the groups below ours."""
    for path in _counters():
        try:
            lines = path.read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdigit():
                return int(count)
    return None


def _counters() -> Iterator[Path]:
    """Where it may be, the likeliest first: a container may see its own group as the root."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        if "memory" in controllers.split(","):
            folder, file = GROUPS / "memory", "memory.oom_control"
        elif not controllers:
            folder, file = GROUPS, "memory.events"
        else:
            continue
        yield folder / group.lstrip("/") / file
        yield folder / file
