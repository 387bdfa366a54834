"""Schedules against simulated live workers, which bring things in any order that causality allows."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from rpcinspect.replayer.planning.model import PlannedSession
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.playing.schedule import (
    LONGEST_HOLD_S,
    SHORTEST_HOLD_S,
    STUBBORN_HOLD_S,
    DueMessage,
    Schedule,
    late_answers,
)
from rpcinspect.rpc.command import (
    ExceptionResponse,
    PropagateGradientsReq,
    PropagateGradientsResp,
    PythonRemoteCall,
    RemoteRet,
    RRefBackwardReq,
    RRefBackwardResp,
)
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.run.exchanges import Exchange
from tests.replayer.scripted import planned_of
from tests.replayer.talks import Workers, udf
from tests.thorough import examples

CALLS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, 3),
        st.integers(0, 60),
        st.integers(2, 50),
        st.booleans(),
        st.sampled_from(["app.f", "app.g", "aten::add"]),
        st.sampled_from([None, (0, 1), (1 << 48, 2)]),
        st.integers(0, 1),
    ),
    min_size=4,
    max_size=16,
)
ROLES = st.sampled_from([("w0",), ("w1", "w2"), ("w0", "w2", "w3")])


def conversation(drawn: list[tuple]) -> Workers:  # type: ignore[type-arg]
    workers = Workers(4)
    for number, (caller, callee, begin, length, answered, function, context, grad) in enumerate(drawn):
        end = begin + length if answered else None
        where = None if context is None else (context[0], context[1] + number)
        workers.call(caller, callee, begin, end, function, context=where, grads=(grad, grad))
    return workers


def sessions_of(
    workers: Workers, roles: tuple[str, ...]
) -> tuple[list[PlannedSession], Mapping[int, Exchange]]:
    run = workers.run()
    names = {name for call in workers.calls() for name in (call.caller, call.callee)}
    assume(set(roles) < names)
    made = plan(run, PlanOptions(roles=roles, trust=True))
    return list(made.sessions), run.calls


@dataclass
class Simulation:
    """A session against live workers that send as late as they may: nothing of what they sent in the capture
    before they have all that played workers had sent by then."""

    planned: PlannedSession
    calls: Mapping[int, Exchange]
    never: frozenset[int] = frozenset()
    """Requests that the live workers leave out."""
    given: list[DueMessage] = field(default_factory=list)
    come: set[int] = field(default_factory=set)
    over: set[int] = field(default_factory=set)
    """Requests that were sent and have their answer."""
    held: set[int] = field(default_factory=set)
    """Given out after a silence, though an overlapping call had no answer yet."""

    def __post_init__(self) -> None:
        self.schedule = Schedule(self.planned, self.calls)
        steps = [step for step in self.planned.steps if step.action != "skip"]
        self.requests = {step.message: self.calls[step.message] for step in steps if step.action == "answer"}
        self.answers = {step.answer: step.message for step in steps if step.action == "send"}
        self.sends = {step.message for step in steps if step.action == "send"}
        self.first = {
            overlap.message: {other for other in overlap.others if other in self.sends}
            for overlap in self.planned.overlaps
        }
        self.expected = {step.message for step in steps if step.action == "send"}
        self.expected |= {
            step.answer for step in steps if step.action == "answer" and step.answer is not None
        }

    # What the capture says, apart from the schedule.

    def bytes_of(self, arrival: int) -> tuple[int, int]:
        """When the first and the last byte of an arrival came."""
        call = self.requests.get(arrival)
        if call is not None:
            return call.begin_ns, call.arrived_ns
        call = self.calls[self.answers[arrival]]
        assert call.answered_ns is not None
        assert call.end_ns is not None
        return call.answered_ns, call.end_ns

    def may_come(self) -> list[int]:
        """Arrivals that a live worker may bring now, if it waits for all that it had in the capture."""
        sent = {due.message for due in self.given}
        times = {message: self.calls[message].begin_ns for message in self.sends - sent}
        for message, call in self.requests.items():
            if call.answer is not None and call.answer not in sent and message not in self.never:
                assert call.answered_ns is not None
                times[call.answer] = call.answered_ns
        earliest = min(times.values(), default=1 << 60)
        return [
            arrival
            for arrival in self.planned.arrivals
            if arrival not in self.come
            and arrival not in self.never
            and self.bytes_of(arrival)[0] <= earliest
            and (arrival in self.requests or self.answers[arrival] in sent)
        ]

    # What happens.

    def bring(self, arrival: int) -> None:
        self.come.add(arrival)
        if arrival in self.requests:
            self.schedule.asked(arrival)
        else:
            self.over.add(self.answers[arrival])
            self.schedule.answered(self.answers[arrival])
            self.schedule.arrived(arrival)

    def send(self, quiet_s: float = 0.0) -> int:
        found = list(self.schedule.ready(0.0, quiet_s))
        late = [due for due in found if self.unsettled(due)]
        assert len(late) <= (quiet_s > 0.0)
        self.held |= {due.message for due in late}
        for due in found:
            self.check(due)
            self.given.append(due)
        return len(found)

    def unsettled(self, due: DueMessage) -> bool:
        """Whether a call that it overlapped comes first and has no answer."""
        place = {step.message: number for number, step in enumerate(self.planned.steps)}
        pairs = [(due.message, other) for other in self.first.get(due.message, ())]
        pairs += [(due.message, one) for one, others in self.first.items() if due.message in others]
        return any(
            place[other] < place[one] and other not in self.over and one in self.sends and other in self.sends
            for one, other in pairs
        )

    def check(self, due: DueMessage) -> None:
        """Everything has come that had come in the capture when this was sent."""
        missing = {
            arrival
            for arrival in self.planned.arrivals
            if self.bytes_of(arrival)[1] < due.time_ns and arrival not in self.come
        }
        assert not missing, (due, missing)

    def give_up(self) -> bool:
        """Of what holds up the next messages, the first that never comes."""
        for index in self.schedule.awaited() or sorted(self.schedule.unasked):
            if index in self.never and index in self.schedule.unasked:
                self.come.add(index)
                self.schedule.arrived(index)
                return True
        return False

    def run(self, draw: st.DataObject) -> None:
        self.send()
        while not self.schedule.empty or self.may_come():
            may = self.may_come()
            if may:
                self.bring(draw.draw(st.sampled_from(may)))
                self.send()
            elif self.schedule.wake_in(0.0, 0.0) is not None:
                assert self.send(LONGEST_HOLD_S) > 0
            else:
                assert self.give_up(), "nothing can happen any more"
                self.send()


@settings(max_examples=examples(120), deadline=None)
@given(CALLS, ROLES, st.data(), st.booleans())
def test_whatever_the_order_everything_is_sent_once(
    drawn: list[tuple],  # type: ignore[type-arg]
    roles: tuple[str, ...],
    data: st.DataObject,
    some_never_come: bool,
) -> None:
    sessions, calls = sessions_of(conversation(drawn), roles)
    for planned in sessions:
        asked = sorted(step.message for step in planned.steps if step.action == "answer")
        never: frozenset[int] = frozenset()
        if some_never_come and asked:
            never = frozenset(data.draw(st.sets(st.sampled_from(asked))))
        simulation = Simulation(planned, calls, never)
        simulation.run(data)
        sent = [due.message for due in simulation.given]
        assert len(sent) == len(set(sent))
        unanswerable = {calls[index].answer for index in never}
        assert set(sent) == simulation.expected - unanswerable
        assert simulation.schedule.empty
        assert not simulation.schedule.unasked
        by_role: dict[str, list[int]] = defaultdict(list)
        for due in simulation.given:
            if due.step.action == "send":
                by_role[due.step.role].append(calls[due.message].begin_ns)
        assert all(begins == sorted(begins) for begins in by_role.values())
        event(f"{min(len(sent), 4)} messages, {min(len(simulation.held), 2)} after a silence")


@settings(max_examples=examples(40), deadline=None)
@given(CALLS, ROLES, st.sampled_from([0.5, 1.0, 4.0]), st.data())
def test_the_captured_pace(
    drawn: list[tuple],  # type: ignore[type-arg]
    roles: tuple[str, ...],
    speed: float,
    data: st.DataObject,
) -> None:
    """Live workers need no time here: so everything is sent at its moment, no sooner, no later."""
    sessions, calls = sessions_of(conversation(drawn), roles)
    for planned in sessions:
        if planned.overlaps:
            continue
        simulation = Simulation(planned, calls)
        schedule = simulation.schedule = Schedule(planned, calls, speed=speed)
        first = min((calls[index].begin_ns for index in simulation.sends), default=0)
        now = began = data.draw(st.sampled_from([0.0, 64.0]))
        while not schedule.empty:
            for due in schedule.ready(now):
                simulation.given.append(due)
                moment = began + (due.time_ns - first) / 1e9 / speed
                assert now == pytest.approx(max(moment, began), abs=1e-11)
            may = simulation.may_come()
            for arrival in may:
                simulation.bring(arrival)
            if not may and not schedule.empty:
                wake = schedule.wake_in(now, 0.0)
                assert wake is not None
                now = max(now + wake, math.nextafter(now, math.inf))


# --- overlaps -----------------------------------------------------------------------------------------------

SECOND = 1_000_000_000


def overlapping(first_s: float, second_s: float) -> tuple[PlannedSession, dict[int, Exchange]]:
    """w0 and w1 call w2 at about the same time; w0's call is answered first."""
    workers = Workers(3)
    workers.call(0, 2, 10, int(first_s * SECOND))
    workers.call(1, 2, 20, int(second_s * SECOND))
    return planned_of(workers, ("w0", "w1"))


