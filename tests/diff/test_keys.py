"""Keys of calls: equal in two runs for calls that are the same, whatever came first on the wire."""

from __future__ import annotations

from collections.abc import Sequence

from rpcinspect.diff.align import align_runs
from rpcinspect.diff.keys import Keys
from rpcinspect.diff.side import DiffSide
from rpcinspect.rpc.command import PythonRemoteCall, PythonRRefFetchCall, PythonRRefFetchRet, RemoteRet
from rpcinspect.rpc.types import GloballyUniqueId
from tests.diff.stories import Story, answer, call


def story(makers: Sequence[tuple[int, int]], fetches: Sequence[tuple[int, int, int]]) -> Story:
    """`makers`: (number of an RRef, when); all are made by equal calls. `fetches`: (RRef, value, when)."""
    made = Story()
    for number, at in makers:
        rref, fork = GloballyUniqueId(0, number), GloballyUniqueId(0, 100 + number)
        request = PythonRemoteCall(
            tensors=(),
            serialized_py_obj=call("app.make").serialized_py_obj,
            ret_rref_id=rref,
            ret_fork_id=fork,
            is_async_execution=False,
        )
        made.call(0, 1, at, at + 5, request, RemoteRet(rref, fork))
    for number, value, at in fetches:
        fetched = PythonRRefFetchRet((), answer(value).serialized_py_obj)
        made.call(0, 1, at, at + 5, PythonRRefFetchCall(1, GloballyUniqueId(0, number)), fetched)
    return made


def keys(made: Story) -> tuple[DiffSide, Keys]:
    run = made.run()
    return run, Keys(run)


def test_equal_rrefs_are_told_apart_by_what_they_are_used_for() -> None:
    a = story([(1, 0), (2, 1)], [(1, 7, 20), (2, 8, 40)])
    b = story([(1, 0), (2, 1)], [(1, 8, 20), (2, 7, 40)])
    run_a, keys_a = keys(a)
    _, keys_b = keys(b)
    assert keys_a.request[0] == keys_a.request[1]
    assert keys_a.exchange[0] != keys_a.exchange[1]
    assert [keys_a.exchange[n] for n in (0, 1)] == [keys_b.exchange[n] for n in (1, 0)]
    # they were made at once, so neither has a place: what they hold decides
    pairs = align_runs(run_a, b.run()).pairs
    assert (pairs[0], pairs[1]) == (1, 0)
    fetch = [call.index for call in run_a.calls.values()][2:]
    assert [pairs[index] for index in fetch] == fetch[::-1]


def test_a_use_may_come_before_what_it_uses() -> None:
    """Each pair of workers has a pipe of its own: the later message may be the first on the wire."""
    _, before = keys(story([(1, 10)], [(1, 7, 30)]))
    _, after = keys(story([(1, 10)], [(1, 7, 8)]))
    assert list(before.depth.values()) == [0, 1]
    assert [after.depth[index] for index in sorted(after.depth)] == [1, 0]
    assert sorted(before.exchange.values()) == sorted(after.exchange.values())


def test_ids_and_times_decide_nothing() -> None:
    _, one = keys(story([(1, 0), (2, 1)], [(1, 7, 20), (2, 8, 40)]))
    _, other = keys(story([(31, 100), (12, 130)], [(12, 8, 140), (31, 7, 190)]))
    assert sorted(one.exchange.values()) == sorted(other.exchange.values())


def test_an_rref_from_before_the_capture() -> None:
    _, found = keys(story([], [(1, 7, 20), (1, 7, 40), (2, 7, 60)]))
    assert list(found.depth.values()) == [0, 0, 0]
    values = list(found.exchange.values())
    assert values[0] == values[1] != values[2]
