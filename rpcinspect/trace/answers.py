"""The programmer's way in: a session and its records → everything that can be asked of the whole run.

Each answer is made when it is first asked for, from plain results of the modules beside this one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

from rpcinspect.causes.calls import Call, Exchanges, read_exchanges
from rpcinspect.causes.causality import Causes, explain
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session
from rpcinspect.trace.closings import Closings, read_closings
from rpcinspect.trace.critical_path import Segment, critical_path
from rpcinspect.trace.device_maps import DeviceMap, read_device_maps
from rpcinspect.trace.graph import ContextGraph, find_graphs, read_graphs
from rpcinspect.trace.latency import Latency, read_latency
from rpcinspect.trace.ledger import RRefStory, read_ledger
from rpcinspect.trace.profile import CallProfile, read_profiles
from rpcinspect.trace.waits import waiting_requests
from rpcinspect.trace.wire_facts import ConnectionEnd
from rpcinspect.wire.ranges import CaptureBytes


def trace(
    session: Session,
    messages: Sequence[RpcRecord],
    *,
    ends: Sequence[ConnectionEnd] = (),
    source: CaptureBytes | None = None,
) -> Trace:
    """What can be asked of a run; `messages` in the order of time, so that a place is an index.

    `ends` are those of the TCP connections: without them nobody is told to have closed any. Of `source` the
    bytes of gradients are read: without it no gradient is told to be zero.
    """
    return Trace(session, messages, ends, source)


class Trace:
    """See `trace`."""

    def __init__(
        self,
        session: Session,
        messages: Sequence[RpcRecord],
        ends: Sequence[ConnectionEnd],
        source: CaptureBytes | None,
    ) -> None:
        self.session = session
        self.messages = messages
        self._ends = ends
        self.source = source
        """Where the bytes of tensors are; None where nobody can read them."""

    @cached_property
    def exchanges(self) -> Exchanges:
        """Requests with their answers."""
        return read_exchanges(self.session, self.messages)

    @cached_property
    def causes(self) -> Causes:
        """Which request was sent while serving which."""
        return explain(self.exchanges.calls)

    @cached_property
    def waiting(self) -> dict[int, int]:
        """Which request can't be answered before another one is over."""
        return waiting_requests(self.exchanges.calls, self.causes)

    @cached_property
    def graphs(self) -> tuple[ContextGraph, ...]:
        """Every autograd context."""
        return read_graphs(self.session, self.messages, self.source)

    @cached_property
    def latency(self) -> Latency:
        """Where the time of exchanges went."""
        return read_latency(self.exchanges.calls, self.causes, self.waiting)

    @cached_property
    def profiles(self) -> tuple[CallProfile, ...]:
        """What callers' profilers show of their callees."""
        return read_profiles(self.exchanges.calls, self.causes)

    @cached_property
    def ledger(self) -> tuple[RRefStory, ...]:
        """Every remote reference."""
        return read_ledger(self.session, self.messages)

    @cached_property
    def device_maps(self) -> tuple[DeviceMap, ...]:
        """Which devices tensors came from and went to."""
        return read_device_maps(self.exchanges.calls)

    @cached_property
    def closings(self) -> Closings:
        """Who left first, and what was in flight then."""
        return read_closings(self.session, self.exchanges.calls, self._ends)

    def graphs_of(self, context_id: int) -> tuple[ContextGraph, ...]:
        """The graph of a context, or one for each job that has the id."""
        return find_graphs(self.graphs, context_id)

    def critical_path(self, graph: ContextGraph) -> tuple[Segment, ...]:
        """What the duration of a context consists of."""
        return critical_path(graph, self._calls_of.get((graph.job, graph.context_id), ()), self.waiting)

    @cached_property
    def _calls_of(self) -> dict[tuple[int, int], list[Call]]:
        """Calls by job and context: a run may have thousands of contexts."""
        found: dict[tuple[int, int], list[Call]] = defaultdict(list)
        for call in self.exchanges.calls:
            if call.context is not None:
                found[call.job, call.context].append(call)
        return found
