"""Remote references, device maps and ends of connections as JSON Lines; see `trace` for the rest.

In: the results of `trace`. Out: dicts for any JSON writer. An `rref` line is the contract's, and more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rpcinspect.fields.plain import Json, Line, Picked, each, plain
from rpcinspect.run.closings import Closings
from rpcinspect.run.device_maps import DeviceMap
from rpcinspect.session.model import RRef
from rpcinspect.views.contract.jsonl import ended_json, rref_json
from rpcinspect.views.worker_logs import event_json

_fork = Picked("fork_id holder giver begin requested accepted deleted acknowledged state")
_story = Picked("creator what created confirmed failed fetches backwards stories=forks", stories=each(_fork))
_device_map = Line(
    "device_map", "job caller callee seen used tensors uncovered uncovered_answers messages line"
)
_pipe = Picked("pipe client server how time_ns in_flight")
_departure = Line("departure", "job worker time_ns reset unanswered waiting pipes", pipes=each(_pipe))


def rrefs_json(rrefs: Sequence[RRef]) -> Iterator[Json]:
    """An `rref` line of each."""
    for rref in rrefs:
        yield {**rref_json(rref), **_story(rref)}


def device_maps_json(maps: Sequence[DeviceMap]) -> Iterator[Json]:
    """A `device_map` line for each caller and callee."""
    yield from map(_device_map, maps)


def closings_json(closings: Closings) -> Iterator[Json]:
    """A `departure` line for each worker that ended pipes, a `log` line for each that the workers' own logs
    have of that, then one `closings` line."""
    yield from map(_departure, closings.departures)
    yield from map(event_json, closings.reports)
    yield {
        "kind": "closings",
        "first": None if closings.first is None else plain(closings.first.worker),
        "first_by_logs": None if closings.first_report is None else plain(closings.first_report.peer),
        "open_pipes": closings.open_pipes,
        "ended": [
            {"worker": plain(worker.name), "job": worker.job, **ended_json(worker.ended)}
            for worker in closings.ended
        ],
    }
