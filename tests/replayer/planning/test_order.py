"""The order of steps: what had finished comes before what began later, whatever overlaps."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.replayer.planning.model import Decision
from rpcinspect.replayer.planning.order import arrivals, order, overlaps
from rpcinspect.run.exchanges import Exchange
from tests.replayer.talks import Workers
from tests.thorough import examples

SEND, SKIP = Decision("send", happens=True), Decision("skip", "self-call", "")
Drawn = list[tuple[int, int, int, bool, bool]]


def make(drawn: Drawn) -> tuple[list[Exchange], dict[int, Decision]]:
    """Calls of w0, w1 and w2 to w3: caller, begin, length, answered, sent."""
    workers = Workers(4)
    for caller, begin, length, answered, _ in drawn:
        workers.call(caller, 3, begin, begin + length if answered else None)
    calls = list(workers.calls())
    sent = {(begin, caller): is_sent for caller, begin, _, _, is_sent in drawn}
    decisions = {call.index: SEND if sent[call.begin_ns, int(call.caller[1:])] else SKIP for call in calls}
    return calls, decisions


DRAWN = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 99), st.integers(2, 60), st.booleans(), st.booleans()),
    max_size=16,
    unique_by=lambda one: one[:2],
)


@settings(max_examples=examples(150), deadline=None)
@given(DRAWN)
def test_what_had_finished_before_a_call_began_comes_before_it(drawn: Drawn) -> None:
    calls, decisions = make(drawn)
    placed = order(calls, decisions, {})
    assert sorted(c.index for c in placed) == sorted(c.index for c in calls)
    sent = [call for call in placed if decisions[call.index].action == "send"]
    for position, later in enumerate(sent):
        for after in sent[position + 1 :]:
            assert after.end_ns is None or after.end_ns >= later.begin_ns
            if after.caller == later.caller:
                assert after.begin_ns >= later.begin_ns


@settings(max_examples=examples(100), deadline=None)
@given(DRAWN)
def test_a_call_waits_for_what_had_arrived_and_only_for_earlier_steps(drawn: Drawn) -> None:
    calls, decisions = make(drawn)
    come = arrivals(calls, decisions)
    times = [time for time, _ in come]
    answers = {call.answer: call for call in calls}
    place = {call.index: n for n, call in enumerate(order(calls, decisions, {}))}
    for call in calls:
        before = come[: bisect_left(times, call.begin_ns)]
        assert [m for _, m in before] == [m for time, m in come if time < call.begin_ns]
        if decisions[call.index].action == "send":
            assert all(place[answers[m].index] < place[call.index] for _, m in before)


def test_overlapping_calls_go_by_their_answers_and_are_named() -> None:
    """As with a lock: w1 waits for it since 20 and gets it when w0 gives it back at 40."""
    calls, decisions = make(
        [(0, 10, 5, True, True), (1, 20, 60, True, True), (0, 30, 10, True, True), (2, 90, 5, True, True)]
    )
    placed = order(calls, decisions, {})
    assert [(call.caller, call.begin_ns) for call in placed] == [
        ("w0", 10),
        ("w0", 30),
        ("w1", 20),
        ("w2", 90),
    ]
    (found,) = overlaps(calls, decisions)
    by_index = {call.index: call for call in calls}
    assert by_index[found.message].begin_ns == 30
    assert [by_index[other].caller for other in found.others] == ["w1"]
    assert found.worker == "w3"


def test_calls_of_one_worker_that_overlap_are_not_named() -> None:
    calls, decisions = make([(0, 10, 50, True, True), (0, 20, 10, True, True)])
    assert overlaps(calls, decisions) == []
    assert [call.begin_ns for call in order(calls, decisions, {})] == [10, 20]


def test_what_is_not_sent_stands_where_it_began_but_behind_its_cause() -> None:
    calls, decisions = make(
        [(0, 10, 80, True, True), (1, 20, 5, True, False), (0, 30, 5, True, True), (2, 95, 2, True, False)]
    )
    assert [call.begin_ns for call in order(calls, decisions, {})] == [10, 20, 30, 95]
    index = {call.begin_ns: call.index for call in calls}
    parents = {index[20]: index[30]}
    assert [call.begin_ns for call in order(calls, decisions, parents)] == [10, 30, 20, 95]
