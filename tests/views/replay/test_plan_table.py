"""Plans for people."""

from __future__ import annotations

from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.planning.model import Plan
from rpcinspect.replayer.planning.plan import PlanOptions
from rpcinspect.views.replay.plan_table import show_plan
from tests.cli.runner import visible
from tests.replayer.talks import Workers
from tests.views.opened import file_console, terminal_console
from tests.views.replay.test_plan_json import conversation


def shown(plan: Plan) -> list[str]:
    console, out = file_console()
    show_plan(plan, console)
    return out.getvalue().splitlines()


def test_a_plan() -> None:
    lines = shown(conversation().plan(PlanOptions(roles=("w0",), trust=True)))
    begin = lines.index("") + 1
    assert lines[0] == "what the live workers would import and call:"
    assert lines[begin - 2].startswith("Nothing is refused")
    assert lines[begin : begin + 5] == [
        "session 1 of 1: w0 played, w1, w2 live (as the command line names them)",
        "     0  send    w0 → w1  PYTHON_CALL  answer #5",
        "     1  answer  w1 → w0  PYTHON_CALL  answer #4",
        "     2  skip    w1 → w2  PYTHON_CALL  nested-in-answer: w1 sends it itself while it serves #0",
        "     6  skip    w2 → w2  PYTHON_CALL  self-call: w2's own program calls itself",
    ]
    assert lines.count("1 to send, 1 answer to give") == 1
    assert any(line.startswith("     1  nested-in-answer: it is sent while") for line in lines)


def test_skipped_requests_of_live_workers_point_from_them() -> None:
    lines = shown(conversation().plan(PlanOptions(roles=("w2",), trust=True)))
    assert lines[3].startswith("     2  skip    w1 → w2  PYTHON_CALL  driver-not-live")


def test_refusals() -> None:
    lines = shown(conversation().plan(PlanOptions(roles=("w0",)), ExecutionPolicy()))
    assert "  REFUSED  app.f  you haven't allowed it (#0)" in lines
    end = lines.index("")  # before the steps
    assert lines[end - 2] == "A replay would be refused: 1 name that you haven't allowed."
    assert lines[end - 1].startswith("To allow this, add: --allow app:f ")
    trusting = shown(conversation().plan(PlanOptions(roles=("w0",), trust=True), ExecutionPolicy()))
    assert "REFUSED" not in "".join(trusting)
    assert trusting[trusting.index("") - 1].startswith("Nothing is refused")


def test_doubts_and_notes() -> None:
    workers = Workers(3)
    workers._ids = 3
    workers.call(1, 2, 1, 5, "app.own")
    workers.call(0, 1, 10, 60, "app.a")
    workers.call(1, 2, 20, 50, "app.b")
    told = "\n".join(shown(workers.plan()))
    assert "ambiguous: w1 sends #3 while it serves #2" in told
    assert "note: The capture begins after the job" in told
    assert "in 2 sessions" in told


def test_nothing_to_replay() -> None:
    assert shown(Workers(2).plan()) == [
        "Nothing to replay: no worker's own program made a call.",
    ]


def test_captured_text_reaches_no_terminal_as_it_is() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 20, "app.\x1b[2Jbad\u202e")
    console, out = file_console()
    show_plan(workers.plan(None, ExecutionPolicy()), console)
    assert visible(out.getvalue())
    console, out = terminal_console(80)
    show_plan(workers.plan(None, ExecutionPolicy()), console)
    assert "[2Jbad" in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()
