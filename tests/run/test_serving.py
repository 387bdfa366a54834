"""What a worker has open, against looking at every request each time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.run.requests import Requests
from rpcinspect.run.serving import MAX_OPEN, Serving
from tests.replay.talks import Workers

REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(2, 9),
        st.booleans(),
        st.sampled_from([None, 1, 2]),
        st.sampled_from(["app.f", "aten::add"]),
    ),
    min_size=1,
    max_size=12,
)
Drawn = list[tuple[int, int, bool, int | None, str]]


def received(drawn: Drawn) -> tuple[Requests, list[int]]:
    """Requests of w0 to w1, some of them in a context."""
    workers = Workers(2)
    for n, (begin, length, answered, context, function) in enumerate(drawn):
        inside = None if context is None else (context, n)
        workers.call(0, 1, begin, begin + length if answered else None, function, context=inside)
    requests = Requests(workers.run().session)
    return requests, requests.workers[0, "w1"].received


@given(REQUESTS)
@settings(max_examples=40, deadline=None)
def test_what_is_open(drawn: Drawn) -> None:
    requests, rows = received(drawn)
    serving = Serving(requests, rows)
    for now in range(0, 45, 3):
        serving.at(now)
        there = [
            row
            for row in sorted(rows, key=requests.arrived.__getitem__)
            if requests.runs_code(row) and requests.arrived[row] <= now <= requests.answered(row)
        ]
        assert bool(serving) == bool(there)
        assert [row for row in there if row in serving] == there
        assert sorted(serving.latest(None)) == sorted(there)
        for context in (1, 2):
            inside = [row for row in there if requests.inside(row) == context]
            assert sorted(serving.latest(context)) == sorted(inside)
            first = serving.first_in(context)
            assert (first is None) == (not inside)
            assert first is None or requests.arrived[first] == requests.arrived[inside[0]]


def test_so_many_are_looked_at() -> None:
    requests, rows = received([(n, 0, False, None, "app.f") for n in range(2 * MAX_OPEN)])
    serving = Serving(requests, rows)
    serving.at(10_000)
    assert serving.latest(None) == sorted(rows, key=requests.arrived.__getitem__)[MAX_OPEN:]
