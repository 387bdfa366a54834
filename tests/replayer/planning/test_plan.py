"""Whole plans: of every capture that is at hand, and against what the workloads' scripts do."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.replayer.planning.gate import Allowance, ExecutionPolicy
from rpcinspect.replayer.planning.model import REASONS, Plan, PlannedSession, Step
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.planning.sessions import PlanError
from rpcinspect.replayer.planning.sources import Sources
from rpcinspect.rpc.command import PythonCall
from rpcinspect.run.exchanges import Exchange, Exchanges
from rpcinspect.run.run import RunModel, open_run
from tests.places import others, recorded, recordings
from tests.replayer.talks import Workers, udf
from tests.session.records import Talk, pipe
from tests.thorough import examples, representative
from tests.truth import CAPTURES, workload

BUNDLED = sorted(path for path in CAPTURES.iterdir() if path.name.endswith((".pcap", ".pcap.gz")))


@lru_cache(maxsize=4)
def planned(
    path: Path, options: PlanOptions | None = None, gate: ExecutionPolicy | None = None
) -> tuple[Plan, Exchanges]:
    with open_run(str(path)) as opened:
        made = plan(opened, options or PlanOptions(trust=gate is None), gate)
        return made, opened.exchanges


# --- properties of every plan -------------------------------------------------------------------------------


def check_plan(made: Plan, exchanges: Exchanges) -> None:
    """What holds of any plan, whatever was captured."""
    for session in made.sessions:
        check_session(session, exchanges)
    assert made.count("send") == sum(step.action == "send" for s in made.sessions for step in s.steps)


def check_session(session: PlannedSession, exchanges: Exchanges) -> None:
    calls = {call.index: call for call in exchanges.calls if call.job == session.cast.job}
    orphans = [orphan.index for orphan in exchanges.orphans if orphan.job == session.cast.job]
    assert Counter(step.message for step in session.steps) == Counter([*calls, *orphans])
    for step in session.steps:
        check_step(step, session, calls)
    check_order(session, calls)


def check_step(step: Step, session: PlannedSession, calls: dict[int, Exchange]) -> None:
    roles, live = session.cast.roles, session.cast.live
    if step.action == "skip":
        assert step.code in REASONS
        assert step.text
        return
    call = calls[step.message]
    assert step.code is None
    assert step.answer == call.answer
    assert not call.control
    if step.action == "send":
        assert (step.role, step.to) == (call.caller, call.callee)
        assert step.role in roles or step.role == step.to
        assert step.to in live
    else:
        assert (step.role, step.to) == (call.callee, call.caller)
        assert step.role in roles
        assert step.to in live


def check_order(session: PlannedSession, calls: dict[int, Exchange]) -> None:
    """Whatever had finished before a call began comes before it, and is waited for."""
    sends = [step for step in session.steps if step.action == "send"]
    place = {step.message: position for position, step in enumerate(session.steps)}
    finished = sorted(
        (end, step.message) for step in sends if (end := calls[step.message].end_ns) is not None
    )
    answers = {calls[step.message].answer: step.message for step in sends}
    come = [answers.get(message, message) for message in session.arrivals]
    latest, at = -1, 0
    for step in sorted(sends, key=lambda step: calls[step.message].begin_ns):
        begin = calls[step.message].begin_ns
        while at < len(finished) and finished[at][0] < begin:
            latest = max(latest, place[finished[at][1]])
            at += 1
        assert latest < place[step.message]
        arrived = come[: step.after]
        assert {message for end, message in finished[:at]} <= set(arrived)
    last: dict[str, int] = {}
    for step in sends:  # a worker sends in the order in which it sent
        assert last.get(step.role, -1) < step.message
        last[step.role] = step.message


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.name)
def test_every_bundled_capture_has_a_sound_plan(path: Path) -> None:
    check_plan(*planned(path))


@pytest.mark.parametrize("path", representative(others()), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_other_capture_has_a_sound_plan(path: Path) -> None:
    check_plan(*planned(path))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 3),
            st.integers(0, 80),
            st.integers(2, 50),
            st.booleans(),
            st.sampled_from(["app.f", "app.g", "aten::add"]),
            st.sampled_from([None, (0, 1), (1 << 48, 2)]),
            st.integers(0, 1),
        ),
        max_size=12,
    ),
    st.sampled_from([(), ("w0",), ("w1", "w2")]),
)
def test_made_up_conversations_have_sound_plans(drawn: list[tuple], roles: tuple[str, ...]) -> None:  # type: ignore[type-arg]
    workers = Workers(4)
    for number, (caller, callee, begin, length, answered, function, context, grad) in enumerate(drawn):
        end = begin + length if answered else None
        where = None if context is None else (context[0], context[1] + number)
        workers.call(caller, callee, begin, end, function, context=where, grads=(grad, grad))
    run = workers.run()
    names = {name for call in workers.calls() for name in (call.caller, call.callee)}
    if not set(roles) <= names or set(roles) >= names:
        return
    made = plan(run, PlanOptions(roles=roles, trust=True))
    check_plan(made, run.exchanges)


# --- what the scripts do ------------------------------------------------------------------------------------

SINGLE = [
    "basic_chain",
    "bwd_boom",
    "ctx_crowd",
    "devmap_cpu",
    "dtype_zoo",
    "param_detach",
    "profiled_legacy",
    "rref_relay",
    "views_alias",
    "transport_matrix_uv_basic",
    "transport_matrix_uv_mpt",
]
"""Workloads in which worker0 drives and every byte was captured."""


def path_of(name: str) -> Path:
    return next(path for path in BUNDLED if path.name.partition(".")[0] == name)


@pytest.mark.parametrize("name", SINGLE)
def test_all_that_the_driver_called_is_sent(name: str) -> None:
    """And nothing but calls from inside functions, by the workers' own word, is left to live workers."""
    made, _ = planned(path_of(name))
    (session,) = made.sessions
    assert session.cast.roles == ("worker0",)
    steps = {step.message: step for step in session.steps}
    for call in workload(name).calls():
        step = steps[call.request["index"]]
        if call.event["worker"] == "worker0":
            assert (step.action, step.role, step.to) == ("send", "worker0", call.event["to"])
        else:
            assert call.event["to"] != "worker0"  # no script calls back
            assert (step.action, step.code) == ("skip", "nested-in-answer")
    assert set(session.skips()) <= {"control", "nested-in-answer"}
    assert not session.overlaps


