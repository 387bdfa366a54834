"""A run as a program asks for it says what the command line says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rpcinspect as ri
from tests.cli.runner import CAPTURES, decode

CHAIN = CAPTURES / "basic_chain.pcap"
RELAY = CAPTURES / "rref_relay.pcap.gz"
FILTERS = (
    "body == PYTHON_CALL and latency > 1us",
    "error",
    "tensor.requires_grad",
    "src == worker1 or id < 9",
)


def lines(path: Path, *options: str) -> list[dict[str, Any]]:
    """What the command line says of a capture, as objects."""
    return decode(path, "--format", "jsonl", *options).objects


def of_kind(kind: str, told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in told if line["kind"] == kind]


@pytest.mark.parametrize(
    "name", ["basic_chain.pcap", "rref_relay.pcap.gz", "bwd_boom.pcap.gz", "reinit.pcap.gz"]
)
def test_messages_calls_and_the_rest_are_those_of_the_command_line(name: str) -> None:
    told = lines(CAPTURES / name)
    with ri.open(CAPTURES / name) as run:
        messages = of_kind("message", told)
        assert [(m.index, m.type, m.sender, m.receiver, m.time_ns) for m in run.messages] == [
            (m["index"], m["type"], m["src"], m["dst"], m["time_ns"]) for m in messages
        ]
        hashes = [[tensor.sha256 for tensor in m.tensors] for m in run.messages]
        assert hashes == [[tensor["sha256"] for tensor in m["tensors"]] for m in messages]
        asked = [m for m in messages if m["request"] and not m["housekeeping"]]
        assert [
            (c.index, c.latency_ns, c.function, [p.index for p in c.parents], c.parent_certain)
            for c in run.calls
        ] == [
            (m["index"], m["latency_ns"], m["body"].get("function"), m["parents"], m["parent_certain"])
            for m in asked
        ]
        assert [c.request.index for c in run.calls] == [m["index"] for m in asked]
        assert [None if c.answer is None else c.answer.index for c in run.calls] == [
            m["answered_by"] for m in asked
        ]
        contexts = of_kind("context", told)
        assert [(c.context_id, c.creator, len(c.edges)) for c in run.contexts] == [
            (c["context_id"], c["creator"], len(c["edges"])) for c in contexts
        ]
        for context, line in zip(run.contexts, contexts, strict=True):
            assert [edge.forward for edge in context.graph().edges] == [e["forward"] for e in line["edges"]]
            assert run.context(context.context_id).context_id == context.context_id
        assert [list(r.rref_id) for r in run.rrefs] == [line["rref_id"] for line in of_kind("rref", told)]
        assert [(f.code, f.text) for f in run.findings] == [
            (line["code"], line["text"]) for line in of_kind("finding", told)
        ]
        assert [w.name for w in run.workers] == [line["name"] for line in of_kind("worker", told)]


@pytest.mark.parametrize("expression", FILTERS)
@pytest.mark.parametrize("path", [CHAIN, RELAY], ids=lambda path: path.name)
def test_a_filter_picks_what_it_picks_on_the_command_line(path: Path, expression: str) -> None:
    told = lines(path, "-f", expression)
    calls = [line for line in lines(path, "--calls", "-f", expression) if line["kind"] == "call"]
    with ri.open(path) as run:
        picked = [m["index"] for m in of_kind("message", told)]
        assert [m.index for m in run.messages(expression)] == picked
        assert [c.index for c in run.calls(expression)] == [
            c["request"] for c in calls if not c["housekeeping"]
        ]
        part = run.filter(expression)
        assert [m.index for m in part.messages] == picked
        assert [list(r.rref_id) for r in part.rrefs] == [line["rref_id"] for line in of_kind("rref", told)]
        assert [f.text for f in part.findings] == [line["text"] for line in of_kind("finding", told)]
        assert [c.context_id for c in part.contexts] == [c["context_id"] for c in of_kind("context", told)]
        assert len(part) == len(picked)
        assert expression in repr(part)


def test_a_filter_that_is_none_is_told() -> None:
    with ri.open(CHAIN) as run, pytest.raises(ri.FilterError, match="nonsense"):
        run.calls("nonsense == 1")


def test_a_notebook_shows_rows_and_escapes_what_was_captured() -> None:
    with ri.open(CHAIN) as run:
        shown = run.calls._repr_html_()
        assert "basic_chain.scale" in shown
        assert "worker0 → worker1" in shown
        assert "&lt;Run of 2 workers" in run._repr_html_()
        assert run.messages._repr_html_().count("<tr>") == 21
        assert "4 more" in run.messages._repr_html_()


def test_what_is_not_there_is_told() -> None:
    with ri.open(CHAIN) as run:
        with pytest.raises(KeyError, match="9:9"):
            run.context("9:9")
        with pytest.raises(IndexError):
            run.message(10**6)
        with pytest.raises(IndexError):
            run.calls[len(run.calls)]
        assert run.messages[-1].index == len(run) - 1
        assert [m.index for m in run.messages[2:4]] == [2, 3]
    with pytest.raises(ri.CaptureError):
        ri.open("/nowhere/x.pcap")


def test_importing_the_package_loads_nothing() -> None:
    program = "import sys; import rpcinspect; print([m for m in sys.modules if m.startswith('rpcinspect.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n"


def test_every_public_name_is_there_and_listed() -> None:
    assert set(dir(ri)) == set(ri.__all__)
    assert all(getattr(ri, name) is not None for name in ri.__all__)
    with pytest.raises(AttributeError):
        ri.nothing  # noqa: B018
