"""`startup-skew`: who came late to `init_rpc`, so that all others had to wait.

In: when each worker connected to the store, and who was refused there. Out: findings. In a group of a fixed
size nobody goes on before all are there, so that what workers tell the store of themselves comes at one time;
their connections tell who was late. Whoever comes before the store itself is refused, and tries again after a
pause that grows: when such a worker came is not known, only that nobody's pause is longer than so much.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from rpcinspect.checks.check import Check
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.session.model import Arrival, Finding, Worker
from rpcinspect.session.words import duration

SKEW_NS = 1_000_000_000
"""Workers that are started together come within less, as far as their hosts are not busy."""
PAUSE_NS = 1_500_000_000
"""The longest pause after the first attempt. That after a later one is longer by at most one and a half times
what was waited before (torch/csrc/distributed/c10d/Backoff.hpp: 0.5 s, then always half as much again, up to
a half more or less; older releases: 1 s)."""
STILL_NS = 500_000_000
"""A worker that waits at the store is heard of sooner, unless its host stands still."""


class StartupSkew(Check):
    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        groups: dict[tuple[int, int], list[Worker]] = defaultdict(list)
        for worker in evidence.session.workers:
            groups[worker.job, worker.group].append(worker)
        found = [(workers, _arrivals(workers)) for workers in groups.values()]
        times = sorted(one.time_ns for _, arrivals in found for one in arrivals)
        for workers, arrivals in found:
            if len(arrivals) > 1:
                first = min(one.time_ns for one in arrivals)
                before = max((time_ns for time_ns in times if time_ns < first), default=0)
                tries = [
                    t for at, t in evidence.wire.refused if at == arrivals[0].store and before < t < first
                ]
                yield from _skew(workers, arrivals, _first_try(first, sorted(tries)))


def _arrivals(workers: Sequence[Worker]) -> list[Arrival]:
    """Returns the arrivals of all workers of a group; none where one is not known."""
    arrivals = [worker.arrival for worker in workers if worker.arrival is not None]
    ids = {worker.id for worker in workers}
    alike = len({one.store for one in arrivals}) == 1
    return arrivals if alike and len(arrivals) == len(workers) and ids == set(range(len(ids))) else []


def _first_try(first: int, refused: Sequence[int]) -> int:
    """When somebody first tried who went on trying until the store was there."""
    tried = before = refused[0] if refused else first
    for time_ns in (*refused, first):
        if time_ns - before > _longest_pause(before - tried):
            tried = time_ns  # whoever tried before has given up
        before = time_ns
    return tried


def _longest_pause(tried_ns: int) -> int:
    return PAUSE_NS + tried_ns * 3 // 2


def _skew(workers: Sequence[Worker], arrivals: Sequence[Arrival], tried: int) -> Iterable[Finding]:
    came = sorted(zip((one.time_ns for one in arrivals), range(len(workers)), strict=True))
    (first, begins), (last, ends) = came[0], came[-1]
    host, late = workers[begins], workers[ends]
    if tried == first:
        certain = True
    else:  # the last one may have been refused, too
        certain = last - first > _longest_pause(first - tried) and arrivals[begins].pause_ns < STILL_NS
    group = f" of group {late.group}" if late.group else ""
    if certain and last - tried >= SKEW_NS:
        others = f"{len(workers) - 1:,} others" if len(workers) > 2 else "other one"
        yield _finding(
            late,
            f"{late.name} was the last to come to init_rpc{group}, {duration(last - tried)} after the first: "
            f"the {others} waited for it.",
        )
    elif first - tried >= SKEW_NS and host.id == 0:
        yield _finding(
            host,
            f"{host.name} came to init_rpc{group} {duration(first - tried)} after the first worker "
            f"tried to reach its store ({arrivals[begins].store}), which did not exist yet.",
        )


def _finding(late: Worker, text: str) -> Finding:
    return Finding(
        code="startup-skew",
        severity="info",
        text=text,
        remedy=f"Look at what {late.name} does before init_rpc (imports, data, the start of its host or of a "
        "GPU), or start it sooner.",
        workers=(late.name or "",),
    )
