"""What fields have as values in a capture that is being read, to complete a filter.

In: the reading. Out: of some fields, what gives their values as known by now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.rpc.message import MessageType

if TYPE_CHECKING:
    from rpcinspect.browse.completion import FieldValues

MAX_NAMES = 5000


def values_of(reading: GrowingRun) -> FieldValues:
    """Returns field → what gives its values."""

    def workers() -> Sequence[str]:
        return sorted({end for pipe in reading.known_labels for end in pipe})

    def types() -> Sequence[str]:
        return [kind.name for kind in MessageType]

    def calls() -> Sequence[str]:
        if reading.run is None:
            return ()
        return sorted({name.short for name in reading.names.values()})[:MAX_NAMES]

    def findings() -> Sequence[str]:
        return () if reading.run is None else sorted({one.code for one in reading.run.findings})

    return {
        **dict.fromkeys(("src", "dst", "worker", "from", "to"), workers),
        "type": types,
        "call": calls,
        "finding": findings,
    }
