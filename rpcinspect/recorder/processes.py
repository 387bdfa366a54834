"""Whether a process that was heard of still runs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def is_running(pid: int) -> bool:
    """One that has ended and was not waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    with contextlib.suppress(OSError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[0] != "Z"
    return True
