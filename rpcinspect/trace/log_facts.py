"""What logs tell of losses and ends, in the words of `wire_facts.py`.

In: what was joined of all logs. Out: `WireFacts` whose flows are those that stand for pipes.
"""

from __future__ import annotations

from rpcinspect.rpclog.join import LogJoin
from rpcinspect.trace.wire_facts import ConnectionEnd, WireFacts


def log_facts(join: LogJoin) -> WireFacts:
    """Where a record may be lost, nothing can be said to be missing on any way."""
    flows = [pipe.flow for pipe in join.pipes]
    dropped = [flows[number] if request else flows[number].reversed for number, request in sorted(join.lost)]
    damaged = [*flows, *[flow.reversed for flow in flows]] if join.damaged else dropped
    ends = tuple(
        ConnectionEnd(
            flow=str(pipe.flow),
            begin_ns=min(pipe.first_ns, end.time_ns),
            last_ns=max(pipe.first_ns, end.time_ns),
            by_client=end.by == "src",
            how=end.how,
            time_ns=end.time_ns,
        )
        for pipe, end in join.ends
    )
    return WireFacts(
        damaged=frozenset(map(str, damaged)),
        ends=ends,
        dropped=tuple((flow.source.host, flow.destination.host) for flow in dropped),
    )