@pytest.mark.parametrize(
    ("name", "sends", "answers"),
    [
        # forward and backward requests, cleanups; gradients and cleanups that come back
        ("basic_chain", 2 + 2 + 1, 2 + 1),
        ("param_detach", 2 + 2 + 1, 1 + 1),
        ("bwd_boom", 1 + 1 + 1, 1),
        ("devmap_cpu", 6 + 4 + 2, 4 + 2),
    ],
)
def test_counts_that_follow_from_the_scripts(name: str, sends: int, answers: int) -> None:
    made, _ = planned(path_of(name))
    assert (made.count("send"), made.count("answer")) == (sends, answers)


def test_the_relay_is_left_to_the_live_workers_and_its_answers_are_given() -> None:
    made, exchanges = planned(path_of("rref_relay"))
    calls = exchanges.by_index()
    (session,) = made.sessions
    answered = Counter(calls[step.message].type for step in session.steps if step.action == "answer")
    assert answered["SCRIPT_RREF_FETCH_CALL"] == 2  # worker2 and worker1 fetch the driver's own RRef
    assert answered["BACKWARD_AUTOGRAD_REQ"] == 1
    nested = Counter(calls[step.message].type for step in session.steps if step.code == "nested-in-answer")
    assert nested["PYTHON_CALL"] == 2  # both from hand_on
    assert nested["RREF_FORK_REQUEST"] == 3  # the fourth goes to the driver, which owns that RRef
    assert answered["RREF_FORK_REQUEST"] == 1


@pytest.mark.parametrize("name", ["ps_race", "ps_race_lock"])
def test_a_parameter_server(name: str) -> None:
    made, exchanges = planned(path_of(name))
    (session,) = made.sessions
    assert set(session.skips()) == {"control"}
    calls = exchanges.by_index()
    turns = [
        calls[step.message] for step in session.steps if calls[step.message].function == "ps_race.take_turn"
    ]
    assert bool(turns) == (name == "ps_race_lock")
    told = [event["trainer"] for event in workload(name).of("order", what="turn")]
    assert [call.caller for call in turns] == told  # who asked first did not always get the lock first


def test_tensors_that_are_not_on_the_wire() -> None:
    made, _ = planned(path_of("transport_matrix_uv_only"))
    (session,) = made.sessions
    assert session.skips() == {"control": 4, "missing-bytes": 7}
    assert planned(path_of("transport_matrix_default"))[0].sessions == ()


def test_nested_calls_of_the_chain_and_of_the_circle() -> None:
    """nested.py: worker1 and worker2 call on; `cyc` passes through the driver, which is played."""
    made, exchanges = planned(recorded("torch/nested.pcap"))
    calls = exchanges.by_index()
    (session,) = made.sessions
    by_function: dict[str, list[str]] = {}
    for step in session.steps:
        call = calls[step.message]
        if call.function is not None and not call.control:
            by_function.setdefault(call.function, []).append(step.action if step.code is None else step.code)
    assert by_function["__mp_main__.mid"] == ["send", "send"]
    assert by_function["__mp_main__.leaf"] == ["nested-in-answer"] * 2
    assert by_function["__mp_main__.amid"] == ["send"]
    assert by_function["aten::add.Scalar"] == ["nested-in-answer"]
    assert sorted(by_function["__mp_main__.cyc"]) == ["answer", *["nested-in-answer"] * 4, "send"]


