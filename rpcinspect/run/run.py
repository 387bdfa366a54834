"""One run in memory: its session, its messages, and everything that can be asked of them.

In: captures, a decoding that is going on, or a session with its records. Out: a `RunModel`, which is made
once and does not change. Each answer is worked out when it is first asked for, by the modules beside this
one, and by nobody else: what caused what, who made and brought an RRef, where the time went. `decode` without
a question shows messages as they come and makes no `RunModel`.

`RunModel.narrowed` gives a run whose answers leave out what none of some messages takes part in. They are
worked out over the whole run, so that causes, gradients and who left first stay true. What is kept is whole,
but for sums, which are over what is kept.
"""

from __future__ import annotations

import builtins
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property

from msgspec.structs import replace

from rpcinspect.checks.wire_facts import ConnectionEnd
from rpcinspect.files.closing import Closing
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run import closings, device_maps, latency
from rpcinspect.run.causes import Causes, explain
from rpcinspect.run.closings import Closings, read_closings
from rpcinspect.run.critical_path import Segment, critical_path
from rpcinspect.run.device_maps import DeviceMap, read_device_maps
from rpcinspect.run.exchanges import Exchange, Exchanges, read_exchanges
from rpcinspect.run.graph import ContextGraph, read_graphs
from rpcinspect.run.latency import Latency, Timing, read_latency
from rpcinspect.run.message import Message
from rpcinspect.run.participation import Participation
from rpcinspect.run.profile import CallProfile, read_profiles
from rpcinspect.run.waits import BackwardWaits, MaybeWaits, maybe_waits, read_passes, waiting_requests
from rpcinspect.session.model import AutogradContext, Finding, RRef, Session, Worker
from rpcinspect.tcp.ranges import CaptureBytes, Extent


