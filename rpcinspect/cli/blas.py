"""numpy without threads for its linear algebra, of which we do none.

In: a process that has not imported numpy yet. Out: one that has. OpenBLAS starts a thread for each core when
it is loaded, and each of them spins for some 50 ms, waiting for work: that is more time of cores than all of
our start. What we start, such as the user's job, gets the environment as it was.
"""

from __future__ import annotations

import os

THREADS = "OPENBLAS_NUM_THREADS"


def load_numpy() -> None:
    """Imports numpy with one thread, unless the user has said how many."""
    if THREADS in os.environ:
        return
    os.environ[THREADS] = "1"
    try:
        import numpy  # noqa: F401 - it reads the variable when it is loaded, and never again
    finally:
        del os.environ[THREADS]
