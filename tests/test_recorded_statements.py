"""Every line of the truth files in captures/torch is held against the answers to the run.

The jobs are those of captures/torch/scripts. Tensors that they print are compared in
tests/test_recordings.py, times of the profiler in tests/checks/test_profile.py; here are contexts, gradients,
calls, errors, device maps and profiles. The releases in captures/versions print no JSON.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rpcinspect.rpc.message import type_name
from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import Finding
from tests.checks.runs import traced
from tests.checks.talks import of_path
from tests.places import recorded
from tests.test_recordings import CUT, INVISIBLE, TORCH, VERSIONS, torch_capture
from tests.torch_values import described, tensors_of

Json = dict[str, Any]

CHAN = {"f": ("f",), "back": ("back",), "tiny+empty": ("f",), "ag": ("f",)}
SCRIPT = {
    "sfun": ("sfun",),
    "sret": ("sret",),
    "add1": ("add1",),
    "sfail": ("sfail",),
    "remote script": ("add1",),
    "remote builtin": ("aten::add",),
    "module-fail": (),  # refused before it is sent
}
STEPS: dict[str, dict[str, tuple[str, ...]]] = {
    "agctx": {
        "in ctx, no grad tensor": ("f",),
        "builtin in ctx, no grad": ("aten::add",),
        "remote in ctx, no grad": ("f",),
        "no tensors in ctx": ("f",),
    },
    "devmap": {"devmap": ("f",), "b": ("aten::add",)},
    "dyn": {"f": ("f",)},
    "hosts4": CHAN,
    "snap300": CHAN,
    "kitchen": {
        "args": (),
        "f": ("f",),
        "torch.add builtin": ("aten::add",),
        "torch.mul builtin": ("aten::mul",),
        "multi": ("multi",),
        "ident": ("ident",),
        "shared storage": ("ident",),
        "param": ("ident",),
        "boom": ("boom",),
        "builtin-exc": ("aten::add",),
        "timeout": ("f",),
        "5 async": ("f",) * 5,
    },
    "nested": {"mid": ("mid",), "amid": ("amid",), "cyc": ("cyc", "cyc"), "nested autograd": ("mid",)},
    "prof": {
        "prof use_kineto=False": ("f", "aten::add", "sfun", "f", "f"),
        "kineto profile": ("f", "aten::add", "sfun", "f", "f"),
        "legacy-fail": (),
        "legacy-fail2": (),
    },
    "prof2_legacy": {"legacy": ("f", "aten::add", "f", "f", "mid")},
    "rref": {
        "ctx": ("mk",),
        "fwd": ("fwd",),
        "rref.backward": ("loss",),
        "ctx2": ("fwd",),
        "da.backward": ("aten::mul",),
        "share builtin rref": ("aten::add", "use_rref"),
        "pass on": ("pass_on",),
        "owner rref shared": ("use_rref",),
        "rref proxy": ("id_info",),
    },
    "script": SCRIPT,
    "script_hang": SCRIPT,
    "sparse": {
        "coo": ("sp",),
        "coo builtin add": ("aten::add",),
        "hybrid coo + dense": ("ident",),
        "quant": ("ident",),
        "quant per channel ret": ("aten::quantize_per_channel",),
    },
}
"""Job → what its driver calls in the step that a line is about, by the scripts."""
AFTER_THE_LAST_LINE = {"script_hang": ("scls",)}
"""Its answer can't be read by the caller, which hangs."""
NAMES = [name for name in TORCH if not name.startswith("stress")]
DRIVER = {"dyn": "worker1"}
"""Else worker0."""
PARAMETER, PROXY = "<class 'torch.nn.parameter.Parameter'>", "RRefProxy"


class Told:
    """The answers to a capture, and what its job printed."""

    def __init__(self, name: str) -> None:
        self.name = name
        path = torch_capture(name)
        lines = (recorded(f"torch/{name}.truth")).read_text().splitlines()
        self.lines: list[Json] = [json.loads(line.removeprefix("TRUTH ")) for line in lines]
        self.trace: RunModel = traced(path)
        self.findings: list[Finding] = of_path(str(path))[1]

    def graph(self, context_id: int) -> ContextGraph:
        (graph,) = self.trace.graphs_of(context_id)
        return graph

    def codes(self) -> Counter[str]:
        return Counter(finding.code for finding in self.findings)


def bare(what: str) -> str:
    """A function without its module, an operator without its overload."""
    return what.split(".")[0] if what.startswith("aten::") else what.rpartition(".")[2]


def steps_of(name: str) -> dict[str, tuple[str, ...]]:
    return CHAN if name.startswith("chan") or name == "two" else STEPS[name]


# --- by field -----------------------------------------------------------------------------------------------


def step(on: Told, line: Json) -> None:
    """Its calls are there; how many there are in all is compared below."""
    made = {bare(t.call.what) for t in on.trace.latency.timings if not t.call.control}
    assert set(steps_of(on.name)[line["step"]]) <= made


