"""Places to stop at, in a capture of three workers of which two call on."""

from __future__ import annotations

from functools import cache

import pytest

from rpcinspect.replayer.planning.model import Plan
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.playing.stops import StopError, Stops, is_between, is_named, runs_python
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import open_run
from tests.places import recorded

NESTED = str(recorded("reports/replay/nested.pcap"))
"""client calls serve of mid: #26, #30, #34; mid calls lookup of store: #27 for the first."""


@cache
def planned(*live: str) -> tuple[Plan, dict[int, Exchange]]:
    with open_run(NESTED) as run:
        return plan(run, PlanOptions(live=live, trust=True)), dict(run.calls)


def test_each_kind_of_word() -> None:
    _, calls = planned("mid")
    found = Stops.read(["26", "error", "nonfinite", "lookup"], calls)
    assert (found.messages, found.functions) == ({26}, ("lookup",))
    assert found.errors
    assert found.nonfinite
    assert found.names(["__mp_main__.lookup"])
    assert not found.names(["__mp_main__.look"])
    assert Stops.read([], calls) == Stops()


def test_the_number_of_an_answer_means_its_request() -> None:
    _, calls = planned("mid")
    answer = calls[26].answer
    assert answer is not None
    assert Stops.read([str(answer)], calls).messages == {26}


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("1000", "--stop-at 1000: the capture has no message #1000 between workers"),
        (
            "errors",
            "--stop-at errors: not a message, error, nonfinite or a function that the capture calls (",
        ),
        ("-1", "--stop-at -1: not a message"),
        ("_gather_to_leader", "--stop-at _gather_to_leader: not a message"),  # the agents' own
    ],
)
def test_what_is_no_place(word: str, told: str) -> None:
    with pytest.raises(StopError) as raised:
        Stops.read([word], planned("mid")[1])
    assert str(raised.value).startswith(told)


def test_messages_that_no_live_worker_gets() -> None:
    made, calls = planned("mid")
    Stops(messages=frozenset({26})).check(made.sessions, calls)
    with pytest.raises(StopError, match=r"#27 goes to store, which is played; mid sends it for #26$"):
        Stops(messages=frozenset({26, 27})).check(made.sessions, calls)
    made, calls = planned("mid", "store")
    Stops(messages=frozenset({26, 27})).check(made.sessions, calls)  # between two live ones


def test_functions_that_no_live_worker_is_called_for() -> None:
    made, calls = planned("mid")
    Stops(functions=("serve",)).check(made.sessions, calls)
    with pytest.raises(StopError, match=r"^--stop-at lookup: #10 goes to store, which is played$"):
        Stops(functions=("serve", "lookup")).check(made.sessions, calls)


def test_messages_between_live_workers_of_which_only_torch_knows() -> None:
    with open_run(str(recorded("rref_relay.pcap"))) as run:
        made, calls = plan(run, PlanOptions(trust=True)), dict(run.calls)
    (session,) = made.sessions
    between = [
        calls[step.message] for step in session.steps if is_between(step, session) and step.action != "send"
    ]
    unseen = next(call for call in between if not runs_python(call))
    told = f"goes to {unseen.callee}, and {unseen.caller} is live, too; --role {unseen.caller} plays it"
    with pytest.raises(StopError, match=told):
        Stops(messages=frozenset({unseen.index})).check(made.sessions, calls)


@pytest.mark.parametrize(
    ("word", "name", "named"),
    [
        ("forward", "__mp_main__.Stage2.forward", True),
        ("Stage2.forward", "__mp_main__.Stage2.forward", True),
        ("ward", "__mp_main__.Stage2.forward", False),
        ("add", "aten::add.Tensor", True),
        ("aten::add", "aten::add.Tensor", True),
        ("aten::add.Tensor", "aten::add.Tensor", True),
        ("Tensor", "aten::add.Tensor", True),
        ("__mp_main__", "__mp_main__.Stage2.forward", False),
    ],
)
def test_names_and_their_last_parts(word: str, name: str, named: bool) -> None:
    assert is_named(word, name) == named
