"""Remote references, device maps and ends of connections as JSON Lines; see `trace` for the rest.

In: the results of `trace`. Out: dicts for any JSON writer. An `rref` line is the contract's, and more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from rpcinspect.run.closings import Closings, Departure, PipeEnd
from rpcinspect.run.device_maps import DeviceMap, Pairs
from rpcinspect.session.model import Fork, RRef
from rpcinspect.views.contract.jsonl import rref_json
from rpcinspect.views.contract.message import text
from rpcinspect.views.worker_logs import event_json

Json: TypeAlias = dict[str, Any]


def rrefs_json(rrefs: Sequence[RRef]) -> Iterator[Json]:
    """An `rref` line of each."""
    for rref in rrefs:
        yield {
            **rref_json(rref),
            "creator": _text(rref.creator),
            "what": _text(rref.what),
            "created": rref.created,
            "confirmed": rref.confirmed,
            "failed": rref.failed,
            "fetches": list(rref.fetches),
            "backwards": list(rref.backwards),
            "stories": [_fork(fork) for fork in rref.forks],
        }


def _fork(fork: Fork) -> Json:
    return {
        "fork_id": list(fork.fork_id),
        "holder": _text(fork.holder),
        "giver": _text(fork.giver),
        "begin": fork.begin,
        "requested": fork.requested,
        "accepted": fork.accepted,
        "deleted": fork.deleted,
        "acknowledged": fork.acknowledged,
        "state": fork.state,
    }


def device_maps_json(maps: Sequence[DeviceMap]) -> Iterator[Json]:
    """A `device_map` line for each caller and callee."""
    for one in maps:
        yield {
            "kind": "device_map",
            "job": one.job,
            "caller": text(one.caller),
            "callee": text(one.callee),
            "seen": [_pairs(pairs) for pairs in one.seen],
            "used": _pairs(one.used),
            "tensors": one.tensors,
            "uncovered": [text(device) for device in one.uncovered],
            "uncovered_answers": [text(device) for device in one.uncovered_answers],
            "messages": list(one.messages),
            "line": _text(one.line),
        }


def _pairs(pairs: Pairs) -> list[list[str]]:
    return [[text(a), text(b)] for a, b in pairs]


def closings_json(closings: Closings) -> Iterator[Json]:
    """A `departure` line for each worker that ended pipes, a `log` line for each that the workers' own logs
    have of that, then one `closings` line."""
    for departure in closings.departures:
        yield _departure(departure)
    for report in closings.reports:
        yield event_json(report)
    yield {
        "kind": "closings",
        "first": None if closings.first is None else text(closings.first.worker),
        "first_by_logs": None if closings.first_report is None else _text(closings.first_report.peer),
        "open_pipes": closings.open_pipes,
    }


def _departure(departure: Departure) -> Json:
    return {
        "kind": "departure",
        "job": departure.job,
        "worker": text(departure.worker),
        "time_ns": departure.time_ns,
        "reset": departure.reset,
        "unanswered": list(departure.unanswered),
        "waiting": list(departure.waiting),
        "pipes": [_pipe(pipe) for pipe in departure.pipes],
    }


def _pipe(pipe: PipeEnd) -> Json:
    return {
        "pipe": pipe.pipe,
        "client": text(pipe.client),
        "server": text(pipe.server),
        "how": pipe.how,
        "time_ns": pipe.time_ns,
        "in_flight": list(pipe.in_flight),
    }


def _text(value: str | None) -> str | None:
    return None if value is None else text(value)
