"""What came of a replay, for people."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from msgspec.structs import replace

from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.planning.model import StandIn
from rpcinspect.replayer.playing.outcome import (
    FoundSeed,
    InboundOutcome,
    ReplayOutcome,
    SeedSearch,
    TrafficRecording,
)
from rpcinspect.replayer.playing.report import report
from rpcinspect.replayer.workers.live_group import LeafGradient
from rpcinspect.replayer.workers.process_exit import EarlyExit, Exit
from rpcinspect.views.replay.replay_table import gradient_phrase, show_replay
from tests.cli.runner import visible
from tests.replayer.outcomes import ONE_ULP, TOLERATED, not_started, outcome_of, planned, refused, session_of
from tests.replayer.talks import Workers
from tests.views.opened import file_console, terminal_console

CHAIN = "basic_chain.pcap"
FULL_SCREEN = 24
SEGFAULT = EarlyExit(
    who="the live worker worker1",
    worker="worker1",
    exit=Exit(-11),
    output="line\n" * 100 + "\x1b[31mthe end\n",
)


def shown(outcome: ReplayOutcome, *, every_step: bool = False, error: str | None = None) -> list[str]:
    console, out = file_console()
    show_replay(outcome, report(outcome), console, every_step=every_step, error=error)
    assert visible(out.getvalue())
    return out.getvalue().splitlines()


def test_everything_identical() -> None:
    assert shown(outcome_of(planned(CHAIN))) == [
        "session 1 of 1: worker0 played, worker1 live",
        "           expected  identical",
        "gradients         4          4",
        "answers           5          5",
        "requests          1          1",
        "of the gradients 2 of 2 sent were accepted, 2 of 2 returned match",
        "skipped: 4 control: the agents' own call",
        "note: the captured group had a world_size, the live one has none; this changes no result",
        "the messages took 250 ms, 1.25 s in the capture; the whole replay 3.5 s",
        "identical: 4 of 4 gradients, 5 of 5 answers; 4 skipped (4 control)",
    ]


@pytest.mark.parametrize("name", ["ctx_crowd.pcap.gz", "ps_race_lock.pcap.gz", "rref_relay.pcap.gz"])
def test_a_screen_is_enough_where_everything_is_identical(name: str) -> None:
    assert len(shown(outcome_of(planned(name)))) < FULL_SCREEN


def test_many_sessions_are_a_screen_too() -> None:
    workers = Workers(30)
    for caller in range(1, 30):
        workers.call(caller, 0, 10 * caller, 10 * caller + 5)
    plan = workers.plan()
    assert len(plan.sessions) == 29
    lines = shown(outcome_of(plan))
    assert len(lines) < FULL_SCREEN
    assert "and 17 more sessions, everything as captured" in lines
    bad = [session_of(session) for session in plan.sessions]
    (sent,) = (step for step in plan.sessions[-1].steps if step.action == "send")
    bad[-1] = session_of(plan.sessions[-1], {sent.message: {"result": "different"}})
    lines = shown(outcome_of(plan, bad))
    assert any(line.startswith("session 29 of 29") for line in lines)
    assert any(line.endswith("(session 29)") for line in lines)


def test_differences_are_told_gradients_first() -> None:
    plan = planned(CHAIN)
    steps = {
        6: {"result": "different", "differences": (ONE_ULP, ONE_ULP)},
        11: {"result": "different", "differences": (ONE_ULP,), "text": "random numbers are drawn"},
        15: {"result": "tolerance", "differences": (TOLERATED,)},
        19: {"result": "unanswered"},
    }
    lines = shown(outcome_of(plan, [session_of(plan.sessions[0], steps)]))
    element = (
        "tensors[0].elements[5]: captured 0.5, live 0.5000000596046448 (1 ulp; 1 of 12 elements differs)"
    )
    assert lines[1:18] == [
        "           expected  identical  within tolerance  different  missing",
        "gradients         4          2                 1          1        0",
        "answers           5          4                 0          1        0",
        "requests          1          0                 0          0        1",
        "of the gradients 2 of 2 sent were accepted, 1 of 2 returned match",
        "gradients that are not identical:",
        "  #11  worker1 → worker0  BACKWARD_AUTOGRAD_REQ  different",
        f"      {element}",
        "      random numbers are drawn",
        "  #15  worker1 → worker0  BACKWARD_AUTOGRAD_REQ  within the tolerance",
        f"      {element}",
        "answers that are not identical:",
        "  #6  worker0 → worker1  FORWARD_AUTOGRAD_REQ  differs from #7",
        f"      {element}; 1 more difference",
        "requests that are not identical:",
        "  #19  worker1 → worker0  CLEANUP_AUTOGRAD_CONTEXT_REQ  nothing came",
        "skipped: 4 control: the agents' own call",
    ]
    assert lines[-1] == (
        "different: 1 of 4 gradients, 1 of 5 answers and 1 of 1 request don't match; 4 skipped (4 control)"
    )


def test_within_the_tolerance() -> None:
    plan = planned(CHAIN)
    session = session_of(plan.sessions[0], {11: {"result": "tolerance", "differences": (TOLERATED,)}})
    assert shown(outcome_of(plan, [session]))[-1].startswith(
        "within the tolerance: 3 of 4 gradients (and 1 within the tolerance), 5 of 5 answers"
    )


def test_unexpected_requests() -> None:
    plan = planned(CHAIN)
    came = InboundOutcome(
        captured=None, type="PYTHON_CALL", sender="worker1", role="worker0", result="different", text="app.f"
    )
    known = replace(came, captured=11, type="BACKWARD_AUTOGRAD_REQ")
    lines = shown(outcome_of(plan, [session_of(plan.sessions[0], inbound=[came, known])]))
    assert "not expected: 1 request of live workers" in lines
    at = lines.index("  worker1 → worker0  PYTHON_CALL  app.f")
    assert not lines[at + 1].startswith("      ")


def test_many_failures_for_one_reason_are_a_few_lines() -> None:
    plan = planned("dtype_zoo.pcap.gz")
    session = plan.sessions[0]
    failed = {step.message: {"result": "failed", "text": "worker1 has ended"} for step in session.steps}
    broken = session_of(
        session,
        {message: what for message, what in failed.items() if message > 20},
        failure=f"{SEGFAULT.text}\nSegmentation fault",
        ended=(SEGFAULT, replace(SEGFAULT, who="the live worker worker2", worker="worker2", output="")),
    )
    lines = shown(outcome_of(plan, [broken]))
    assert sum(line.endswith("PYTHON_CALL  failed") for line in lines) == 3
    assert lines.count("      worker1 has ended") == 1
    assert any(line.startswith("  and ") and "--all lists every step" in line for line in lines)
    at = lines.index("session 1 ended early: the live worker worker1 was ended by SIGSEGV")
    assert lines[at + 1 : at + 3] == ["  Segmentation fault", "the last output of the live worker worker1:"]
    at = lines.index("  \\x1b[31mthe end")
    assert lines[at + 1 : at + 3] == [
        "the live worker worker2 was ended by SIGSEGV",
        "the live worker worker2 had written nothing",
    ]
    assert len(lines) < 2 * FULL_SCREEN
    assert lines[-1].startswith("failed: ")


def test_refused() -> None:
    lines = shown(not_started(refused(CHAIN)))
    assert lines[:2] == [
        "Refused. The replay would call these names, which you haven't allowed:",
        "  REFUSED  basic_chain.scale  you haven't allowed it (#6)",
    ]
    assert lines[-2].startswith("To allow this, add: --allow basic_chain:scale ")
    assert lines[-1] == "refused: nothing was replayed"


def test_refused_functions_of_the_jobs_script() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 20, "__mp_main__.step")
    lines = shown(not_started(workers.plan(None, ExecutionPolicy())))
    assert lines[-2] == "To allow this, add: --main SCRIPT.py"


def test_nothing_to_replay() -> None:
    lines = shown(not_started(planned("transport_matrix_uv_only.pcap.gz")))
    assert "skipped: 7 missing-bytes: bytes of the message were not captured" in lines
    assert lines[-1] == (
        "nothing to replay: 0 of 2 gradients, no answers; 11 skipped (7 missing-bytes, 4 control)"
    )


def test_what_could_not_start() -> None:
    lines = shown(not_started(planned(CHAIN)), error="import: no module named app:\nTraceback\n  last line")
    assert lines[:3] == ["import: no module named app:", "  Traceback", "    last line"]
    assert lines[-1] == "failed: nothing was replayed"


def test_runs_and_interruption() -> None:
    plan = planned(CHAIN)
    (session,) = plan.sessions
    runs = [[session_of(session)], [session_of(session, {11: {"result": "different"}})]]
    lines = shown(outcome_of(plan, *runs))
    assert lines[-1].startswith("different (1 of 2 runs as captured): 1 of 4 gradients don't match")
    assert any("500 ms in 2 runs" in line for line in lines)
    assert shown(outcome_of(plan, interrupted=True))[-1].startswith("interrupted; identical: ")
    cut = {7: {"result": "failed"}, 11: {"result": "failed"}}
    some = shown(outcome_of(plan, [session_of(session, cut)], interrupted=True))[-1]
    assert some.startswith("interrupted; identical until then: 3 of 4 gradients, ")
    cut[10] = {"result": "different"}
    some = shown(outcome_of(plan, [session_of(session, cut)], interrupted=True))[-1]
    assert some.startswith("interrupted; failed: 1 of 4 gradients and 1 of 5 answers don't match")
    never = replace(not_started(plan), interrupted=True)
    assert shown(never)[-1].startswith("interrupted; nothing was compared")


def test_a_recording() -> None:
    made = TrafficRecording(path=Path("again.pcap"), failure=None)
    lines = shown(outcome_of(planned(CHAIN), recording=made))
    assert any(
        line.startswith("recorded in again.pcap. The recording holds the connections") for line in lines
    )
    broken = replace(made, failure="no space left")
    assert "the recording ends early: no space left" in shown(outcome_of(planned(CHAIN), recording=broken))


SEARCH = SeedSearch(
    session=0,
    tries=range(5, 9),
    tried=3,
    wall_s=2.5,
    found=(FoundSeed(worker="worker1", seed=7, explains=(6, 8)),),
    missing={"worker\x1b2": 9},
    out_of_time=True,
    failure=None,
)


def test_seeds_that_were_looked_for() -> None:
    lines = shown(outcome_of(planned(CHAIN), searches=(SEARCH,)))
    assert [line for line in lines if line.startswith("seed: ")] == [
        "seed: worker1 had 7: with it #6, #8 as captured, without it not; 3 seeds tried in 2.5 s",
        "seed: none from 5 to 8 explains #9 of worker\\x1b2; 3 seeds tried in 2.5 s, out of time",
    ]
    nothing = replace(SEARCH, found=(), missing={}, tried=0, out_of_time=False)
    assert "seed: nothing to search for: everything matches without one" in shown(
        outcome_of(planned(CHAIN), searches=(nothing,))
    )
    ended = replace(nothing, failure="it ended")
    assert "seed: not searched, since the session ends early" in shown(
        outcome_of(planned(CHAIN), searches=(ended,))
    )


def test_stand_ins_are_named() -> None:
    made = planned(CHAIN)
    one = StandIn(rref=(0, 3), owner="worker1", message=12, request=11, forks=(), changed=(9,))
    given = replace(made, sessions=(replace(made.sessions[0], stand_ins=(one,)),))
    line = "worker1 gets a stand-in for RRef 0:3, from #12, which may have been changed by #9 before"
    assert line in shown(outcome_of(given))


def test_every_step() -> None:
    plan = planned(CHAIN)
    changed = {11: {"result": "different", "differences": (ONE_ULP,)}}
    lines = shown(outcome_of(plan, [session_of(plan.sessions[0], changed)]), every_step=True)
    assert lines[0] == "session 1 of 1: worker0 played, worker1 live"
    assert len([line for line in lines[1:13] if line[:6].strip().isdigit()]) == 12
    (sent,) = [line for line in lines if line.startswith("     8  send")]
    assert sent.endswith("identical to #9, 1.5 ms")


def test_notes() -> None:
    workers = Workers(3)
    workers._ids = 3
    workers.call(1, 2, 1, 5, "app.own")
    workers.call(0, 1, 10, 60, "app.a")
    workers.call(1, 2, 20, 50, "app.b")
    lines = shown(outcome_of(workers.plan()))
    assert "note: the cause of 1 request is not certain; --plan names it" in lines
    assert any(line.startswith("note: The capture begins after the job") for line in lines)


def test_what_live_workers_hold() -> None:
    plan = planned(CHAIN)
    held = LeafGradient(
        dtype="float32", shape=(8,), layout="strided", parameter=True, data=struct.pack("<8f", *range(8))
    )
    session = session_of(plan.sessions[0], gradients={"worker1": {1 << 48: (held,)}})
    lines = shown(outcome_of(plan, [session]))
    at = lines.index("worker1 has 1 gradient in context 1:0")
    assert lines[at + 1] == "  [8] float32 parameter: 0.0 1.0 2.0 3.0 4.0 5.0 …"
    named = gradient_phrase(replace(held, name="Head.fc.bias"))
    assert named == "Head.fc.bias [8] float32: 0.0 1.0 2.0 3.0 4.0 5.0 …"
    assert gradient_phrase(replace(held, data=None)).endswith(": too many bytes to show")
    assert gradient_phrase(replace(held, layout="sparse_coo")) == (
        "[8] float32 sparse_coo, shown dense parameter: 0.0 1.0 2.0 3.0 4.0 5.0 …"
    )
    none = session_of(plan.sessions[0], gradients={"worker1": {}})
    assert "live workers got no gradients" in shown(outcome_of(plan, [none]))


def test_a_narrow_terminal_breaks_between_words() -> None:
    console, out = terminal_console(40)
    outcome = outcome_of(planned(CHAIN))
    show_replay(outcome, report(outcome), console)
    assert "\x1b[" in out.getvalue()
    lines = out.getvalue().splitlines()
    assert len(lines) > 7