def test_of_calls_that_overlapped_the_later_answered_waits() -> None:
    planned, calls = overlapping(0.02, 0.5)
    schedule = Schedule(planned, calls)
    (first,) = schedule.ready(0.0)
    assert first.step.role == "w0"
    assert list(schedule.ready(1.0)) == []
    schedule.answered(first.message)
    (second,) = schedule.ready(1.0)
    assert second.step.role == "w1"


@pytest.mark.parametrize(("took_s", "hold_s"), [(0.001, SHORTEST_HOLD_S), (0.5, 1.0), (30.0, LONGEST_HOLD_S)])
def test_a_silence_ends_the_wait_for_an_overlapping_call(took_s: float, hold_s: float) -> None:
    planned, calls = overlapping(took_s, 2 * took_s)
    schedule = Schedule(planned, calls)
    list(schedule.ready(0.0))
    assert schedule.wake_in(0.0, 0.0) == pytest.approx(hold_s, rel=1e-6)
    assert schedule.wake_in(0.0, hold_s / 2) == pytest.approx(hold_s / 2, rel=1e-6)
    assert list(schedule.ready(0.0, hold_s * 0.99)) == []
    (second,) = schedule.ready(0.0, hold_s)
    assert second.step.role == "w1"


def test_the_second_wait_in_vain_is_shorter() -> None:
    planned, calls = overlapping(30.0, 60.0)
    stubborn: set[str | None] = set()
    first = Schedule(planned, calls, stubborn=stubborn)
    assert len(list(first.ready(0.0))) == len(list(first.ready(0.0, LONGEST_HOLD_S))) == 1
    again = Schedule(planned, calls, stubborn=stubborn)
    assert len(list(again.ready(0.0))) == 1
    assert again.wake_in(0.0, 0.0) == STUBBORN_HOLD_S
    assert len(list(again.ready(0.0, STUBBORN_HOLD_S))) == 1


