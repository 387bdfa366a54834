"""Python's garbage collector, which looks for cycles: what modules made need not be looked through for ever.

In: a process whose start turned it off. Out: it is on, and leaves out all that there is by now. That is a
tenth of the time of small captures, and a fifth of the start: what modules make is 32,000 objects that live
as long as the process. Where nobody turned it off, as in a program that uses us, it is left alone.
"""

from __future__ import annotations

import gc

EVERY = 100_000
"""Objects more, and the collector looks again: what messages leave behind is in no cycle."""


def imports_are_over() -> None:
    """Turns garbage collection on, after the imports."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(EVERY)
        gc.enable()
