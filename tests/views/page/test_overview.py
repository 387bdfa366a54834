"""What a page tells before anybody asks, against the session."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from rpcinspect.run.participation import Participation
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import Finding, Worker
from rpcinspect.session.process_end import ProcessEnd
from rpcinspect.session.words import lack_of_memory
from rpcinspect.views.page.overview import MAX_FINDINGS, SEVERITIES, page_of
from tests.checks.runs import workload_trace
from tests.diff.stories import Story
from tests.views.page.pages import story_run


@pytest.mark.parametrize("name", ["basic_chain", "ps_race", "bwd_boom", "devmap_cpu_refused"])
def test_sums(name: str) -> None:
    run = workload_trace(name)
    page = page_of(run, None)
    facts = {fact.name: fact for fact in page.facts}

    def told(count: int, one: str, many: str) -> bool:
        """Whether the page says so, and not "1 workers"."""
        found = facts.get(one if count == 1 else many)
        return found is not None and found.value == f"{count:,}"

    severities = Counter(finding.severity for finding in run.session.findings)
    assert told(len(run.messages), "message", "messages")
    assert told(len(run.session.workers), "worker", "workers")
    assert told(len(run.graphs), "autograd context", "autograd contexts")
    assert told(severities["error"], "error found", "errors found")
    assert told(severities["warning"], "warning", "warnings")
    errors = facts["error found" if severities["error"] == 1 else "errors found"]
    assert errors.bad == bool(severities["error"])
    missing = sum(len(graph.missing) for graph in run.graphs)
    assert told(missing, "gradient never came", "gradients never came") == bool(missing)
    assert sum(sent(page)) == len(run.messages)
    assert {bar.name: int(bar.words) for bar in page.types} == run.session.totals.by_type
    assert [card.told.text for card in page.findings] == [
        finding.text for finding in sorted(run.session.findings, key=lambda f: SEVERITIES.index(f.severity))
    ]
    assert page.filter is None


def test_who_left_first_and_a_run_without_messages() -> None:
    assert page_of(workload_trace("faults/dies"), None).closings is not None
    assert page_of(workload_trace("basic_chain"), None).closings is None
    empty = story_run(Story())
    page = page_of(empty, None)
    assert page.lead == "No message was found."
    assert page.types == ()


def test_workers_without_a_name_are_called_by_where_they_listen() -> None:
    story = Story()
    story.ask("app.f")
    run = story_run(story)
    session = run.session
    nameless = (
        Worker(name=None, id=None, group=0, addresses=(session.clients[1],)),
        Worker(name=None, id=7, group=0, addresses=()),
        Worker(name=None, id=None, group=0, addresses=()),
    )
    run = RunModel(replace(session, workers=nameless), run.messages, source=run.source)
    page = page_of(run, None)
    assert [row[0] for row in page.workers.rows] == [session.clients[1], "worker:7", "?"]


def sent(page: SimpleNamespace) -> list[int]:
    """How many messages each worker has sent."""
    at = [column.title for column in page.workers.columns].index("sent")
    return [int(str(row[at])) for row in page.workers.rows]


def test_a_filter_changes_the_sums_and_is_named() -> None:
    run = workload_trace("ps_race")
    rows = bytes(int(run.session.index[row] < 30) for row in range(len(run.messages)))
    page = page_of(run.narrowed(rows, Participation()), "index < 30\x1b")
    assert page.filter == "index < 30\\x1b"
    assert page.facts[0].value == "30 of 118"
    assert sum(int(bar.words) for bar in page.types) == 30
    assert page.findings_hidden == 3
    assert sum(sent(page)) == 30


def with_findings(run: RunModel, *findings: Finding) -> RunModel:
    return RunModel(replace(run.session, findings=findings), run.messages, source=run.source)


def test_the_worst_findings_come_first_and_the_rest_is_counted() -> None:
    run = workload_trace("basic_chain")
    findings = tuple(
        Finding(code="zero-gradient", severity="info", text=f"t{n}", messages=tuple(range(n)))
        for n in range(MAX_FINDINGS + 20)
    )
    findings += (Finding(code="error-response", severity="error", text="boom\u202e", messages=(1,)),)
    page = page_of(with_findings(run, *findings), None)
    assert (len(page.findings), page.findings_left_out) == (MAX_FINDINGS, 21)
    assert page.findings[0].told.text == "boom\u202e"
    assert page.findings[0].number == len(findings) - 1
    assert page.findings[20].told.messages == tuple(range(19))
    assert page.findings[20].filter == f"index in {{{', '.join(map(str, range(19)))}}}"


def test_what_the_picked_messages_take_part_in() -> None:
    run = workload_trace("ps_race")
    graph, finding = run.graphs[1], run.session.findings[0]
    wanted = {finding.messages[0], graph.edges[0].forward}
    rows = bytearray(len(run.messages))
    for index in wanted:
        rows[int(run.session.order[index])] = 1
    touched = Participation(
        frozenset({(graph.job, graph.context_id)}), frozenset({(0, run.rrefs[2].rref_id)})
    )
    page = page_of(run.narrowed(bytes(rows), touched), "anything")
    facts = {fact.name: fact.value for fact in page.facts}
    assert facts["messages"] == f"{len(wanted)} of {len(run)}"
    assert facts["autograd context"] == "1"
    assert len(page.rrefs.rows) == 1
    told = [card.told for card in page.findings]
    assert finding in told
    for one in told:
        assert not one.messages or wanted & set(one.messages)
    assert page.findings_hidden == len(run.session.findings) - len(told) > 0


def test_a_filter_of_very_many_messages_names_the_code() -> None:
    run = workload_trace("basic_chain")
    finding = Finding(code="zero-gradient", severity="info", text="t", messages=tuple(range(1000)))
    page = page_of(with_findings(run, finding), None)
    assert page.findings[0].filter == "finding == zero-gradient"


def test_how_processes_ended() -> None:
    run = workload_trace("basic_chain")
    titles = [column.title for column in page_of(workload_trace("basic_chain"), None).workers.columns]
    assert titles == ["worker", "id", "listens at", "sent"]
    session = run.session
    start = min(session.messages.time_ns)
    ends = (
        ProcessEnd(how="signal", signal="SIGKILL", time_ns=start + 2_000_000, oom_kills=1),
        ProcessEnd(how="exit", status=0),
    )
    workers = tuple(replace(worker, ended=end) for worker, end in zip(session.workers, ends, strict=False))
    run = RunModel(replace(session, workers=workers), run.messages, source=run.source)
    table = page_of(run, None).workers
    assert [column.title for column in table.columns[-2:]] == ["its process", "ended at second"]
    assert [(*row[-2:], style) for row, style in zip(table.rows, table.styles, strict=True)] == [
        (f"killed by SIGKILL{lack_of_memory(ends[0])}", "0.002000", "bad"),
        ("exit status 0", "", ""),
    ]
