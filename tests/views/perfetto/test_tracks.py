"""Processes and threads of a trace: numbers, names, and that slices of a thread never overlap."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.views.perfetto.tracks import RUN_PID, Processes, Threads
from tests.views.opened import CAPTURES, opened

FIRST = 1000


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30), st.integers(0, 10)), max_size=60))
def test_slices_of_a_thread_never_touch(slices: list[tuple[int, int, int]]) -> None:
    threads = Threads(FIRST)
    placed = defaultdict(list)
    for pid, begin, length in sorted(slices, key=lambda one: one[1]):
        tid = threads.tid(pid, begin, begin + length)
        placed[tid].append((pid, begin, begin + length))
    known = {tid: (pid, number) for pid, tid, number in threads.all()}
    assert set(known) == set(placed)
    assert sorted(known) == list(range(FIRST, FIRST + len(known)))
    for tid, on_it in placed.items():
        assert {pid for pid, _, _ in on_it} == {known[tid][0]}
        assert all(before[2] < after[1] for before, after in pairwise(on_it))
    for pid in {pid for pid, _ in known.values()}:
        numbers = sorted(number for its, number in known.values() if its == pid)
        assert numbers == list(range(len(numbers)))
        most = max(
            sum(1 for p, low, length in slices if p == pid and low <= at <= low + length) for at in range(41)
        )
        assert len(numbers) == most


def test_workers_are_processes_in_the_order_of_the_session() -> None:
    with opened(CAPTURES / "basic_chain.pcap") as capture:
        processes = Processes(capture.session)
        assert processes.pid((0, "worker0")) == RUN_PID + 1
        assert processes.pid((0, "10.0.0.1:4711")) == RUN_PID + 3
        assert [name for _, name in processes.names()] == ["the run", "worker0", "worker1", "10.0.0.1:4711"]


def test_of_several_jobs_each_worker_tells_its_job() -> None:
    with opened(CAPTURES / "reinit.pcap.gz") as capture:
        several = len(set(capture.session.jobs)) > 1
        names = [name for _, name in Processes(capture.session).names()]
    assert len(set(names)) == len(names)
    assert all("(job " in name for name in names[1:]) == several