class RunModel(Closing):
    """A whole run. Use one whose captures are open in a `with` statement."""

    def __init__(
        self,
        session: Session,
        messages: Sequence[RpcRecord],
        *,
        ends: Sequence[ConnectionEnd] = (),
        source: CaptureBytes | None = None,
        notices: Sequence[str] = (),
        close: Callable[[], None] | None = None,
    ) -> None:
        """`messages` in the order of time, so that a place is an index.

        `ends` are those of the TCP connections: without them nobody is told to have closed any. Of `source`
        the bytes of tensors are read; without it nothing is said of them. `close` closes the captures.
        """
        self.session = session
        self.messages = messages
        """Every record in the order of time."""
        self.ends = ends
        """How the connections of the captures ended."""
        self.source = source
        """Where the bytes of tensors are; None where nobody can read them."""
        self.notices = notices
        """What the reader should know: captures of which there is more than was read, and the like."""
        self.whole = self
        """The run that this is a part of; a whole run itself."""
        self._rows = b""
        """Of each row of a part 1 where the message is picked."""
        self._touched = Participation()
        """What these take part in."""
        self._close = close

    @classmethod
    def open(cls, paths: Sequence[str], options: Options | None = None) -> RunModel:
        """Reads captures as one run. Raises `CaptureError` for a path that is no capture."""
        decoding = Decoding(paths, options)
        try:
            return cls.of(decoding, list(decoding.records()), decoding.close)
        except BaseException:
            decoding.close()
            raise

    @classmethod
    def of(
        cls, decoding: Decoding, records: Sequence[RpcRecord], close: Callable[[], None] | None = None
    ) -> RunModel:
        """The run of a decoding that has come to its end; `records` are all that it gave, in its order."""
        session = decoding.session
        return cls(
            session,
            [records[row] for row in session.order.tolist()],
            ends=decoding.ends,
            source=decoding.bytes,
            notices=decoding.notices,
            close=close,
        )

    def narrowed(self, rows: bytes, touched: Participation) -> RunModel:
        """The part that some messages take part in: `rows` has a 1 for each row that is picked, `touched` is
        what these take part in. Its messages, exchanges and causes are those of the whole run.
        """
        part = RunModel(self.session, self.messages, ends=self.ends, source=self.source, notices=self.notices)
        part.whole, part._rows, part._touched = self, rows, touched
        return part

    @property
    def is_part(self) -> bool:
        """Whether answers are narrowed to some messages."""
        return self.whole is not self

    @cached_property
    def picked(self) -> frozenset[int]:
        """Indexes of the messages that answers are narrowed to; of a whole run all."""
        if not self.is_part:
            return frozenset(range(len(self.messages)))
        return frozenset(i for row, i in enumerate(self.session.index.tolist()) if self._rows[row])

    @cached_property
    def requests(self) -> frozenset[int]:
        """Indexes of the requests that are picked or whose answer is."""
        calls = self.exchanges.calls
        return frozenset(c.index for c in calls if c.index in self.picked or c.answer in self.picked)

    def __len__(self) -> int:
        """Returns the number of messages."""
        return len(self.messages)

    def __bool__(self) -> bool:
        """A run without messages is a run."""
        return True

    def __repr__(self) -> str:
        return f"RunModel({len(self.messages):,} messages, {len(self.workers):,} workers)"

    def message(self, index: int) -> Message:
        """Returns a message by its index. Raises `IndexError` where there is none."""
        if not 0 <= index < len(self.messages):
            raise IndexError(f"there is no message #{index}: the run has {len(self.messages):,}")
        return Message(self, index)

    @cached_property
    def start_ns(self) -> int:
        """What times count from: the first message; without any, the first packet."""
        packets = (one.first_time_ns for one in self.session.captures if one.first_time_ns is not None)
        return min(self.session.messages.time_ns or packets, default=0)

    def seconds(self, time_ns: int | None) -> str:
        """A time of the capture from there, in seconds; nothing for none."""
        return "" if time_ns is None else f"{(time_ns - self.start_ns) / 1e9:.6f}"

    @cached_property
    def housekeeping(self) -> builtins.bytes:
        """Returns a byte per row of the session, 1 for housekeeping of the agents."""
        return self.session.messages.housekeeping()

    @property
    def workers(self) -> tuple[Worker, ...]:
        """Returns the workers, as far as the captures identify them."""
        return self.session.workers

    @property
    def contexts(self) -> tuple[AutogradContext, ...]:
        """Distributed autograd contexts with their edges."""
        return self.session.contexts

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is worth knowing of the run or its captures; of a part what names a message that is picked, or
        none."""
        found = self.session.findings
        if not self.is_part:
            return found
        return tuple(one for one in found if not one.messages or not self.picked.isdisjoint(one.messages))

    @property
    def bytes(self) -> CaptureBytes:
        """Returns the bytes of the captures, by their place."""
        assert self.source is not None
        return self.source

    def read(self, extent: Extent) -> builtins.bytes:
        """The bytes of an extent, zeros where they were not captured."""
        return extent.read(self.bytes)

    def close(self) -> None:
        """Closes the captures."""
        if self._close is not None:
            self._close()

    @cached_property
    def exchanges(self) -> Exchanges:
        """Requests with their answers."""
        if self.is_part:
            return self.whole.exchanges
        return read_exchanges(self)

    @cached_property
    def calls(self) -> dict[int, Exchange]:
        """Returns the exchanges by the index of the request, in the order in which they began."""
        return self.exchanges.by_index()

    @cached_property
    def edges(self) -> dict[tuple[int, int, int], int]:
        """(job, context, autograd message id) → index of the forward message that made the edge; of an id
        that is repeated nevertheless the first."""
        found: dict[tuple[int, int, int], int] = {}
        for one in self.contexts:
            for edge in one.edges:
                found.setdefault((one.job, one.context_id, edge.autograd_message_id), edge.forward)
        return found

    @cached_property
    def causes(self) -> Causes:
        """Which request was sent while serving which."""
        return self.whole.causes if self.is_part else explain(self.session)

    @cached_property
    def waiting(self) -> dict[int, int]:
        """Which request can't be answered before another one is over."""
        return self.whole.waiting if self.is_part else waiting_requests(self.exchanges.calls, self.causes)

    @cached_property
    def passes(self) -> BackwardWaits:
        """What backward passes did with gradients."""
        return self.whole.passes if self.is_part else read_passes(self.exchanges.calls, self.causes)

    @cached_property
    def maybe_waits(self) -> MaybeWaits:
        """What may have been waited for, of which it is not known who made it, or for what."""
        return self.whole.maybe_waits if self.is_part else maybe_waits(self.exchanges.calls, self.causes)

    @cached_property
    def graphs(self) -> tuple[ContextGraph, ...]:
        """Every autograd context."""
        if self.is_part:
            contexts = self._touched.contexts
            return tuple(one for one in self.whole.graphs if (one.job, one.context_id) in contexts)
        return read_graphs(self)

    @cached_property
    def latency(self) -> Latency:
        """Where the time of exchanges went."""
        if self.is_part:
            return latency.part_of(self.whole.latency, self.requests)
        return read_latency(self)

    @cached_property
    def timings(self) -> dict[int, Timing]:
        """The times of exchanges by the index of the request."""
        return {timing.call.index: timing for timing in self.latency.timings}

    @cached_property
    def profiles(self) -> tuple[CallProfile, ...]:
        """What callers' profilers show of their callees."""
        if self.is_part:
            return tuple(one for one in self.whole.profiles if one.request in self.requests)
        return read_profiles(self.exchanges.calls, self.causes)

    @cached_property
    def rrefs(self) -> tuple[RRef, ...]:
        """Every remote reference."""
        its = self.session.rrefs
        return tuple(r for r in its if (r.job, r.rref_id) in self._touched.rrefs) if self.is_part else its

    @cached_property
    def device_maps(self) -> tuple[DeviceMap, ...]:
        """Which devices tensors came from and went to."""
        if self.is_part:
            return device_maps.part_of(self.whole.device_maps, self.exchanges.calls, self.requests)
        return read_device_maps(self.exchanges.calls)

    @cached_property
    def closings(self) -> Closings:
        """Who left first, and what was in flight then."""
        if self.is_part:
            order, pipe = self.session.order, self.session.messages.pipe
            its = frozenset(pipe[int(order[index])] for index in self.picked)
            return closings.part_of(self.whole.closings, its)
        return read_closings(self.session, self.exchanges.calls, self.ends)

    def graphs_of(self, context_id: int) -> tuple[ContextGraph, ...]:
        """The graph of a context, or one for each job that has the id; of a part all of these, `shown`."""
        return tuple(self.shown(one) for one in self.whole.graphs if one.context_id == context_id)

    def shown(self, graph: ContextGraph) -> ContextGraph:
        """A graph of which only the picked messages are to be shown."""
        return replace(graph, shown=graph.messages & self.picked) if self.is_part else graph

    def critical_path(self, graph: ContextGraph) -> tuple[Segment, ...]:
        """Returns the segments of a context's duration; of a part, those that its exchanges determined,
        perhaps with gaps."""
        calls = self.whole._calls_of.get((graph.job, graph.context_id), ())
        path = critical_path(graph, calls, self.waiting, self.passes, self.maybe_waits)
        return tuple(one for one in path if not self.is_part or one.request in self.requests)

    @cached_property
    def _calls_of(self) -> dict[tuple[int, int], list[Exchange]]:
        """Calls by job and context, what they wait for with them: a run may have thousands of contexts."""
        found: dict[tuple[int, int], list[Exchange]] = defaultdict(list)
        contexts: dict[int, int | None] = {}
        for call in self.exchanges.calls:
            context = call.context
            if context is None:
                context = contexts[call.index] = contexts.get(self.waiting.get(call.index, -1))
            else:
                contexts[call.index] = context
            if context is not None:
                found[call.job, context].append(call)
        return found


def open_run(path: str, *more: str, options: Options | None = None) -> RunModel:
    """Reads captures as one run. The package offers it as `rpcinspect.open`."""
    return RunModel.open((path, *more), options)