def context(on: Told, line: Json) -> None:
    """The driver made it, its pass came to its end, and everybody cleaned it up."""
    graph = on.graph(line["ctx"])
    assert graph.creator == "worker0"
    assert graph.missing == ()
    assert graph.came == graph.expected > 0
    cleaned = {message.destination for message in graph.passing if message.message in graph.cleanup}
    assert cleaned | {"worker0"} == set(graph.workers)


def gradient(on: Told, line: Json) -> None:
    """Of the driver's leaf: it came by an edge that the driver had sent, and has these values."""
    came(on, on.graph(line["ctx"]), line["g"])


def gradients(on: Told, line: Json) -> None:
    """Of one of the two contexts, which another line names."""
    last = max(i for i, other in enumerate(on.lines) if "ctx" in other and i < on.lines.index(line))
    for printed in line["grads"].values():
        came(on, on.graph(on.lines[last]["ctx"]), printed)


def came(on: Told, graph: ContextGraph, printed: Json) -> None:
    brought = [
        (g.message, i)
        for edge in graph.edges
        if edge.sender == "worker0"
        for g in edge.gradients
        for i, tensor in enumerate(g.tensors)
        if (list(tensor.shape), f"torch.{tensor.dtype}") == (printed["shape"], printed["dtype"])
    ]
    assert brought
    seen = {message.line["index"]: message for message in tensors_of(torch_capture(on.name))}
    values = [seen[m].tensors[seen[m].line["body"]["grads"][i]] for m, i in brought]
    found = [described(value) for value in values if value is not None]
    if found:  # else its bytes are not on the network
        sums = [one["sum"] for one in found]
        assert printed in found or printed["sum"] == pytest.approx(sum(sums))
    else:
        assert "invisible-transport" in on.codes()


def error(on: Told, line: Json) -> None:
    """What the caller got was the answer to one of the step's calls, and is told as its first failure."""
    if line["step"] in ("legacy-fail", "legacy-fail2", "module-fail"):
        return  # raised by the caller itself
    (function, *_) = steps_of(on.name)[line["step"]]
    text = line.get("msg") or line["err"]
    inner = re.split(r"On WorkerInfo\(id=\d+, name=\w+\):\n", text)[-1].strip().split("\n")
    said = next(part for part in reversed(inner) if "~~" not in part and "return x" not in part)
    if said != line["err"]:
        said = said if len(inner) > 1 and "RuntimeError" in said else inner[0]
    found = [f for f in on.findings if f.code == "error-response" and said.rstrip("\\") in f.text]
    assert len(found) == 1, (said, [f.text for f in on.findings])
    assert found[0].workers == ("worker1", "worker0")
    assert function in found[0].text
    (answer,) = found[0].messages
    assert on.trace.exchanges.calls
    assert any(t.call.failed and t.call.answer == answer for t in on.trace.latency.timings)


def events(on: Told, line: Json) -> None:
    """Remote operators by name, node and number, in the order in which they began at their callee."""
    told = Counter(
        (profile.shown(run).replace("rpc_sync#aten::add", "rpc_async#aten::add"), run.node_id)
        for profile in on.trace.profiles
        for run in profile.runs
    )
    printed = Counter((row[0], row[1]) for row in line["evs"] if "#remote_op" in row[0])
    assert printed - told == Counter()
    assert bool(printed) == bool(told)


def parameter(on: Told, line: Json) -> None:
    assert line["r"] == PARAMETER
    assert on.codes()["detached-parameter"] == 1


def proxy(on: Told, line: Json) -> None:
    """`here` is the id of the worker that made the value."""
    if line["step"] != "rref proxy":
        return
    assert line["out"] == PROXY
    (story,) = [story for story in on.trace.rrefs if bare(story.what or "") == "id_info"]
    assert story.owner == f"worker{line['here']}"
    assert len(story.fetches) == 1


def name_of_case(on: Told, line: Json) -> None:
    """The first argument of one call."""
    own = [call for call in on.trace.exchanges.calls if bare(call.function or "") == "ident"]
    names = [other["name"] for other in on.lines if other["step"] == "ident"]
    assert len(own) == len(names) + 3 - 1  # and the calls with a shared storage and a parameter
    assert len(set(names)) == len(names)


def said_elsewhere(on: Told, line: Json) -> None:
    """A tensor, or a value made of tensors: test_recordings.py looks for it on the wire."""


FIELDS: dict[str, Callable[[Told, Json], None]] = {
    "step": step,
    "ctx": context,
    "g": gradient,
    "grads": gradients,
    "err": error,
    "msg": error,
    "evs": events,
    "r": parameter,
    "here": proxy,
    "out": proxy,
    "name": name_of_case,
    **dict.fromkeys(("a", "b", "c", "d", "h", "inp", "l", "s", "x", "z"), said_elsewhere),
}


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_is_an_answer(name: str) -> None:
    on = Told(name)
    assert on.lines
    for line in on.lines:
        for field in line:
            if name not in INVISIBLE:
                FIELDS[field](on, line)
    if name in INVISIBLE:
        assert [(f.code, f.severity) for f in on.findings] == [("invisible-transport", "error")]
        assert on.trace.graphs == ()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in INVISIBLE])
