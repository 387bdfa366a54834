"""The table of targets: what reads, what it begins with, how it is changed, and what it may cost.

To add one: a function that takes bytes, its seeds, and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.fuzz import corpus, readers, redactions, runs, wires
from tests.fuzz.mutation import Mutate, change_bytes, change_opcodes


@dataclass(frozen=True)
class Target:
    """One thing to fuzz."""

    run: Callable[[bytes], None]
    """Raises for a fault of ours."""
    seeds: Callable[[], Iterator[bytes]]
    change: Mutate
    weight: int
    """Its part of the time of a long run."""
    inputs: int
    """Of a short run."""
    seconds: float = 2.0
    """Of the processor, for an input."""
    mib: int = 200
    """Of memory, for an input."""


TARGETS = {
    "nop": Target(readers.nop, readers.nop_seeds, change_bytes, 1, 500),
    "jit": Target(readers.jit, corpus.jit_pickles, change_opcodes, 2, 500),
    "python": Target(readers.python, corpus.python_pickles, change_opcodes, 3, 450),
    "store": Target(readers.store, readers.store_seeds, readers.store_change, 1, 400),
    "filter": Target(readers.filters, readers.filter_seeds, readers.text_change, 2, 300),
    "capture": Target(wires.capture, wires.capture_seeds, wires.capture_change, 3, 60),
    "packets": Target(wires.packets, wires.packet_seeds, wires.packet_change, 2, 150),
    "pipes": Target(wires.pipes, wires.pipe_seeds, wires.pipe_change, 3, 24),
    "damage": Target(wires.damage, wires.damage_seeds, change_bytes, 1, 180),
    "message": Target(runs.message, runs.message_seeds, runs.session_change, 4, 150),
    "redaction": Target(redactions.redaction, redactions.redaction_seeds, change_opcodes, 3, 500),
    "log": Target(runs.log, runs.log_seeds, runs.log_change, 2, 60),
    "session": Target(runs.session, runs.session_seeds, runs.session_change, 8, 50),
}
