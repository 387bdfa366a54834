"""Which job an entry of a store is of: what is set again, what is left from before, groups that grow."""

from __future__ import annotations

import time

from msgspec.structs import replace

from rpcinspect.session.model import Arrival
from rpcinspect.session.store_jobs import StoreJob, split_jobs
from rpcinspect.store.directory import StoreEntry
from tests.session.records import entry, met

A, B = "10.0.0.1:4000", "10.0.0.2:5000"
C, D = "10.0.0.1:4001", "10.0.0.2:5001"


def jobs(*entries: StoreEntry) -> list[StoreJob]:
    return split_jobs(entries)


def places(job: StoreJob) -> dict[str, str]:
    return {published.name: published.place for published in job.published()}


def test_nothing_told_is_no_job() -> None:
    assert jobs() == []
    assert jobs(entry("names/0", "", operation="get")) == []


def test_a_job_and_what_it_published() -> None:
    (job,) = jobs(*met(("a", A), ("b", B)), *met(("a", A), ("b", B), at=5, operation="get"))
    assert (job.begin_ns, job.begun, job.dynamic, job.names()) == (0, True, False, {"a", "b"})
    assert places(job) == {"a": A, "b": B}
    assert [(p.since_ns, p.told) for p in job.published()] == [(1, True), (1, True)]
    assert len(job.entries) == 4  # what repeats them only says that somebody was there
    assert job.times[-1] == 6


def test_the_same_names_again_are_the_next_job() -> None:
    """Also those that are set to what they were: ids are told before addresses are."""
    first, second = jobs(*met(("a", A), ("b", B)), *met(("a", C), ("b", D), at=10))
    assert (places(first), places(second)) == ({"a": A, "b": B}, {"a": C, "b": D})
    assert [e.key for e in second.entries][:2] == ["/rpc_prefix_0/names/0", "/rpc_prefix_0/names/1"]
    assert second.begun


def test_ranks_that_were_swapped() -> None:
    first, second = jobs(*met(("a", A), ("b", B)), *met(("b", A), ("a", B), at=10))
    assert (places(first), places(second)) == ({"a": A, "b": B}, {"b": A, "a": B})


def test_each_group_of_one_job() -> None:
    again = [
        entry(e.key.rpartition("rpc_prefix_0/")[2], e.value.decode(), group=1, at=9) for e in met(("a", C))
    ]
    (job,) = jobs(*met(("a", A)), *again)
    assert [(p.group, p.place) for p in job.published()] == [(0, A), (1, C)]


def test_a_later_group_is_no_beginning() -> None:
    (job,) = jobs(entry("names/0", "a", group=1))
    assert not job.begun


def test_each_attempt_of_a_store_that_stays() -> None:
    first, second = jobs(
        *met(("a", A), root="/worker/attempt_0"), *met(("a", C), root="/worker/attempt_1", at=10)
    )
    assert (places(first), places(second)) == ({"a": A}, {"a": C})


def test_what_the_workers_before_have_left_is_not_the_next_jobs() -> None:
    """A restart reads the address that its peer had before, until that sets its own."""
    first, second = jobs(
        *met(("a", A), ("b", B)),
        entry("names/0", "a", at=10),
        entry("addrs/a", f"uv://{C}", at=11),
        entry("names/1", "b", at=12, operation="get"),
        entry("addrs/b", f"uv://{B}", at=13, operation="get"),
        entry("names/1", "b", at=14),
        entry("addrs/b", f"uv://{D}", at=15),
    )
    assert (places(first), places(second)) == ({"a": A, "b": B}, {"a": C, "b": D})


def test_what_is_read_late_of_the_job_before_changes_nothing() -> None:
    first, second = jobs(
        *met(("a", A)), *met(("a", C), at=10), entry("addrs/a", f"uv://{A}", at=20, operation="get")
    )
    assert (places(first), places(second)) == ({"a": A}, {"a": C})


def test_another_value_that_is_read_only() -> None:
    """As on a host that sees no worker of the others set anything."""
    assert len(jobs(*met(("a", A), operation="get"), *met(("a", C), at=10, operation="get"))) == 2


def test_two_stores_are_two_jobs() -> None:
    assert len(jobs(*met(("a", A), store="h:1"), *met(("a", C), store="h:2"))) == 2


def test_two_addresses_of_one_store() -> None:
    """Rank 0 calls it by another address than the others do: each reads there what the other has set."""
    own, other = "127.0.1.1:29500", "10.0.0.1:29500"
    (job,) = jobs(
        *met(("a", A), store=own),
        entry("names/1", "b", store=own, operation="get", at=2),
        entry("addrs/b", f"uv://{B}", store=own, operation="get", at=3),
        entry("names/1", "b", store=other),
        entry("addrs/b", f"uv://{B}", store=other, at=1),
        *met(("a", A), store=other, operation="get", at=2),
    )
    assert (job.names(), places(job)) == ({"a", "b"}, {"a": A, "b": B})
    assert [e.time_ns for e in job.entries] == sorted(e.time_ns for e in job.entries)


