"""What names the request that a call was sent for, and what only seems to."""

from __future__ import annotations

import pytest

from rpcinspect.rpc.command import PythonCall, PythonRemoteCall, RemoteRet, RRefAck, RRefUserDelete
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.run.run import RunModel
from tests.replayer.planning.pickled import name, request, rref
from tests.replayer.talks import Workers, udf
from tests.run.told import MS, ask, delete, fetch

BROUGHT, OTHER, USED = 0, 1, 2
"""Indexes of the messages of `handlers`."""


def handlers() -> Workers:
    """w1 serves two requests; one brought an RRef, and w1 fetches by it."""
    workers = Workers(3)
    ask(workers, (0, 1), (10, 60), "a", rref(7, fork=8))
    ask(workers, (2, 1), (11, 61), "b", 3)
    fetch(workers, 1, (20, 30), 7)
    return workers


def test_an_rref_that_is_given_back_with_its_request_was_its_functions_alone() -> None:
    workers = handlers()
    delete(workers, 1, 100, 7, 8)
    causes = workers.run().causes
    assert causes.of(USED) == ((BROUGHT,), True)


@pytest.mark.parametrize("deleted", [None, 1000])
def test_an_rref_that_is_kept_may_be_used_by_all_code(deleted: int | None) -> None:
    """A long request stores it where other handlers and threads of the worker find it."""
    workers = handlers()
    if deleted is not None:
        delete(workers, 1, deleted, 7, 8)
    parents, certain = workers.run().causes.of(USED)
    assert (set(parents), certain) == ({BROUGHT, OTHER}, False)


def test_an_rref_that_came_before_and_is_still_there_tells_nothing() -> None:
    workers = Workers(3)
    ask(workers, (0, 1), (1, 5), "keep", rref(7, fork=9))
    ask(workers, (0, 1), (10, 60), "a", rref(7, fork=8))
    fetch(workers, 1, (20, 30), 7)
    delete(workers, 1, 70, 7, 8)
    delete(workers, 1, 900, 7, 9)
    assert workers.run().causes.of(3) == ((2,), False)


def test_an_rref_that_came_before_and_is_gone_does_not_hinder() -> None:
    workers = Workers(3)
    ask(workers, (0, 1), (1, 5), "keep", rref(7, fork=9))
    delete(workers, 1, 6, 7, 9)
    ask(workers, (0, 1), (10, 60), "a", rref(7, fork=8))
    fetch(workers, 1, (20, 30), 7)
    delete(workers, 1, 70, 7, 8)
    assert workers.run().causes.of(5) == ((4,), True)


def test_of_several_that_brought_it_each_is_possible_and_no_other() -> None:
    workers = Workers(3)
    ask(workers, (0, 1), (10, 60), "a", rref(7, fork=8))
    ask(workers, (0, 1), (11, 60), "a", rref(7, fork=9))
    ask(workers, (2, 1), (12, 61), "b", 3)
    fetch(workers, 1, (20, 30), 7)
    delete(workers, 1, 100, 7, 8)
    delete(workers, 1, 101, 7, 9)
    run = workers.run()
    assert set(run.causes.of(3)[0]) == {0, 1}
    assert not run.causes.doubts[3].own


def test_what_was_never_answered_may_keep_what_it_was_given() -> None:
    workers = Workers(2)
    ask(workers, (0, 1), (10, None), "a", rref(7, fork=8))
    fetch(workers, 1, (20, 30), 7)
    assert workers.run().causes.of(1) == ((0,), False)


@pytest.mark.parametrize("end", [40, 80, None])
def test_a_fetch_may_be_given_up_by_a_timeout_or_go_on_in_a_thread(end: int | None) -> None:
    workers = Workers(2)
    ask(workers, (0, 1), (10, 60), "a", 1)
    fetch(workers, 1, (20, end), 7)
    assert workers.run().causes.of(1) == ((0,), False)


def test_a_function_with_threads_sends_while_one_of_them_fetches() -> None:
    workers = handlers()
    delete(workers, 1, 100, 7, 8)
    ask(workers, (1, 2), (22, 28), "leaf", 5)
    parents, certain = workers.run().causes.of(3)
    assert (set(parents), certain) == ({BROUGHT, OTHER}, False)


def test_what_uses_an_object_may_fetch_by_what_the_object_holds() -> None:
    """A remote call makes it of an RRef; a request for it runs before the answer to that call is sent."""
    workers = Workers(3)
    made = PythonRemoteCall(
        tensors=(),
        serialized_py_obj=request(name("app", "Holder"), rref(7, fork=8)),
        ret_rref_id=GloballyUniqueId(0, 5),
        ret_fork_id=GloballyUniqueId(0, 6),
        is_async_execution=False,
    )
    workers.call(0, 1, 10 * MS, 31 * MS, made, RemoteRet(GloballyUniqueId(0, 5), GloballyUniqueId(0, 6)))
    ask(workers, (0, 1), (11, 61), "use", rref(5, fork=9))
    ask(workers, (2, 1), (12, 62), "b", 3)
    fetch(workers, 1, (20, 30), 7)
    delete(workers, 1, 100, 7, 8)
    run = workers.run()
    assert run.causes.of(3) == ((1, 0), False)
    assert not run.causes.doubts[3].own


