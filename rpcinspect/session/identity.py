"""What messages and handshakes say of the ends of their pipes, collected as they are read.

In: names and ids, each of one end of one pipe. Out: an `End` for each, in `names.py`'s hands.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeAlias

from msgspec import Struct, field

from rpcinspect.tensorpipe.records import Pipe

WorkerKey: TypeAlias = tuple[int, str]
"""(job, label) of a worker: labels are unique in a job only."""


class End(Struct, eq=False):
    """What was said about one end of a pipe."""

    names: set[str] = field(default_factory=set)
    ids: set[int] = field(default_factory=set)

    def add(self, other: End) -> None:
        """What was said of another end that is the same worker's."""
        self.names |= other.names
        self.ids |= other.ids


class IdentityEvidence:
    """Collects what messages say of the ends of their pipes."""

    def __init__(self) -> None:
        self.ends: dict[tuple[int, bool], End] = defaultdict(End)
        """(pipe number, whether its client) → what was said."""
        self.facts = 0
        """Grows with every fact that was not known before."""

    def id(self, pipe: int, client: bool, worker_id: int) -> None:
        """An end's worker id."""
        ids = self.ends[pipe, client].ids
        if worker_id not in ids:
            ids.add(worker_id)
            self.facts += 1

    def name(self, pipe: int, client: bool, name: str) -> None:
        """An end's worker name."""
        names = self.ends[pipe, client].names
        if name not in names:
            names.add(name)
            self.facts += 1

    def of(self, pipe: Pipe, client: bool) -> End:
        """All that was said of an end, to read. The name in a handshake outweighs what messages say of the
        client; an empty one is no worker's: what wrote the capture did not know it.
        """
        said = self.ends.get((pipe.number, client))
        if client and pipe.client_name:
            return End({pipe.client_name}, set() if said is None else said.ids)
        return End() if said is None else said
