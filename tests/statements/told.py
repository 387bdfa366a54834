"""A recorded job, decoded and asked (`Told`), and the lines that its workers printed (`Statement`).

A line knows which of its fields were looked at, so that one which nothing compares is found. Fields that no
answer can know are in `UNSEEN`, each with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.latency import Timing
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import Finding, RRef
from tests.checks.runs import workload_trace
from tests.checks.talks import of_capture
from tests.truth import CLOCK_NS, Json, workload

HEAD = frozenset({"worker", "event", "n", "time_ns", "thread"})
"""Fields of every line: who printed it, and when."""

UNSEEN = {
    ("worker", "torch"): "no message names the release",
    ("context", "note"): "the author's own word",
    ("edges", "note"): "the author's own word",
    ("backward", "roots"): "the tensors that a pass begins with stay on their worker",
    ("backward", "tensors"): "the tensors that a pass begins with stay on their worker",
    ("local", "local"): "made without RPC; `gradients` of the same job has the bits that travelled",
    ("local", "tensors"): "made without RPC; `gradients` of the same job has the bits that travelled",
    ("order", "version"): "a counter of the server's tensor, which does not travel",
    ("refused", "note"): "what is refused is not sent",
    ("refused", "error"): "what is refused is not sent",
    ("refused", "when"): "what is refused is not sent",
    ("site", "switch"): "what another run would have changed: tests/test_pairs.py compares the runs",
    ("site", "changed"): "the same",
    ("site", "part"): "the same",
    ("site", "step"): "the same",
    ("summation", "differing"): "a distance between two runs: tests/test_pairs.py",
    ("summation", "max_ulp"): "the same",
    ("summation", "max_abs"): "the same",
    ("overlap", "step"): "the author's own number",
    ("died", "step"): "the author's own number",
    ("step", "step"): "the author's own number",
}
"""(event, field) → why no answer to a run is held to it."""


class Statement(dict[str, Any]):
    """A line of a truth file that knows which of its fields were looked at."""

    def __init__(self, event: Json) -> None:
        super().__init__(event)
        self.looked_at: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.looked_at.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.looked_at.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key)

    def left(self) -> set[str]:
        """Fields that nobody looked at, and that something could have been compared with."""
        kind = super().__getitem__("event")
        return {key for key in self if key not in HEAD | self.looked_at and (kind, key) not in UNSEEN}


class Told:
    """The answers to one recorded job."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.run = workload(name)
        self.trace: RunModel = workload_trace(name)

    @cached_property
    def findings(self) -> list[Finding]:
        return of_capture(self.name)[1]

    @cached_property
    def timings(self) -> dict[int, Timing]:
        return {timing.call.index: timing for timing in self.trace.latency.timings}

    @cached_property
    def messages(self) -> dict[tuple[str, int], Json]:
        """(worker, number of its call) → the request."""
        return {(event["worker"], event["call"]): message for event, message in self.run.sent()}

    @cached_property
    def stories(self) -> dict[tuple[int, ...], RRef]:
        return {story.rref_id: story for story in self.trace.rrefs}

    def graph(self, context_id: int) -> ContextGraph | None:
        found = self.trace.graphs_of(context_id)
        assert len(found) <= 1
        return found[0] if found else None

    def finding(self, code: str, *texts: str, workers: tuple[str, ...] = ()) -> Finding:
        """The finding that says all of this."""
        found = [
            one
            for one in self.findings
            if one.code == code
            and set(workers) <= set(one.workers)
            and all(text in one.text for text in texts)
        ]
        assert len(found) == 1, (code, texts, workers, [one.text for one in self.findings])
        return found[0]

    def error(self, text: str, worker: str) -> Finding:
        """The finding of an error that came to a worker; those that only differ in numbers are one."""
        same = [
            one
            for one in self.findings
            if one.code == "error-response"
            and worker in one.workers
            and without_numbers(shown(cause_of(text))) in without_numbers(one.text)
        ]
        assert len(same) == 1, (text, worker, [one.text for one in self.findings])
        return same[0]

    def serving(self, worker: str, function: str, context_id: int | None, time_ns: int) -> Iterator[Timing]:
        """Exchanges during which a worker is said to run a function at a time."""
        for timing in self.timings.values():
            arrived = timing.call.begin_ns + timing.request_ns
            until = None if timing.busy_ns is None else arrived + timing.busy_ns
            if (
                (timing.call.callee, timing.call.what, timing.call.context) == (worker, function, context_id)
                and arrived - CLOCK_NS <= time_ns
                and (until is None or time_ns <= until + CLOCK_NS)
            ):
                yield timing


@lru_cache(maxsize=64)
def told(name: str) -> Told:
    """The answers to a job, once for the tests that follow each other."""
    return Told(name)


def cause_of(text: str) -> str:
    """What was raised first, of an error that workers passed on, each with words of its own before it."""
    inner = re.split(r"Error on Node \d+: |On WorkerInfo\(id=\d+, name=\w+\):(?:\n|\\+n)", text)[-1]
    return re.sub(r"\\+'", "'", re.split(r"\n|\\+n", inner)[0])


def without_numbers(text: str) -> str:
    return re.sub(r"\d+", "0", text)


def shown(text: str) -> str:
    """As the wire has it: Python sees other names of types than C++, and a sentence is cut."""
    return text.replace("torch.FloatTensor", "CPUFloatType").partition("\n")[0][:250]
