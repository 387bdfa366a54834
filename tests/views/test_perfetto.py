"""The Trace Event Format: what viewers need of it, and that it tells what the run says."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.commands.filtering import read_filter
from rpcinspect.commands.whole_run import read_run
from rpcinspect.pipeline import Decoding
from rpcinspect.trace.answers import Trace
from rpcinspect.trace.graph import failed
from rpcinspect.views.perfetto import perfetto_pieces
from rpcinspect.views.shown import Shown
from tests.views.opened import CAPTURES
from tests.views.trace_events import check, ns, of

Json = dict[str, Any]

SHARED = CAPTURES.parent.parent / "shared" / "captures"
BUNDLED = sorted(path for path in CAPTURES.rglob("*.pcap*") if path.is_file())
OTHERS = sorted(path for path in (SHARED / "torch").glob("*.pcap*") if path.is_file())
CHAIN = CAPTURES / "basic_chain.pcap"
BOOM = CAPTURES / "bwd_boom.pcap.gz"


def made(stack: ExitStack, path: Path, expression: str | None = None) -> tuple[Trace, Shown | None, Json]:
    decoding = stack.enter_context(Decoding((str(path),)))
    run, shown = read_run(decoding, None if expression is None else read_filter(expression))
    return run, shown, json.loads(b"".join(perfetto_pieces(run, shown)))


@pytest.mark.parametrize("path", [*BUNDLED, *OTHERS], ids=lambda path: path.name)
def test_every_capture_makes_a_sound_file(path: Path) -> None:
    with ExitStack() as stack:
        run, _, document = made(stack, path)
        check(document)
        assert sorted(event["args"]["message"] for event in of(document, "X")) == list(
            range(len(run.messages))
        )
        for event in of(document, "X"):
            record = run.messages[event["args"]["message"]]
            start = run.session.messages.time_ns
            assert ns(event["ts"]) == record.tp.first_ns - min(start)
            assert ns(event["dur"]) == record.tp.last_ns - record.tp.first_ns
        calls = Counter(event["name"].split()[0] for event in of(document, "b"))
        assert calls["call"] == calls["serve"] == len(run.exchanges.calls)
        arrows = Counter(event["name"] for event in of(document, "s"))
        assert arrows["exchange"] == sum(call.answer is not None for call in run.exchanges.calls)
        assert arrows["gradient"] == sum(
            len(edge.backward) for context in run.session.contexts for edge in context.edges
        )
        errors = [event["args"]["message"] for event in of(document, "i") if event["name"] == "error"]
        assert sorted(errors) == [i for i, record in enumerate(run.messages) if failed(record)]
        findings = [event for event in of(document, "i") if event["cat"] == "finding"]
        assert len(findings) == len(run.session.findings)


def test_processes_are_workers() -> None:
    with ExitStack() as stack:
        run, _, document = made(stack, CHAIN)
    names = {e["pid"]: e["args"]["name"] for e in of(document, "M") if e["name"] == "process_name"}
    assert sorted(names.values()) == ["the run", "worker0", "worker1"]
    for event in of(document, "X"):
        assert names[event["pid"]] == run.session.source(run.messages[event["args"]["message"]].row)
    calls = {call.index: call for call in run.exchanges.calls}
    for event in of(document, "b"):
        call = calls[event["args"]["request"]]
        serves = event["name"].startswith("serve")
        assert names[event["pid"]] == (call.callee if serves else call.caller)


def test_calls_are_drawn_within_what_they_were_made_for() -> None:
    """A serving slice holds exactly such calls; all others have an id of their own."""
    with ExitStack() as stack:
        run, _, document = made(stack, BOOM)
    by_id: dict[int, list[Json]] = {}
    for event in of(document, "b"):
        by_id.setdefault(event["id"], []).append(event)
    nested = 0
    for first, *inner in by_id.values():
        for event in inner:
            nested += 1
            assert first["name"].startswith("serve")
            assert run.causes.parents[event["args"]["request"]] == first["args"]["request"]
            assert event["args"]["parent"] == first["args"]["request"]
    assert nested >= 2  # the relay's call within the relay, and the gradients that it passes on


def test_a_failure_says_what_it_was() -> None:
    with ExitStack() as stack:
        _, _, document = made(stack, BOOM)
    errors = [event for event in of(document, "i") if event["name"] == "error"]
    assert any("gradient exploded on purpose" in event["args"]["text"] for event in errors)
    assert any(event["args"].get("failed") for event in of(document, "b"))


def test_a_filter_leaves_whole_exchanges() -> None:
    with ExitStack() as stack:
        run, shown, document = made(stack, CHAIN, "type == BACKWARD_AUTOGRAD_REQ")
        check(document)
    assert shown is not None
    wanted = {call.index for call in run.exchanges.calls if shown.rows[call.request.row]}
    assert {event["args"]["request"] for event in of(document, "b")} == wanted
    assert len(of(document, "X")) == 2 * len(wanted) == 2 * shown.count
    assert Counter(event["name"] for event in of(document, "s")) == {"exchange": len(wanted)}


def test_an_empty_run_is_a_file_too() -> None:
    with ExitStack() as stack:
        _, _, document = made(stack, CAPTURES / "transport_matrix_default.pcap")
        check(document)
    assert not of(document, "X")
    assert [event["name"] for event in of(document, "i")] == ["error: invisible-transport"]
