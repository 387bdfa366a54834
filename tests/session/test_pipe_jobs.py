"""Which job a pipe is of: the rules of time, one by one, and what decides where no store was captured."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from rpcinspect.session.identity import IdentityEvidence
from rpcinspect.session.pipe_jobs import Placed, place
from rpcinspect.session.store_jobs import split_jobs
from rpcinspect.store.directory import StoreEntry
from rpcinspect.tensorpipe.records import Pipe
from tests.session.records import entry, met, pipe

A, B, C = "10.0.0.1:4000", "10.0.0.2:5000", "10.0.0.3:6000"


def placed(pipes: Sequence[Pipe], *entries: StoreEntry, evidence: IdentityEvidence | None = None) -> Placed:
    return place(pipes, split_jobs(entries), evidence or IdentityEvidence())


def jobs(
    pipes: Sequence[Pipe], *entries: StoreEntry, evidence: IdentityEvidence | None = None
) -> tuple[int, ...]:
    return placed(pipes, *entries, evidence=evidence).job_of


def to(number: int, server: str, name: str | None, opened: int, ended: int | None = None) -> Pipe:
    return pipe(number, f"10.0.0.{9 - number % 5}:{1000 + number}", server, name, opened=opened, ended=ended)


def test_no_pipe_and_no_store_is_one_job() -> None:
    found = placed([])
    assert (len(found.jobs), found.job_of) == (1, ())


# --- an address that a store tells ---


def test_a_listener_from_its_set_on() -> None:
    pipes = to(0, B, "a", 5, 9), to(1, B, "c", 25)
    found = placed(pipes, *met(("a", A), ("b", B), store="1"), *met(("c", C), ("d", B), at=20, store="2"))
    assert found.job_of == (0, 1)
    assert found.listener_of == ((B, 1), (B, 21))
    assert [job.published[listener] for job, listener in zip(found.jobs, found.listener_of, strict=True)] == [
        {(0, "b"): None},
        {(0, "d"): None},
    ]


def test_what_was_open_before_is_of_another_job() -> None:
    assert jobs([to(0, B, "a", 5, 9), to(1, B, "a", 25)], *met(("a", A), ("b", B), at=20)) == (0, 1)
    assert jobs([to(0, B, "a", 5), to(1, B, "a", 25)], *met(("a", A), ("b", B), at=20)) == (0, 1)


def test_who_was_read_only_listens_since_the_last_pipe_before_ended() -> None:
    store = met(("a", A), ("b", B), at=20, operation="get")
    found = placed([to(0, B, "a", 5, 9), to(1, B, "c", 15), to(2, B, "a", 25)], *store)
    assert found.job_of == (0, 1, 1)
    assert placed([to(0, B, "a", 5)], *store).listener_of == ((B, -1),)


def test_a_job_is_over_when_all_of_its_pipes_are() -> None:
    store = met(("a", A), ("b", B))
    assert jobs([to(0, B, "a", 5, 9), to(1, B, "x", 20)], *store) == (0, 1)
    assert jobs([to(0, B, "a", 5, 9), to(1, A, "b", 6, 30), to(2, B, "x", 20)], *store) == (0, 0, 0)


def test_a_job_that_tells_its_store_something_is_there_again() -> None:
    """Groups of one job begin one after the other."""
    store = (*met(("a", A), ("b", B)), entry("names/0", "a", group=1, at=15))
    assert jobs([to(0, B, "a", 5, 9), to(1, B, "b", 20)], *store) == (0, 0)


def test_a_worker_that_has_not_called_before_may_outlive_the_others() -> None:
    store = met(("a", A), ("b", B), ("c", C))
    assert jobs([to(0, A, "b", 5, 9), to(1, B, "c", 20)], *store) == (0, 0)
    other = to(1, "10.0.0.7:1", "x", 18), to(2, B, "c", 20)
    assert jobs([to(0, A, "b", 5, 9), *other], *store) == (0, 1, 1)


def test_a_worker_opens_one_pipe_to_another() -> None:
    """The end of the first job was not captured, and another one has the same names."""
    assert jobs([to(0, B, "a", 5), to(1, B, "a", 20)], *met(("a", A), ("b", B))) == (0, 1)


def test_a_worker_of_several_groups_opens_one_pipe_in_each() -> None:
    again = entry("addrs/b", f"uv://{B}", group=1, at=1)
    assert jobs([to(0, B, "a", 5), to(1, B, "a", 20)], *met(("a", A), ("b", B)), again) == (0, 0)


def test_an_address_that_was_read_is_one_listener_while_a_pipe_to_it_is_open() -> None:
    store = met(("a", A), ("b", B), at=20, operation="get")
    found = placed([to(0, B, "a", 5, 9), to(1, B, "c", 7, 30), to(2, B, "d", 25)], *store)
    assert found.job_of == (0, 0, 0)


# --- workers that come and go ---


def member(name: str, number: int, address: str, everybody: str, at: int) -> tuple[StoreEntry, ...]:
    return (
        entry(f"names/{number}", name, at=at),
        entry("names/_ALL_WORKER_INFOS", everybody, at=at + 1),
        entry(f"addrs/{name}", f"uv://{address}", at=at + 2),
    )


LEFT = entry("names/_ALL_WORKER_INFOS", "a-0,", at=30)


@pytest.mark.parametrize("address", [B, C], ids=["same port", "another"])
@pytest.mark.parametrize("ended", [25, None], ids=["ended", "end not captured"])
def test_a_worker_that_comes_back_calls_the_same_listener_again(address: str, ended: int | None) -> None:
    """It has another id each time, and other jobs have workers of these names, too."""
    other = [replace(one, server="2") for one in member("b", 9, "10.0.0.4:1", "a-0,b-9,", 2)]
    store = (*member("a", 0, A, "a-0,", 0), *member("b", 9, B, "a-0,b-9,", 10), LEFT, *other)
    pipes = [to(0, A, "b", 15, ended), to(1, B, "a", 16, ended), to(2, A, "b", 45), to(3, address, "a", 46)]
    found = placed(pipes, *store, *member("b", 8, address, "a-0,b-8,", 40))
    assert (found.job_of, found.unsure) == ((0, 0, 0, 0), frozenset())


def test_another_worker_of_the_name_of_a_member() -> None:
    store = (*member("a", 0, A, "a-0,", 0), *member("b", 9, B, "a-0,b-9,", 10))
    assert jobs([to(0, A, "b", 15), to(1, A, "b", 16)], *store) == (0, 1)


def test_a_group_that_was_captured_whole_has_no_other_listener() -> None:
    store = (*member("a", 0, A, "a-0,", 0), *member("b", 9, B, "a-0,b-9,", 10))
    found = placed([to(0, A, "b", 15), to(1, C, "b", 16)], *store)
    assert (found.job_of, found.unsure) == ((0, 1), frozenset())


def test_a_pipe_that_may_be_of_a_group_that_is_seen_from_its_middle_on() -> None:
    """The guest came first before that, and listened somewhere else."""
    store = (
        entry("names/_ALL_WORKER_INFOS", "a-0,", operation="get", at=40),
        *member("b", 8, C, "a-0,b-8,", 41),
    )
    read = entry("addrs/a", f"uv://{A}", operation="get", at=44)
    found = placed([to(0, A, "x", 5), to(1, B, "a", 16, 25), to(2, C, "a", 46)], *store, read)
    assert found.job_of == (0, 1, 0)
    assert found.unsure == {0, 1}


# --- an address that no store tells ---


def test_a_job_in_whose_store_not_all_addresses_are() -> None:
    hidden = entry("names/0", "a"), entry("names/1", "b"), entry("addrs/b", "shm://1")
    assert jobs([to(0, B, "a", 5)], *hidden) == (0,)
    assert jobs([to(0, B, "x", 5)], *hidden) == (1,)


def test_a_store_that_was_not_captured_whole() -> None:
    """c, of whom the store says nothing, calls b: it is a worker of that job, and may listen anywhere."""
    store = met(("a", A), ("b", B))
    assert jobs([to(0, B, "c", 5), to(1, C, "a", 6)], *store) == (0, 0)
    assert jobs([to(0, B, "a", 5), to(1, C, "a", 6)], *store) == (0, 1)


def test_all_that_a_store_tells_is_behind_address_translation() -> None:
    assert jobs([to(0, "172.16.0.5:777", "a", 5)], *met(("a", A), ("b", B))) == (0,)


def test_two_jobs_of_which_either_may_be_meant() -> None:
    hidden = [
        (entry("names/0", "a", store=store), entry("names/1", other, store=store))
        for store, other in (("1", "b"), ("2", "c"))
    ]
    entries = [one for its in hidden for one in its]
    assert jobs([to(0, B, "a", 5)], *entries) == (2,)
    assert jobs([to(0, B, "c", 5)], *entries) == (1,)


def test_a_store_that_is_seen_from_its_middle_on() -> None:
    late = met(("a", A), operation="get", at=20)
    assert jobs([to(0, B, "a", 5)], *late) == (0,)  # open when the store was
    assert jobs([to(0, B, "a", 5, 9)], *late) == (0,)
    assert placed([to(0, B, "a", 5, 9)], *late).jobs[0].store is None


# --- without a store ---


def test_pipes_that_are_open_at_once_are_one_job() -> None:
    assert jobs([to(0, A, "b", 0, 9), to(1, B, "a", 3), to(2, C, "a", 20)]) == (0, 0, 0)


def test_when_all_have_ended_the_next_is_another_job() -> None:
    assert jobs([to(0, A, "b", 0, 9), to(1, B, "a", 3, 8), to(2, B, "x", 20), to(3, A, "y", 21)]) == (
        0,
        0,
        1,
        1,
    )


def test_the_same_worker_calls_the_same_listener_again() -> None:
    assert jobs([to(0, B, "a", 0), to(1, B, "a", 20), to(2, A, "b", 21)]) == (0, 1, 1)


def test_a_worker_comes_back_to_a_listener_that_another_has_called_all_the_time() -> None:
    assert jobs([to(0, B, "a", 0, 9), to(1, B, "c", 1, 40), to(2, B, "a", 20), to(3, A, "b", 21)]) == (
        0,
        0,
        0,
        0,
    )


def test_two_workers_of_one_id_at_once_are_of_two_jobs() -> None:
    """Which of their pipes belong together is not known."""
    evidence = IdentityEvidence()
    pipes = [to(0, B, "a", 0, 30), to(1, C, "a", 5, 30)]
    for number in (0, 1):
        evidence.id(number, False, 1)
    found = placed(pipes, evidence=evidence)
    assert (found.job_of, found.unsure) == ((0, 1), {0, 1})


def test_a_listener_that_all_have_left_is_not_the_next_one() -> None:
    found = placed([to(0, A, "b", 0), to(1, B, "a", 1, 5), to(2, B, "c", 9)])
    assert found.job_of == (0, 0, 0)
    assert len(set(found.listener_of)) == 3


def tell(evidence: IdentityEvidence, *ends: tuple[int, bool, int]) -> IdentityEvidence:
    for number, client, worker_id in ends:
        evidence.id(number, client, worker_id)
    return evidence


def test_ids_that_clash_are_of_jobs_that_ran_at_once() -> None:
    pipes = to(0, B, "a", 0), to(1, C, "x", 1), to(2, B, "b", 2)
    evidence = tell(IdentityEvidence(), (0, True, 0), (1, True, 0))
    assert jobs(pipes, evidence=evidence) == (0, 1, 0)
    assert jobs(pipes, evidence=tell(IdentityEvidence(), (0, True, 0), (1, True, 1))) == (0, 0, 0)


def test_a_clash_among_those_that_call_one_listener_parts_nothing() -> None:
    evidence = tell(IdentityEvidence(), (0, True, 0), (1, True, 0))
    assert jobs([to(0, B, "a", 0), to(1, B, "x", 1)], evidence=evidence) == (0, 0)


def test_jobs_are_numbered_by_their_beginnings() -> None:
    pipes = to(0, B, "a", 50), to(1, C, "x", 3, 6)
    assert jobs(pipes, *met(("a", A), ("b", B), at=40)) == (1, 0)


def test_many_pipes_take_linear_time() -> None:
    count = 4000
    pipes = [
        pipe(n, f"10.1.{n >> 8}.{n & 255}:7", f"10.2.0.1:{1 + n % 60000}", f"w{n}", opened=n, ended=n + 5)
        for n in range(count)
    ]
    entries = [one for n in range(999) for one in met((f"s{n}", f"10.2.0.1:{1 + 2 * n}"), store=str(n))]
    start = time.process_time()
    assert len(placed(pipes, *entries).job_of) == count
    assert time.process_time() - start < 9
