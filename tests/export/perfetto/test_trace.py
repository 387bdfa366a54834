"""The Trace Event Format: what viewers need of it, and that it tells what the run says."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.cli.inputs import read_run
from rpcinspect.export.perfetto.trace import FIRST_TID, RUN_PID, Processes, Threads, perfetto_pieces
from rpcinspect.filter.matches import Shown
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.questions import failed
from rpcinspect.run.run import RunModel
from tests import perfetto_ui
from tests.browser import browser
from tests.export.perfetto import trace_processor
from tests.export.perfetto.trace_events import check, ns, of
from tests.export.perfetto.trace_processor import needs_trace_processor
from tests.filter.from_json import read_filter
from tests.perfetto_ui import needs_perfetto, perfetto
from tests.places import recordings, workloads
from tests.thorough import representative, some
from tests.views.opened import CAPTURES, opened

Json = dict[str, Any]

BUNDLED = workloads()
OTHERS = recordings("torch", "torch-suite", "versions")
CHAIN = CAPTURES / "basic_chain.pcap"
BOOM = CAPTURES / "bwd_boom.pcap.gz"


def made(stack: ExitStack, path: Path, expression: str | None = None) -> tuple[RunModel, Shown | None, Json]:
    decoding = stack.enter_context(Decoding((str(path),)))
    run, shown = read_run(decoding, None if expression is None else read_filter(expression))
    return run, shown, json.loads(b"".join(perfetto_pieces(run, shown)))


@pytest.mark.parametrize("path", representative([*BUNDLED, *OTHERS]), ids=lambda path: path.name)
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
        assert arrows["cause"] == len(run.causes.parents)
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
    by_id: dict[str, list[Json]] = {}
    for event in of(document, "b"):
        by_id.setdefault(event["id2"]["local"], []).append(event)
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
    arrows = Counter(event["name"] for event in of(document, "s"))
    within = sum(parent in wanted for index, parent in run.causes.parents.items() if index in wanted)
    assert arrows == {"exchange": len(wanted), "cause": within}


def test_the_file_says_what_it_is_of() -> None:
    with ExitStack() as stack:
        run, _, document = made(stack, CHAIN)
        assert document["otherData"] == {
            "captures": str(CHAIN),
            "begin_ns": str(run.messages[0].tp.first_ns),
        }
        _, shown, document = made(stack, CHAIN, "request")
    assert shown is not None
    assert document["otherData"]["filter"] == "request"
    assert document["otherData"]["matched"] == str(shown.count)


def test_an_empty_run_is_a_file_too() -> None:
    with ExitStack() as stack:
        _, _, document = made(stack, CAPTURES / "transport_matrix_default.pcap")
        check(document)
    assert not of(document, "X")
    assert [event["name"] for event in of(document, "i")] == ["error: invisible-transport"]


SQL = """
select 'error', name, value, 0, 0, 0, 0 from stats
    where value > 0 and severity in ('error', 'data_loss')
union all select category, s.name, ts, dur, depth, coalesce(tid, 0), p.pid from slice s
    left join thread_track tt on tt.id = s.track_id left join thread t using (utid)
    left join process_track pt on pt.id = s.track_id left join process p on p.upid = coalesce(t.upid, pt.upid)
union all select 'flow', '', extract_arg(o.arg_set_id, 'args.message'),
    extract_arg(i.arg_set_id, 'args.message'), 0, 0, 0
    from flow join slice o on o.id = slice_out join slice i on i.id = slice_in
union all select 'process', name, pid, 0, 0, 0, 0 from process where name is not null
union all select 'thread', t.name, tid, pid, 0, 0, 0 from thread t join process using (upid)
    where t.name is not null and not is_main_thread
union all select 'counter', ct.name, ts, cast(value as int), 0, 0, pid
    from counter c join process_counter_track ct on ct.id = c.track_id join process using (upid)
"""


READ = ("bwd_boom.pcap.gz", "basic_chain.pcap", "reinit.pcap.gz", "ctx_crowd.pcap.gz")


def written(name: str, folder: Path) -> tuple[Path, Json]:
    with ExitStack() as stack:
        _, _, document = made(stack, CAPTURES / name)
    trace = folder / f"{name}.json"
    trace.write_text(json.dumps(document))
    return trace, document


def compare(rows: list[list[Any]], document: Json) -> None:
    """Every slice with its place and depth, to the nanosecond; every arrow, name and count."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for kind, what, *numbers in rows:
        found.setdefault(kind, []).append((what, *map(int, numbers)))
    expected = read_by_hand(document)
    assert set(found) == set(expected)
    for kind, items in expected.items():
        assert sorted(found[kind]) == sorted(items), kind


