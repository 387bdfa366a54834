"""What the process of a live worker may not do: leave a core file, gain privileges, take all memory.

In: how many bytes it may take from now on. Out: the bound, if the system keeps it. Nothing of this can be
taken back by what runs in the process afterwards, and processes that it starts inherit it. It is no sandbox:
what the process may do else, it does with the user's rights. Linux keeps all of it, other systems what they
know.

Runs in the processes of live workers, therefore without torch and without anything else of this package.
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
import sys
from pathlib import Path

PR_SET_NO_NEW_PRIVS = 38
LATER_THREADS = 32
"""Threads that torch starts when it needs them, those of backward passes among them."""
USUAL_STACK = 8 << 20


def prctl(option: int, value: int) -> None:
    """Linux's; nothing happens elsewhere."""
    with contextlib.suppress(AttributeError):
        LIBC.prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0)))


LIBC = ctypes.CDLL(None)


def forbid_privileges() -> None:
    """Forbids this process's programs more rights than it has, whatever their files say (setuid)."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def forbid_cores() -> None:
    """Forbids core files, and cores for a program of the system: for these Linux takes a limit of 0 as no
    limit, and 1 as a ban (`do_coredump` in fs/coredump.c); no file is shorter than a page."""
    least = 1 if sys.platform == "linux" else 0
    _lower(resource.RLIMIT_CORE, least)


def bound_memory(allowance: int | None, threads: int) -> int | None:
    """Limits this process to `allowance` bytes beyond what it has, and the stacks of so many threads; None:
    no limit. Returns the limit, None where there is none.

    What counts is what RLIMIT_DATA counts: private memory that may be written, touched or not, that of
    libraries and of threads' stacks too. Address space that is only reserved does not count.
    """
    taken = private_bytes() if allowance is not None else None
    if allowance is None or taken is None:
        return None
    _lower(resource.RLIMIT_DATA, taken + allowance + threads * stack_bytes())
    return allowance


def stack_bytes() -> int:
    """Bytes of a thread's stack: as many as the stack of a process may have, if that is bounded."""
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return USUAL_STACK if soft == resource.RLIM_INFINITY else soft


def private_bytes() -> int | None:
    """Returns the bytes of this process that RLIMIT_DATA counts now; None where there is no count."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = (line.split()[1] for line in status.splitlines() if line.startswith("VmData:"))
    return next((int(kilobytes) << 10 for kilobytes in found), None)


def _lower(limit: int, value: int) -> None:
    """Lowers the limit and its maximum; a lower one stays."""
    given = [one for one in resource.getrlimit(limit) if one != resource.RLIM_INFINITY]
    least = min([value, *given])
    resource.setrlimit(limit, (least, least))
