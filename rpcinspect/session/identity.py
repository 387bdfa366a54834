"""What messages and handshakes say of the ends of their pipes, collected as they are read.

In: names and ids, each of one end of one pipe. Out: an `End` for each, for workers.py.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeAlias

from msgspec import Struct, field

from rpcinspect.tensorpipe.records import Pipe

WorkerKey: TypeAlias = tuple[int, str]
"""(job, label) of a worker: labels are unique in a job only."""

EndKey: TypeAlias = tuple[int, bool]
"""(pipe number, whether its client)."""


class End(Struct, eq=False):
    """Names and ids that were seen for one end of a pipe."""

    names: set[str] = field(default_factory=set)
    ids: set[int] = field(default_factory=set)

    def add(self, other: End) -> None:
        """Adds the names and ids of another end of the same worker."""
        self.names |= other.names
        self.ids |= other.ids


class IdentityEvidence:
    """Collects names and ids of the ends of pipes."""

    def __init__(self) -> None:
        self.ends: dict[EndKey, End] = defaultdict(End)
        """(pipe number, whether its client) → what was said."""
        self.receivers: dict[EndKey, set[EndKey]] = defaultdict(set)
        """End without a name or id → the ends that received what it answers for: the forward messages of its
        gradients, the messages that brought its forks. In one job, these are ends of one worker."""
        self.facts = 0
        """Grows with every fact that was not known before."""

    def id(self, pipe: int, client: bool, worker_id: int) -> None:
        """Adds the worker id of an end."""
        ids = self.ends[pipe, client].ids
        if worker_id not in ids:
            ids.add(worker_id)
            self.facts += 1

    def name(self, pipe: int, client: bool, name: str) -> None:
        """Adds the worker name of an end."""
        names = self.ends[pipe, client].names
        if name not in names:
            names.add(name)
            self.facts += 1

    def is_known(self, pipe: Pipe, client: bool) -> bool:
        """Returns whether a name or an id is known of an end."""
        end = self.of(pipe, client)
        return bool(end.names or end.ids)

    def of(self, pipe: Pipe, client: bool) -> End:
        """Returns a copy of what is known of an end. The name in a handshake outweighs the messages' names of
        the client; an empty name means that the writer of the capture did not know it."""
        said = self.ends.get((pipe.number, client))
        if client and pipe.client_name:
            return End({pipe.client_name}, set() if said is None else said.ids)
        return End() if said is None else said
