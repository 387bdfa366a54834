"""The answers of a whole run, narrowed to what some of its messages take part in.

In: a `Trace`, and which messages were picked. Out: answers with the names that a `Trace` has. They are worked
out over the whole run, so that causes, gradients and who left first stay true; then what no picked message
takes part in is left out. What is kept is whole, but for sums, which are over what is kept.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

from msgspec.structs import replace

from rpcinspect.run import closings, device_maps, latency
from rpcinspect.run.closings import Closings
from rpcinspect.run.critical_path import Segment
from rpcinspect.run.device_maps import DeviceMap
from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.latency import Latency
from rpcinspect.run.ledger import RRefStory
from rpcinspect.run.profile import CallProfile
from rpcinspect.run.run import Run
from rpcinspect.trace.touched import Touched


class Narrowed:
    """See above."""

    def __init__(self, whole: Run, rows: bytes, touched: Touched) -> None:
        """`rows` has a 1 for each row that is picked; `touched` by these."""
        self.whole = whole
        self.session = whole.session
        self._rows = rows
        self._touched = touched

    @cached_property
    def messages(self) -> frozenset[int]:
        """Indexes of the messages that are picked."""
        picked = (index for row, index in enumerate(self.session.index.tolist()) if self._rows[row])
        return frozenset(picked)

    @cached_property
    def requests(self) -> frozenset[int]:
        """Indexes of the requests that are picked or whose answer is."""
        calls = self.whole.exchanges.calls
        return frozenset(c.index for c in calls if c.index in self.messages or c.answer in self.messages)

    @cached_property
    def graphs(self) -> tuple[ContextGraph, ...]:
        """The contexts."""
        contexts = self._touched.contexts
        return tuple(graph for graph in self.whole.graphs if (graph.job, graph.context_id) in contexts)

    def graphs_of(self, context_id: int) -> tuple[ContextGraph, ...]:
        """Graphs of all contexts with the id, of which the picked messages are to be shown."""
        graphs = self.whole.graphs_of(context_id)
        return tuple(replace(graph, shown=graph.messages & self.messages) for graph in graphs)

    def critical_path(self, graph: ContextGraph) -> tuple[Segment, ...]:
        """The parts of the path that exchanges determined; there may be gaps between them."""
        return tuple(part for part in self.whole.critical_path(graph) if part.request in self.requests)

    @cached_property
    def latency(self) -> Latency:
        """The exchanges, and sums over them."""
        return latency.part_of(self.whole.latency, self.requests)

    @cached_property
    def profiles(self) -> tuple[CallProfile, ...]:
        """The profiled calls."""
        return tuple(profile for profile in self.whole.profiles if profile.request in self.requests)

    @cached_property
    def ledger(self) -> tuple[RRefStory, ...]:
        """The remote references."""
        rrefs = self._touched.rrefs
        return tuple(story for story in self.whole.ledger if (story.job, story.rref_id) in rrefs)

    @cached_property
    def device_maps(self) -> tuple[DeviceMap, ...]:
        """The maps that exchanges went by."""
        return device_maps.part_of(self.whole.device_maps, self.whole.exchanges.calls, self.requests)

    @cached_property
    def closings(self) -> Closings:
        """What became of the pipes that messages went by."""
        order, pipe = self.session.order, self.session.messages.pipe
        return closings.part_of(
            self.whole.closings, frozenset(pipe[int(order[index])] for index in self.messages)
        )


Answers: TypeAlias = Run | Narrowed
"""What a view may be given."""