def test_two_jobs_that_set_the_same_in_two_stores() -> None:
    assert len(jobs(*met(("a", A), store="h:1"), *met(("a", A), store="h:2", at=10))) == 2


# --- groups without a fixed size ---


def member(name: str, number: int, address: str, everybody: str, at: int) -> tuple[StoreEntry, ...]:
    return (
        entry(f"names/{number}", name, at=at, operation="compare_set"),
        entry(f"names/{number}", name, at=at + 1),
        entry("names/_ALL_WORKER_INFOS", everybody, at=at + 2),
        entry(f"addrs/{name}", f"uv://{address}", at=at + 3),
    )


def test_a_member_that_leaves_and_comes_back() -> None:
    (job,) = jobs(
        *member("a", 0, A, "a-0,", 0),
        *member("b", 1, B, "a-0,b-1,", 10),
        entry("names/_ALL_WORKER_INFOS", "a-0,", at=20),
        *member("b", 1, D, "a-0,b-1,", 30),
    )
    published = [(p.name, p.place, p.since_ns) for p in job.published()]
    assert published == [
        ("a", A, 3),
        ("b", B, 13),
        ("b", D, 33),
    ]
    assert job.dynamic
    assert not job.begun


def test_a_member_that_never_left_is_of_the_next_job() -> None:
    first, second = jobs(*member("a", 0, A, "a-0,", 0), *member("a", 0, C, "a-0,", 10))
    assert (places(first), places(second)) == ({"a": A}, {"a": C})


def test_when_all_have_left_the_job_is_over() -> None:
    gone = entry("names/_ALL_WORKER_INFOS", "", at=5)
    assert len(jobs(*member("a", 0, A, "a-0,", 0), gone, *member("a", 0, C, "a-0,", 10))) == 2


def test_a_member_with_another_id() -> None:
    assert len(jobs(*member("a", 0, A, "a-0,", 0), *member("a", 1, C, "a-1,", 10))) == 2


def test_an_id_whose_worker_never_left() -> None:
    """All were killed, and another job is at that store."""
    assert len(jobs(*member("a", 0, A, "a-0,", 0), *member("x", 0, C, "x-0,", 10))) == 2
    listed = entry("names/_ALL_WORKER_INFOS", "a-0,b-1,", operation="get", at=0)
    first, second = jobs(listed, *member("a", 0, C, "a-0,", 10))  # it is seen from its middle on
    assert (first.whole, second.whole) == (False, True)


def test_a_member_that_adds_itself_to_the_list() -> None:
    """As a replay does; the others stay members."""
    (job,) = jobs(
        *member("a", 0, A, "a-0,", 0),
        entry("names/7", "guest", at=10),
        entry("names/_ALL_WORKER_INFOS", "guest-7,", operation="append", at=11),
        entry("names/_ALL_WORKER_INFOS", "a-0,", operation="compare_set", at=20),
        entry("names/6", "guest", at=30),
        entry("names/_ALL_WORKER_INFOS", "guest-6,", operation="append", at=31),
    )
    assert job.listed == {0: (("a", 0), ("guest", 6))}
    assert job.whole


def test_a_member_that_comes_back_to_the_same_address() -> None:
    (job,) = jobs(
        *member("a", 0, A, "a-0,", 0),
        *member("b", 2, B, "a-0,b-2,", 10),
        entry("names/_ALL_WORKER_INFOS", "a-0,", at=20),
        *member("b", 1, B, "a-0,b-1,", 30),
    )
    assert [(p.place, p.since_ns) for p in job.published()] == [(A, 3), (B, 13), (B, 33)]


def test_many_entries_take_linear_time() -> None:
    entries = [
        entry(f"names/{n}", f"w{n}", at=k, operation="set" if k == 0 else "get")
        for n in range(400)
        for k in range(100)
    ]
    start = time.process_time()
    (job,) = split_jobs(entries)
    assert time.process_time() - start < 4
    assert len(job.entries) == 400


def test_arrivals_are_those_of_connections() -> None:
    """All tell their names at one time, by connections that they opened before."""
    told = [
        replace(entry(f"names/{n}", name, at=90, store=A), since_ns=since, pause_ns=n)
        for n, (name, since) in enumerate((("a", 5), ("b", 70)))
    ]
    (job,) = jobs(*told)
    assert job.arrivals() == {
        (0, "a"): Arrival(store=A, time_ns=5, pause_ns=0),
        (0, "b"): Arrival(store=A, time_ns=70, pause_ns=1),
    }


def test_arrivals_that_are_not_known() -> None:
    """By a connection that was there before the capture, or for a later group by that of an earlier one; and
    groups that wait for nobody."""
    first = replace(entry("names/0", "a", at=90), since_ns=5)
    later = replace(entry("names/0", "a", group=1, at=99), since_ns=5)
    (job,) = jobs(first, later, entry("names/1", "b", at=91))
    assert job.arrivals().keys() == {(0, "a")}
    (job,) = jobs(first, entry("names/_ALL_WORKER_INFOS", "a-0,", at=91))
    assert job.arrivals() == {}