@pytest.mark.parametrize(
    ("name", "sends"),
    [
        ("kitchen", 38),
        ("sparse", 5),
        ("dyn", 1),
        ("script", 10),
        ("agctx", 7),
        ("chan_mpt", 6),
        ("devmap", 4),
    ],
)
def test_other_scripts(name: str, sends: int) -> None:
    made, _ = planned(recorded(f"torch/{name}.pcap"))
    assert made.count("send") == sends
    assert set(made.skips()) == {"control"}
    assert made.ambiguities == ()


def test_torchs_own_tests_replay_nearly_every_gradient() -> None:
    """Of the gradients with a played and a live end in some session, few are skipped."""
    both = done = 0
    for path in recordings("torch-suite"):
        made, exchanges = planned(path)
        check_plan(made, exchanges)
        calls = exchanges.by_index()
        touched: set[int] = set()
        played: set[int] = set()
        for session in made.sessions:
            roles = set(session.cast.roles)
            for step in session.steps:
                call = calls.get(step.message)
                if call is None or call.type != "BACKWARD_AUTOGRAD_REQ" or call.caller == call.callee:
                    continue
                if (call.caller in roles) != (call.callee in roles):
                    touched.add(call.index)
                if step.action != "skip":
                    played.add(call.index)
        both += len(touched)
        done += len(played)
        assert played <= touched
    assert both > 1000
    assert done / both > 0.95


# --- options ------------------------------------------------------------------------------------------------


def test_named_roles_decide_what_is_ambiguous() -> None:
    workers = Workers(3)
    workers.call(1, 2, 1, 5, "app.own")
    workers.call(0, 1, 10, 60, "app.a")
    workers.call(1, 2, 20, 50, "app.b")
    both = workers.plan()
    assert [session.cast.roles for session in both.sessions] == [("w0",), ("w1",)]
    assert len(both.ambiguities) == 1
    named = workers.plan(PlanOptions(roles=("w1",), trust=True))
    assert [step.action for step in named.sessions[0].steps] == ["send", "skip", "send"]


def test_mistakes() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 20)
    with pytest.raises(PlanError, match="no worker is called nobody"):
        workers.plan(PlanOptions(roles=("nobody",)))
    with pytest.raises(PlanError, match="no autograd context 5"):
        workers.plan(PlanOptions(context=5))


def test_a_context_alone_leaves_the_rest_out() -> None:
    made, exchanges = planned(path_of("ctx_crowd"), PlanOptions(context=2, trust=True))
    calls = exchanges.by_index()
    (session,) = made.sessions
    assert {calls[step.message].context for step in session.steps} == {2}
    assert made.left_out + len(session.steps) == sum(not call.control for call in exchanges.calls)


def test_the_gate_skips_and_lists(tmp_path: Path) -> None:
    path = path_of("bwd_boom")
    made, _ = planned(path, PlanOptions(), ExecutionPolicy())
    assert [use.name for use in made.refused] == ["bwd_boom.relay"]
    assert made.refused[0].messages == (8,)
    assert made.count("send") == 0
    assert set(made.skips()) == {"control", "not-allowed"}
    for gate in (
        ExecutionPolicy([Allowance("bwd_boom", "relay")]),
        ExecutionPolicy((), Sources(None, [CAPTURES])),
    ):
        allowed, _ = planned(path, PlanOptions(), gate)
        assert allowed.refused == ()
        assert allowed.count("send") == 3
    trusted, _ = planned(path, PlanOptions(trust=True), ExecutionPolicy())
    assert (trusted.refused, trusted.count("send")) == ((), 3)
    assert [use.allowed for use in trusted.globals if use.name == "bwd_boom.relay"] == [False]


def test_live_messages_to_expect() -> None:
    made, _ = planned(path_of("profiled_legacy"))
    expected = Counter(step.envelopes for step in made.sessions[0].steps if step.action == "send")
    both = ("RUN_WITH_PROFILING_RESP", "FORWARD_AUTOGRAD_RESP")
    assert expected[both] == 2
    assert expected["RUN_WITH_PROFILING_RESP",] == 4


def test_a_capture_that_begins_late_is_told() -> None:
    workers = Workers(2)
    workers._ids = 17
    workers.call(0, 1, 10, 20)
    (note,) = workers.plan().notes
    assert "w0 (17 requests)" in note
    assert planned(path_of("basic_chain"))[0].notes == ()


def test_workers_without_names_are_told() -> None:
    talk = Talk(pipe(name="w0"))
    talk.say(PythonCall(udf("app.f"), False))
    session = talk.finish()
    made = plan(RunModel(session, talk.records), PlanOptions(trust=True))
    assert any("names the workers at 10.0.0.2:5000" in note for note in made.notes)
    check_plan(made, RunModel(session, talk.records).exchanges)
    assert made.skips() == {"unsupported": 1}