def test_a_silence_lets_one_call_pass_at_a_time() -> None:
    workers = Workers(4)
    for caller in (0, 1, 2):
        workers.call(caller, 3, 10 + caller, 1000 + caller)
    planned, calls = planned_of(workers, ("w0", "w1", "w2"))
    schedule = Schedule(planned, calls)
    assert [due.step.role for due in schedule.ready(0.0, LONGEST_HOLD_S)] == ["w0"]
    assert [due.step.role for due in schedule.ready(0.0, LONGEST_HOLD_S)] == ["w1"]
    assert [due.step.role for due in schedule.ready(0.0, LONGEST_HOLD_S)] == ["w2"]


# --- what is asked ------------------------------------------------------------------------------------------


def calling_back() -> tuple[PlannedSession, dict[int, Exchange]]:
    """w0 calls w1, which asks w0 twice before it answers; then w0 calls again."""
    workers = Workers(2)
    workers.call(0, 1, 0, 100)
    workers.call(1, 0, 10, 20, "app.g")
    workers.call(1, 0, 30, 40, "app.h")
    workers.call(0, 1, 200, 300)
    return planned_of(workers)


def test_what_holds_up_the_next_message_is_told() -> None:
    planned, calls = calling_back()
    g, h = (index for index, call in calls.items() if call.caller == "w1")
    first, second = (index for index, call in calls.items() if call.caller == "w0")
    schedule = Schedule(planned, calls)
    assert schedule.unasked == {g, h}
    assert [due.message for due in schedule.ready(0.0)] == [first]
    assert schedule.wake_in(0.0, 0.0) is None
    assert schedule.awaited() == [g, h, calls[first].answer]
    schedule.arrived(h)  # given up
    schedule.asked(g)
    assert [due.message for due in schedule.ready(0.0)] == [calls[g].answer]
    assert schedule.awaited() == [calls[first].answer]
    schedule.answered(first)
    schedule.arrived(calls[first].answer or 0)
    assert [due.message for due in schedule.ready(0.0)] == [second]
    assert schedule.empty