def test_the_driver_made_the_calls_of_its_steps_and_no_others(name: str) -> None:
    on = Told(name)
    steps = steps_of(name)
    expected = Counter(f for line in on.lines for f in steps[line["step"]])
    expected.update(AFTER_THE_LAST_LINE.get(name, ()))
    driver = DRIVER.get(name, "worker0")
    made = [t for t in on.trace.latency.timings if t.call.caller == driver and not t.call.control]
    assert (
        Counter(
            bare(t.call.what)
            for t in made
            if "CALL" in type_name(t.call.kind) and "FETCH" not in type_name(t.call.kind)
        )
        == expected
    )


# --- what the scripts say besides ---------------------------------------------------------------------------


def test_calls_in_a_context_without_gradients_make_no_edge() -> None:
    (graph,) = Told("agctx").trace.graphs
    assert (graph.edges, graph.backward_ns) == ((), None)
    requests = [m for m in graph.passing if m.request and "CLEANUP" not in m.kind]
    # the operator goes without an envelope; the second is a remote call, whose value is fetched
    assert [bare(m.what) for m in requests] == ["f", "f", "PYTHON_RREF_FETCH_CALL", "f"]


def test_device_maps_of_both_workers() -> None:
    (one,) = Told("devmap").trace.device_maps
    assert (one.caller, one.callee, one.seen) == ("worker0", "worker1", ((("cpu", "cpu"),),))
    assert one.used == (("cpu", "cpu"),)


def test_nested_calls_hang_together() -> None:
    """Who called whom while serving whom: mid → leaf, amid → add, cyc six deep."""
    on = Told("nested")
    causes = on.trace.causes.decided()
    timings = {t.call.index: t for t in on.trace.latency.timings}
    parents = Counter(
        (bare(timings[causes.parents[t.call.index]].call.what), bare(t.call.what))
        for t in timings.values()
        if t.call.index in causes.parents and type_name(t.call.kind).endswith("CALL")
    )
    assert parents == {("mid", "leaf"): 2, ("amid", "aten::add"): 1, ("cyc", "cyc"): 5}
    depths = []
    for timing in timings.values():
        if bare(timing.call.what) == "cyc":
            depth, at = 0, timing
            while at.call.index in causes.parents:
                depth, at = depth + 1, timings[causes.parents[at.call.index]]
            depths.append((depth, timing.call.callee))
    assert sorted(depths) == [(n, f"worker{(n + 1) % 3}") for n in range(6)]


def test_references_that_the_script_hands_on() -> None:
    """All are deleted before the end; `rr` goes to worker2 twice, from there to its owner."""
    ledger = {bare(s.what or "own"): s for s in Told("rref").trace.rrefs}
    assert {name: s.owner for name, s in ledger.items()} == {
        "mk": "worker1",
        "loss": "worker1",
        "aten::add": "worker1",
        "own": "worker0",
        "id_info": "worker2",
    }
    assert all(story.alive == () for story in ledger.values())
    assert Counter(f.holder for f in ledger["aten::add"].forks) == {"worker0": 1, "worker1": 1, "worker2": 2}
    assert [f.holder for f in ledger["own"].forks] == ["worker2"]
    assert len(ledger["loss"].backwards) == 1


def test_five_calls_at_once_overlap() -> None:
    made = [t for t in Told("kitchen").trace.latency.timings if bare(t.call.what) == "f"][-5:]
    ends = [t.call.begin_ns + (t.total_ns or 0) for t in made]
    assert any(later.call.begin_ns < end for end, later in zip(ends, made[1:], strict=False))


def test_cut_packets_leave_no_gradient_unsaid() -> None:
    assert Told(CUT).trace.graphs == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_contexts_errors_and_profiles_of_other_releases(version: str) -> None:
    """What versions/simple.py prints: a context whose pass came to its end, an error, a profiled call in a
    second context."""
    path = recorded(f"versions/torch-{version}.pcap")
    gradient, error, profile = recorded(f"versions/torch-{version}.truth").read_text().splitlines()
    trace, findings = traced(path), of_path(str(path))[1]
    number = int(gradient.split()[1])
    assert [graph.context_id for graph in trace.graphs] == [number, number + 1]
    for graph in trace.graphs:
        assert graph.creator == "worker0"
        assert graph.came == graph.expected > 0
        assert graph.missing == ()
    (failed,) = [finding for finding in findings if finding.code == "error-response"]
    assert failed.workers == ("worker1", "worker0")
    assert error.split("'")[1] in failed.text
    assert len(findings) == 1
    names = re.findall(r"'(rpc_sync#f\(worker0 -> worker1\)#remote_op: [\w:]+)'", profile)
    (profiled,) = trace.profiles
    assert names
    assert not Counter(names) - Counter(profiled.shown(run) for run in profiled.runs)
