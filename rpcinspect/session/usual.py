"""Whether the end of a capture says anything of an answer that is missing in it.

In: how long the exchanges of the run took. Out: a span of time; if a capture ends sooner after a request, the
answer may just not have been due.
"""

from __future__ import annotations

from collections.abc import Sequence

TIMES = 10.0
"""An answer may take so many times as long as most others did, or a replay as its run did."""
END_S = 0.05
"""A capture that ends so soon after a request says nothing about its answer."""


def usual_s(took_ns: Sequence[int]) -> float:
    """Nine of ten answers came within so many seconds; `took_ns` ascends."""
    return took_ns[len(took_ns) * 9 // 10] / 1e9 if took_ns else 0.0


def due_s(usual_s: float) -> float:
    """Seconds after a request before which nothing follows from the lack of an answer."""
    return max(END_S, TIMES * usual_s)