def test_a_request_that_was_given_up_is_answered_when_it_comes_after_all() -> None:
    planned, calls = calling_back()
    g, h = (index for index, call in calls.items() if call.caller == "w1")
    schedule = Schedule(planned, calls)
    list(schedule.ready(0.0))
    schedule.arrived(g)
    schedule.arrived(h)
    schedule.asked(g)
    assert [due.message for due in schedule.ready(0.0)] == [calls[g].answer]


def test_an_answer_waits_for_what_had_come_before_it() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 100)
    workers.call(1, 0, 10, 50, "app.g")
    workers.call(1, 0, 20, 30, "app.h")
    planned, calls = planned_of(workers)
    g, h = (index for index, call in calls.items() if call.caller == "w1")
    schedule = Schedule(planned, calls)
    list(schedule.ready(0.0))
    schedule.asked(g)
    assert list(schedule.ready(0.0)) == []  # h had come before this answer was given
    schedule.asked(h)
    assert [due.message for due in schedule.ready(0.0)] == [calls[h].answer, calls[g].answer]


def test_messages_that_nobody_planned_change_nothing() -> None:
    planned, calls = calling_back()
    schedule = Schedule(planned, calls)
    for index in (99, -1):
        schedule.arrived(index)
        schedule.asked(index)
        schedule.answered(index)
    assert len(list(schedule.ready(0.0))) == 1


def test_a_plan_of_nothing() -> None:
    workers = Workers(2)
    workers.call(1, 0, 0, 10)  # of a live worker's own program
    planned, calls = planned_of(workers)
    schedule = Schedule(planned, calls, speed=1.0)
    assert schedule.empty
    assert list(schedule.ready(0.0)) == []
    assert schedule.wake_in(0.0, 0.0) is None
    assert schedule.awaited() == []


def test_thousands_of_open_requests_are_no_matter() -> None:
    count = 5000
    workers = Workers(2)
    workers.call(0, 1, 0, 10 * count)
    for number in range(count):
        workers.call(1, 0, 10 + number, 5 * count + number, "app.g")
    planned, calls = planned_of(workers)
    began = time.perf_counter()
    schedule = Schedule(planned, calls)
    assert len(list(schedule.ready(0.0))) == 1
    for index in sorted(schedule.unasked, reverse=True):
        schedule.asked(index)
        list(schedule.ready(0.0))
    took = time.perf_counter() - began
    assert schedule.empty
    assert took < count / 5000, f"{took:.1f} s"


CONTEXT = 7
RREF, FORK = GloballyUniqueId(0, 1), GloballyUniqueId(0, 2)


def gradient(edge: int) -> PropagateGradientsReq:
    return PropagateGradientsReq(AutogradMetadata(CONTEXT, edge), (), False)


def forward(workers: Workers, begin: int, edge: int) -> None:
    """w0 calls w1; the gradient of the answer has the edge 1000 + `edge`."""
    workers.call(0, 1, begin, begin + 5, context=(CONTEXT, edge), grads=(1, 1))


def backward(workers: Workers, caller: int, begin: int, end: int, edge: int) -> None:
    workers.call(caller, 1 - caller, begin, end, gradient(edge), PropagateGradientsResp())