@needs_perfetto
def test_perfetto_shows_what_was_meant(tmp_path: Path) -> None:
    """Quick, of a run with errors and of one with two jobs."""
    with browser() as chromium:
        for name in some(READ, 2):
            trace, document = written(name, tmp_path)
            with perfetto(chromium, trace) as tab:
                compare(perfetto_ui.query(tab, SQL), document)


@needs_trace_processor
@pytest.mark.parametrize("name", READ)
def test_the_trace_processor_reads_what_was_meant(name: str, tmp_path: Path) -> None:
    trace, document = written(name, tmp_path)
    compare(trace_processor.query(trace, SQL), document)


def read_by_hand(document: Json) -> dict[str, list[tuple[Any, ...]]]:
    """What the query finds."""
    told: dict[str, list[tuple[Any, ...]]] = {}

    def tell(kind: str, what: str, *numbers: int) -> None:
        told.setdefault(kind, []).append((what, *numbers, *[0] * (5 - len(numbers))))

    begun: dict[str, list[Json]] = {}
    arrows: dict[int, list[int]] = {}
    messages = {(e["tid"], e["ts"]): e["args"]["message"] for e in of(document, "X")}
    marks: Counter[tuple[int, int]] = Counter()
    for event in document["traceEvents"]:
        at, pid = ns(event["ts"]), event["pid"]
        match event["ph"]:
            case "X":
                tell("message", event["name"], at, ns(event["dur"]), 0, event["tid"], pid)
            case "b":
                begun.setdefault(event["id2"]["local"], []).append(event)
            case "e":
                begin = begun[event["id2"]["local"]].pop()
                depth = len(begun[event["id2"]["local"]])
                tell("call", event["name"], ns(begin["ts"]), at - ns(begin["ts"]), depth, 0, pid)
            case "s" | "f":
                arrows.setdefault(event["id"], []).append(messages[event["tid"], event["ts"]])
            case "i":
                tell(event["cat"], event["name"], at, 0, marks[pid, at], 0, pid)
                marks[pid, at] += 1
            case "C":
                ((unit, value),) = event["args"].items()
                tell("counter", f"{event['name']} {unit}", at, value, 0, 0, pid)
            case "M" if event["name"] == "process_name":
                tell("process", event["args"]["name"], pid)
            case "M" if event["name"] == "thread_name" and event["tid"] != pid:
                tell("thread", event["args"]["name"], event["tid"], pid)
    for start, end in arrows.values():
        tell("flow", "", start, end)
    return told


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30), st.integers(0, 10)), max_size=60))
def test_slices_of_a_thread_never_touch(slices: list[tuple[int, int, int]]) -> None:
    threads = Threads()
    placed = defaultdict(list)
    for pid, begin, length in sorted(slices, key=lambda one: one[1]):
        tid = threads.tid(pid, begin, begin + length)
        placed[tid].append((pid, begin, begin + length))
    known = {tid: (pid, number) for pid, tid, number in threads.all}
    assert set(known) == set(placed)
    assert sorted(known) == list(range(FIRST_TID, FIRST_TID + len(known)))
    for tid, on_it in placed.items():
        assert {pid for pid, _, _ in on_it} == {known[tid][0]}
        assert all(before[2] < after[1] for before, after in pairwise(on_it))
    for pid in {pid for pid, _ in known.values()}:
        numbers = sorted(number for its, number in known.values() if its == pid)
        assert numbers == list(range(len(numbers)))
        most = max(
            sum(1 for p, low, length in slices if p == pid and low <= at <= low + length) for at in range(41)
        )
        assert len(numbers) == most


def test_workers_are_processes_in_the_order_of_the_session() -> None:
    with opened(CAPTURES / "basic_chain.pcap") as capture:
        processes = Processes(capture.session)
        assert processes.pid((0, "worker0")) == RUN_PID + 1
        assert processes.pid((0, "10.0.0.1:4711")) == RUN_PID + 3
        assert [name for _, name in processes.names()] == ["the run", "worker0", "worker1", "10.0.0.1:4711"]


def test_of_several_jobs_each_worker_tells_its_job() -> None:
    with opened(CAPTURES / "reinit.pcap.gz") as capture:
        several = len(set(capture.session.jobs)) > 1
        names = [name for _, name in Processes(capture.session).names()]
    assert len(set(names)) == len(names)
    assert all("(job " in name for name in names[1:]) == several
