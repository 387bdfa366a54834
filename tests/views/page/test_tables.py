"""Tables of a page: every row of the answers, and a count of what is too much."""

from __future__ import annotations

from msgspec.structs import replace

from rpcinspect.views.html.kit import MAX_LINKS, Link, Table
from rpcinspect.views.page import tables as made
from tests.checks.runs import workload_trace


def texts(table: Table, column: int) -> list[str]:
    return [row.cells[column].text for row in table.rows]


def test_latency() -> None:
    latency = workload_trace("ps_race").latency
    table = made.groups_table("function", latency.functions, latency)
    assert len(table.rows) == len(latency.functions)
    assert len({len(row.cells) for row in table.rows} | {len(table.header)}) == 1
    place = texts(table, 0).index("BACKWARD_AUTOGRAD_REQ")
    assert [cell.text for cell in table.rows[place].cells[1:4]] == ["6", "", "2"]
    assert table.rows[place].style == "bad"
    pairs = made.groups_table("from → to", latency.pairs, latency)
    assert "worker1 → worker0" in texts(pairs, 0)
    stragglers = made.stragglers_table(latency.stragglers)
    assert [row.cells[0].links for row in stragglers.rows] == [
        (Link(f"#{s.timing.call.index}", f"m{s.timing.call.index}"),) for s in latency.stragglers
    ]


def test_references() -> None:
    run = workload_trace("rref_relay")
    table = made.rrefs_table(run.rrefs, run.calls)
    assert texts(table, 0) == [f"{story.rref_id[0]}:{story.rref_id[1]}" for story in run.rrefs]
    assert "a local value" in texts(table, 3)
    assert [link.text for link in table.rows[0].cells[2].links] == [f"#{run.rrefs[0].created}"]


def test_devices() -> None:
    table = made.maps_table(workload_trace("devmap_cpu").device_maps)
    assert texts(table, 0) == ["worker0 → worker1", "worker0 → worker2"]
    assert texts(table, 2) == ["cpu→cpu", "empty"]


def test_captures_pipes_and_problems() -> None:
    session = workload_trace("basic_chain").session
    assert len(made.captures_table(session.captures).rows) == 1
    pipes = made.pipes_table(session)
    assert texts(pipes, 1) == [
        f"{client} → {server}" for client, server in zip(session.clients, session.servers, strict=True)
    ]
    assert {row.style for row in pipes.rows} == {""}
    hidden = made.pipes_table(workload_trace("transport_matrix_default").session)
    assert {row.style for row in hidden.rows} == {"odd"}
    assert made.problems_table(session.problems).rows == ()


def test_what_is_too_much_is_counted() -> None:
    latency = workload_trace("ps_race").latency
    many = latency.stragglers[:1] * (made.MAX_STRAGGLERS + 7)
    table = made.stragglers_table(many)
    assert (len(table.rows), table.left_out) == (made.MAX_STRAGGLERS, 7)
    story = workload_trace("rref_relay").rrefs[0]
    story = replace(story, fetches=tuple(range(MAX_LINKS + 3)))
    cell = made.rrefs_table((story,), {}).rows[0].cells[6]
    assert (len(cell.links), cell.more) == (MAX_LINKS, 3)
