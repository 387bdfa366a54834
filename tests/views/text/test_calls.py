"""The table of calls on terminals of every width and in files."""

from __future__ import annotations

import re
import tempfile

import pytest
from rich.cells import cell_len

from rpcinspect.run.causes import Causes, Doubt
from rpcinspect.session.model import CallFailure
from rpcinspect.views.jsonl.calls import CallRow, CallRows
from rpcinspect.views.text.calls import nested, reason, show_calls
from tests.cli.runner import visible
from tests.views.graphs import HOSTILE
from tests.views.opened import file_console, opened, terminal_console


def table(name: str, width: int | None, *, show_all: bool = False) -> list[str]:
    console, out = file_console() if width is None else terminal_console(width)
    with opened(name) as capture, tempfile.TemporaryFile() as file:
        view = CallRows(file)
        view.feed(capture.records)
        show_calls(view.of(capture.session), capture.session, console, show_all=show_all)
    return out.getvalue().splitlines()


def row(**fields: object) -> CallRow:
    some = {
        "request": 7,
        "answer": None,
        "job": 0,
        "caller": "a",
        "callee": "b",
        "name": None,
        "context_id": None,
        "housekeeping": False,
        "time_ns": 0,
        "end_time_ns": None,
        "latency_ns": None,
        "parents": (),
        "parent_certain": True,
        "doubt": None,
        "failure": None,
        "asked": {"type": "PYTHON_CALL", "function": "app.f", "args": [], "kwargs": {}, "short": "(1)"},
        "answered": {},
    }
    return CallRow(**(some | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [30, 60, 100, 160])
@pytest.mark.parametrize("name", ["basic_chain.pcap", "bwd_boom.pcap.gz"])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in table(name, width, show_all=True)]
    assert max(map(cell_len, plain)) <= width
    calls = sum(line.lstrip()[:1].isdigit() for line in plain)
    assert calls >= 12


def test_a_file_gets_whole_lines() -> None:
    lines = table("basic_chain.pcap", None)
    assert lines[0].split() == [
        "#",
        "answer",
        "seconds",
        "caller",
        "→",
        "callee",
        "took",
        "call",
        "and",
        "result",
    ]
    assert lines[1].split(maxsplit=8)[:8] == ["6", "7", "0.028726", "worker0", "→", "worker1", "2.18", "ms"]
    assert lines[1].endswith("  basic_chain.scale(tensor[3,4], tensor[4], gain=2.0)  = tensor[3,4]")
    assert lines[-2:] == ["6 calls", "12 housekeeping messages hidden; --all shows them"]


def test_errors_are_red_and_housekeeping_dim() -> None:
    lines = table("bwd_boom.pcap.gz", 200, show_all=True)
    assert sum(line.startswith("\x1b[31m") for line in lines) == 2
    assert sum(line.startswith("\x1b[2m") for line in lines) == 12


def test_what_a_call_was_sent_for() -> None:
    assert reason(row()) == ""
    assert reason(row(parents=(3,))) == "for #3"
    assert reason(row(parents=(3,)), placed=True) == ""
    assert reason(row(doubt=Doubt(7, "a", (3, 5), False))) == "for #3 or #5"
    assert reason(row(doubt=Doubt(7, "a", (3,), True))) == "for #3, or for none"
    cut = Doubt(7, "a", (3,), True, unseen=True)
    assert reason(row(doubt=cut)) == "for #3, or for one that was not captured or none"
    assert reason(row(doubt=Doubt(7, "a", (), True))) == "maybe for a request that was not captured"
    many = Doubt(7, "a", tuple(range(9)), False)
    assert reason(row(doubt=many)) == "for #0, #1, #2, #3 and 5 more"


def test_words_for_calls_and_outcomes() -> None:
    assert (row().text, row().outcome) == ("app.f(1)", "")
    gone = CallFailure(caller="a", callee="b", pipe=0, type=None, id=1, time_ns=5, reason="timeout", text="")
    assert row(failure=gone).outcome == "gave up: timeout"
    assert row(answer=8, answered={"result": "2", "error": None, "short": "2"}).outcome == "= 2"
    assert row(answer=8, answered={"result": None, "error": None, "short": ""}).outcome == ""
    asked = {"type": "PYTHON_CALL", "function": HOSTILE, "args": [], "kwargs": {}, "short": "()"}
    assert visible(row(asked=asked).text)
    gradients = {"type": "BACKWARD_AUTOGRAD_REQ", "function": None, "short": "tensor[3]"}
    assert row(asked=gradients, context_id=1).text == "gradients of context 0:1: tensor[3]"


def test_calls_follow_the_one_that_they_were_sent_for() -> None:
    with opened("basic_chain.pcap") as capture:
        session = capture.session
        rows = session.order.tolist()
        causes = Causes({n: n - 1 for n in range(1, len(rows))}, {})
        assert [*nested(rows, session, causes)] == [(row, depth) for depth, row in enumerate(rows)]
        alone = [*nested(rows[5:6], session, causes)]
        every = [*nested(rows, session, Causes({9: 3, 7: 3, 8: 7}, {}))]
    assert alone == [(rows[5], 0)]
    assert [(rows.index(row), depth) for row, depth in every][3:8] == [(3, 0), (7, 1), (8, 2), (9, 1), (4, 0)]