class Played:
    """w0 is played; its messages are named by when they were sent."""

    def __init__(self, workers: Workers) -> None:
        run = workers.run()
        self.calls: Mapping[int, Exchange] = run.calls
        self.planned: PlannedSession
        (self.planned,) = plan(run, PlanOptions(roles=("w0",), trust=True)).sessions
        self.schedule = Schedule(self.planned, self.calls)

    def ready(self) -> Sequence[int]:
        """What may be sent now."""
        found = []
        for due in self.schedule.ready(0.0):
            call = self.calls[due.step.message]
            found.append(call.begin_ns if due.step.action == "send" else call.answered_ns or 0)
        return sorted(found)

    def _call(self, begin: int) -> Exchange:
        (call,) = (call for call in self.calls.values() if call.begin_ns == begin)
        return call

    def answered(self, begin: int) -> Sequence[int]:
        call = self._call(begin)
        assert call.answer is not None
        self.schedule.answered(call.index)
        self.schedule.arrived(call.answer)
        return self.ready()

    def asked(self, begin: int) -> Sequence[int]:
        self.schedule.asked(self._call(begin).index)
        return self.ready()


def test_a_gradient_waits_for_no_answer_to_another() -> None:
    workers = Workers(2)
    for number, begin in enumerate((10, 20, 30), 1):
        forward(workers, begin, number)
    backward(workers, 0, 50, 90, 1001)  # w1 took it up first, and answered it last
    backward(workers, 0, 52, 60, 1002)
    backward(workers, 1, 70, 85, 1)
    backward(workers, 0, 75, 80, 1003)  # w0 sent it while it served #70
    workers.call(0, 1, 95, 99)
    played = Played(workers)
    assert played.ready() == [10]
    assert played.answered(10) == [20]
    assert played.answered(20) == [30]
    assert played.answered(30) == [50, 52]
    assert played.answered(50) == []  # now w1 took up #52 first
    assert played.asked(70) == [75, 84]
    assert played.answered(75) == []
    assert played.answered(52) == [95]


def test_another_pass_waits_for_the_answers_of_the_one_before() -> None:
    """Two passes over one graph, as `retain_graph` allows; together they would be one."""
    workers = Workers(2)
    forward(workers, 10, 1)
    forward(workers, 20, 2)
    for begin in (50, 70):
        backward(workers, 0, begin, begin + 10, 1001)
        backward(workers, 0, begin + 2, begin + 12, 1002)
    played = Played(workers)
    assert played.ready() == [10]
    assert played.answered(10) == [20]
    assert played.answered(20) == [50, 52]
    assert played.answered(52) == []
    assert played.answered(50) == [70, 72]


def test_a_gradient_that_fails_is_answered_in_its_time() -> None:
    workers = Workers(2)
    forward(workers, 10, 1)
    backward(workers, 0, 50, 60, 1001)
    workers.call(1, 0, 55, 70, gradient(1), ExceptionResponse(b"no"))
    played = Played(workers)
    assert played.ready() == [10]
    assert played.answered(10) == [50]
    assert played.asked(55) == []
    assert played.answered(50) == [69]


def test_a_backward_pass_may_begin_before_its_remote_object_is_announced() -> None:
    workers = Workers(2)
    forward(workers, 10, 1)
    made = PythonRemoteCall(
        tensors=(),
        serialized_py_obj=udf("app.loss"),
        ret_rref_id=RREF,
        ret_fork_id=FORK,
        is_async_execution=False,
    )
    workers.call(0, 1, 30, 40, made, RemoteRet(RREF, FORK), context=(CONTEXT, 2), grads=(1, 0))
    workers.call(0, 1, 32, 90, RRefBackwardReq(RREF, CONTEXT, False), RRefBackwardResp())
    backward(workers, 1, 50, 80, 2)
    backward(workers, 0, 55, 60, 1001)
    workers.call(0, 1, 95, 99)
    played = Played(workers)
    assert set(late_answers(played.calls).values()) == {CONTEXT}
    assert played.ready() == [10]
    assert played.answered(10) == [30, 32]
    assert played.asked(50) == [55, 79]  # the answer to #30 has not come
    assert played.answered(55) == []
    assert played.answered(30) == []
    assert played.answered(32) == [95]