def test_an_asynchronous_function_leaves_what_it_got_to_others() -> None:
    workers = Workers(3)
    call = PythonCall(request(name("app", "put"), rref(7, fork=8)), True)
    workers.call(0, 1, 10 * MS, 60 * MS, call)
    ask(workers, (2, 1), (11, 61), "take", 3)
    fetch(workers, 1, (20, 30), 7)
    delete(workers, 1, 100, 7, 8)
    parents, certain = workers.run().causes.of(USED)
    assert (set(parents), certain) == ({BROUGHT, OTHER}, False)


def test_fetches_at_once_are_of_several_threads() -> None:
    """A request keeps an RRef where others find it, for as long as it runs."""
    workers = handlers()
    fetch(workers, 1, (25, 35), 7)
    delete(workers, 1, 100, 7, 8)
    causes = workers.run().causes
    assert causes.of(USED)[1] is causes.of(3)[1] is False


def test_fetches_one_after_the_other_may_be_of_one_function() -> None:
    workers = handlers()
    fetch(workers, 1, (35, 45), 7)
    delete(workers, 1, 100, 7, 8)
    assert workers.run().causes.of(4) == ((BROUGHT,), True)


@pytest.mark.parametrize(("connected", "parents"), [(15, (0,)), (21, ())])
def test_the_first_request_on_a_connection_waited_for_it(connected: int, parents: tuple[int, ...]) -> None:
    """w1 is asked, asks w2 without waiting, and has answered before it has connected to w2."""
    workers = Workers(3)
    ask(workers, (0, 1), (10, 20), "forget")
    ask(workers, (1, 2), (25, 30), "leaf")
    run = workers.run()
    (pipe,) = [pipe for pipe, ends in enumerate(_ends(run)) if ends == ("w1", "w2")]
    run.session.pipes[pipe].first_ns = connected * MS
    assert run.causes.of(2) == (parents, not parents)


def behind(run: RunModel, begin: int, size: int) -> int:
    """Index of the request that begins then; so many bytes were sent on its connection before it."""
    row = run.session.messages.time_ns.index(begin * MS)
    run.session.messages.offset[row] = size
    return int(run.session.index[row])


@pytest.mark.parametrize(
    ("times", "parents"),
    [
        ((12, 90), (0,)),
        ((12, 27), ()),  # whoever answers it has all of it
        ((22, 90), ()),  # the function had returned before
    ],
)
def test_a_request_may_wait_until_one_before_it_is_sent(
    times: tuple[int, int], parents: tuple[int, ...]
) -> None:
    """w1 serves a request until 20 ms and sends w2 two; when the first of these begins and is over."""
    workers = Workers(3)
    ask(workers, (0, 1), (10, 20), "push")
    ask(workers, (1, 2), times, "take")
    ask(workers, (1, 2), (28, 91), "take")
    run = workers.run()
    last = behind(run, 28, 300)
    assert run.causes.of(last) == (parents, not parents)


def test_a_request_may_wait_behind_one_that_has_waited() -> None:
    """What w1 calls at 12 ms arrives at 25 ms and the next one then; w1 may have called w2 three times before
    it has answered at 20 ms."""
    workers = Workers(3)
    ask(workers, (0, 1), (10, 20), "push")
    ask(workers, (1, 2), (12, 27), "take")
    ask(workers, (1, 2), (25, 91), "take")
    ask(workers, (1, 2), (28, 92), "take")
    run = workers.run()
    behind(run, 25, 300)
    last = behind(run, 28, 600)
    assert run.causes.of(last) == ((0,), False)


def test_an_rref_with_which_a_fetch_waited_may_be_gone_when_it_is_sent() -> None:
    """Another request that is open by then has brought it, too."""
    workers = Workers(3)
    ask(workers, (2, 1), (10, 20), "forget", rref(7, fork=8))
    ask(workers, (1, 0), (12, 90), "take", 1)
    gone = RRefUserDelete(GloballyUniqueId(0, 7), GloballyUniqueId(0, 8))
    workers.call(1, 0, 21 * MS, 92 * MS, gone, RRefAck())
    ask(workers, (2, 1), (23, 60), "other", rref(7, fork=9))
    fetch(workers, 1, (28, 91), 7)
    delete(workers, 1, 62, 7, 9)
    run = workers.run()
    behind(run, 21, 300)
    used = behind(run, 28, 600)
    behind(run, 62, 900)
    parents, certain = run.causes.of(used)
    assert (certain, len(parents)) == (False, 2)


def _ends(run: RunModel) -> list[tuple[str, str]]:
    return list(zip(run.session.clients, run.session.servers, strict=True))


@pytest.mark.parametrize("asynchronous", [True, False])
def test_an_asynchronous_function_may_go_on_in_the_context_of_another_request(asynchronous: bool) -> None:
    """Its callback runs in the thread that sets its future, which serves the second request."""
    workers = Workers(3)
    first, second = ((5 << 48) + 1, 1), ((6 << 48) + 1, 2)
    call = PythonCall(udf("app.gather"), asynchronous)
    workers.call(0, 1, 10 * MS, 90 * MS, call, context=first, grads=(1, 0))
    workers.call(2, 1, 20 * MS, 80 * MS, call, context=second, grads=(1, 0))
    workers.call(1, 0, 30 * MS, 40 * MS, "app.leaf", context=(second[0], 3), grads=(1, 0))
    parents, certain = workers.run().causes.of(2)
    assert (set(parents), certain) == (({0, 1}, False) if asynchronous else ({1}, True))
