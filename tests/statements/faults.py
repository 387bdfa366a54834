"""Statements of what went wrong, and of who left."""

from __future__ import annotations

from rpcinspect.session.words import packed
from tests.statements.told import Statement, Told, cause_of
from tests.truth import CLOCK_NS


def raised(on: Told, line: Statement) -> None:
    finding = on.finding("error-response", line["text"], workers=(line["worker"],))
    assert on.run.ids[finding.workers[0]] == line["node_id"]
    failed = [(e, g) for graph in on.trace.graphs for e in graph.edges for g in e.gradients if g.failed]
    (gradient,) = [g for e, g in failed if e.sender == line["worker"]]
    sent = line["tensors"][line["grad"]["tensor"]]
    assert [t["sha256"] for t in on.run.decoded.messages[gradient.message]["tensors"]] == [sent["sha256"]]


def cascade(on: Told, line: Statement) -> None:
    finding = on.finding("error-response", cause_of(line["error"]["text"]))
    assert list(finding.workers) == line["path"]
    assert finding.text.startswith(f"{line['root']} failed first")


def died(on: Told, line: Statement) -> None:
    assert line.get("trainer") in (None, line["worker"])
    text = line["error"]["text"]
    if "end of file" in text:
        finding = on.finding("unanswered-request", "closed the connection first")
        assert finding.workers[0] == line["worker"]
        return
    on.error(text, line["worker"])


def trained(on: Told, line: Statement) -> None:
    """What changed a worker's weights was no gradient that got lost."""
    assert line["changed"]
    assert not {one.code for one in on.findings} & {"lost-edge", "missing-gradient", "detached-parameter"}


def fault(on: Told, line: Statement) -> None:
    """The finding by that code has every worker and every word of the line."""
    roles = [
        line[role] for role in ("caller", "callee", "creator", "left", "owner", "holder") if role in line
    ]
    texts = [line["function"]] if "function" in line else []
    graph = None
    if line.get("context_id") is not None:
        graph = on.graph(line["context_id"])
        assert graph is not None
    if line["code"] in ("leaked-context", "missing-gradient", "lost-edge") and graph is not None:
        texts.append(packed(graph.context_id))
    if line["code"] == "lost-edge" and graph is None:
        texts.append("no autograd envelope")
    texts += [line[word] for word in ("device", "name") if word in line]
    if "device" in line:
        texts.remove(line["function"])
        assert line["function"] in {timing.call.what for timing in on.timings.values() if timing.call.failed}
    if "rref" in line:
        texts.append("{}:{}".format(*line["rref"]["rref_id"]))
        (fork,) = on.stories[tuple(line["rref"]["rref_id"])].alive
        assert (list(fork.fork_id), fork.holder) == (line["rref"]["fork_id"], line["holder"])
    if line["code"] == "missing-gradient":
        texts.remove(line["function"])
    finding = on.finding(line["code"], *texts, workers=tuple(roles))
    if "call" in line:
        message = on.messages[line["worker"], line["call"]]
        assert {message["index"], message["answered_by"]} & set(finding.messages)
        assert message["body"]["function"] == line["function"]
    if line["code"] == "zero-gradient":
        assert graph is not None
        assert set(finding.messages) <= {gradient.message for gradient in graph.gradients}


def hangs(on: Told, line: Statement) -> None:
    graph = on.graph(line["context_id"])
    assert graph is not None
    told = [one for one in on.findings if one.code == "missing-gradient"]
    assert any(packed(graph.context_id) in one.text for one in told) == line["hangs"]
    assert bool(graph.missing) <= line["hangs"]  # an edge may have its gradient of an earlier pass


def left(on: Told, line: Statement) -> None:
    """The one that prints it first is the first whose connections end."""
    first = min(on.run.of("left"), key=lambda event: event["time_ns"])
    departure = on.trace.closings.departures[0]
    assert departure.worker == first["worker"]
    assert first["time_ns"] - CLOCK_NS <= departure.time_ns
    (its,) = [f for f in on.trace.closings.departures if f.worker == line["worker"]] or [departure]
    assert its.time_ns >= first["time_ns"] - CLOCK_NS


def shutdown(on: Told, line: Statement) -> None:
    closings = on.trace.closings
    assert closings.first is None
    assert closings.open_pipes == 0
    ends = [pipe for d in closings.departures for pipe in d.pipes]
    its = [pipe for pipe in ends if line["name"] in (pipe.client, pipe.server)]
    assert its or "refused" in on.name
    assert line["name"] == line["worker"]
