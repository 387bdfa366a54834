"""The library: what the command line shows, a program can ask.

The package offers these names as its own, `rpcinspect.open`, `rpcinspect.Run`, …; docs/library.md shows them.
"""

from __future__ import annotations

from rpcinspect.diff.model import Comparison
from rpcinspect.equality.rules import Rules
from rpcinspect.library.actions import compare, replay
from rpcinspect.library.packets import to_pyshark
from rpcinspect.library.run import Call, Context, Run, open
from rpcinspect.library.tables import record_batches, table_schema
from rpcinspect.replayer.options import ReplayOptions
from rpcinspect.replayer.planning.plan import PlanOptions
from rpcinspect.replayer.playing.report import Report
from rpcinspect.run.message import Message, Tensor
from rpcinspect.session.model import Finding, RRef, Worker

__all__ = [
    "Call",
    "Comparison",
    "Context",
    "Finding",
    "Message",
    "PlanOptions",
    "RRef",
    "ReplayOptions",
    "Report",
    "Rules",
    "Run",
    "Tensor",
    "Worker",
    "compare",
    "open",
    "record_batches",
    "replay",
    "table_schema",
    "to_pyshark",
]
