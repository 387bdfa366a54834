"""What a worker has open, against looking at every request each time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.run.exchanges import Call
from rpcinspect.run.serving import MAX_OPEN, Arrivals, Serving, context_inside
from tests.replay.talks import Workers

REQUESTS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 9), st.booleans(), st.integers(0, 3)),
    min_size=1,
    max_size=12,
)


def received(drawn: list[tuple[int, int, bool, int]]) -> list[Call]:
    """Requests of w0 to w1, some of them in a context."""
    workers = Workers(2)
    for begin, length, answered, _ in drawn:
        workers.call(0, 1, begin, begin + length if answered else None, "app.f")
    calls = workers.calls()
    for call, (_, _, _, context) in zip(calls, drawn, strict=True):
        if context:
            call.context, call.wrapped = context, True
    return calls


@given(REQUESTS)
@settings(max_examples=40)
def test_what_is_open(drawn: list[tuple[int, int, bool, int]]) -> None:
    calls = received(drawn)
    serving = Serving(calls)
    for now in range(0, 45, 3):
        serving.at(now)
        there = sorted(
            (c for c in calls if c.arrived_ns <= now and (c.answered_ns is None or c.answered_ns >= now)),
            key=lambda c: c.arrived_ns,
        )
        assert {c.index for c in calls if c.index in serving} == {c.index for c in there}
        assert serving.latest(None, calls[0]) == [c for c in there if c is not calls[0]]
        for contexts in ((None,), (1,), (2, None)):
            inside = [c for c in there if context_inside(c) in contexts and c is not calls[0]]
            assert serving.latest(contexts, calls[0]) == inside
        first = next((c for c in there if context_inside(c) == 1), None)
        assert serving.first_in(1) is first


@given(REQUESTS)
@settings(max_examples=40)
def test_what_had_arrived(drawn: list[tuple[int, int, bool, int]]) -> None:
    calls = received(drawn)
    arrivals = Arrivals(calls)
    for call in calls:
        came = [one for one in calls if one.arrived_ns <= call.begin_ns]
        assert arrivals.latest(call) is max(came, key=lambda one: one.arrived_ns, default=None)
        assert arrivals.last(call) is (came[-1] if came else None)


def test_so_many_are_looked_at() -> None:
    calls = received([(n, 0, False, 0) for n in range(2 * MAX_OPEN)])
    serving = Serving(calls)
    serving.at(10_000)
    found = serving.latest(None, calls[0])
    assert [call.arrived_ns for call in found] == sorted(call.arrived_ns for call in calls)[MAX_OPEN:]
