"""Hashes over pieces, and those that other threads work out: the same ones, and nobody is left behind."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.errors import CaptureError
from rpcinspect.tcp.ranges import CaptureBytes, Extent
from rpcinspect.views.jsonl import hashes
from rpcinspect.views.jsonl.hashes import HashThreads, hash_range
from tests.thorough import examples

DATA = bytes(range(256)) * 4
SOURCE = CaptureBytes(lambda capture, offset, length: DATA[offset : offset + length])
ENDLESS = Extent(1 << 50, ((0, 0, 1 << 50),))
"""Of which nobody lives to see the hash."""


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(1, 30), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_a_hash_over_pieces_is_that_of_the_bytes(lengths: list[int], most: int, pick: st.DataObject) -> None:
    pieces = tuple((0, pick.draw(st.integers(0, 900)), length) for length in lengths if length)
    extent = Extent(sum(lengths), pieces)
    start = pick.draw(st.integers(0, extent.length))
    end = pick.draw(st.integers(start, extent.length))
    whole = b"".join(DATA[offset : offset + length] for _, offset, length in pieces)
    with mock.patch.object(hashes, "FEW", most):
        assert hash_range(extent, start, end, SOURCE) == hashlib.sha256(whole[start:end]).hexdigest()
        assert hash_range(extent, start, end, SOURCE, 3) == hashlib.sha256(whole[start:end] * 3).hexdigest()


def one_after_the_other(length: int) -> Extent:
    return Extent(length, tuple((0, at, 1) for at in range(length)))


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_marks_stand_for_what_becomes_known(jobs: int) -> None:
    extents = [one_after_the_other(length) for length in range(40)]
    with HashThreads(SOURCE, jobs) as threads:
        told = [threads.of(row, extent, 0, extent.length) for row, extent in enumerate(extents)]
        assert all(len(one) == 64 for one in told)
        for row, mark, digest in threads.known(wait=True):
            assert told[row].encode() == mark
            told[row] = digest.decode()
        assert list(threads.known(wait=True)) == []
    assert told == [hashlib.sha256(DATA[:length]).hexdigest() for length in range(40)]


def test_as_many_threads_as_jobs_and_none_where_nothing_is_large() -> None:
    others = threading.active_count()  # other tests of this process may have left some
    with alone(), HashThreads(SOURCE, 3) as threads:
        assert threading.active_count() == others
        threads.of(0, ENDLESS, 0, 1 << 50)
        threads.of(1, ENDLESS, 0, 1 << 50)
        small = one_after_the_other(3)
        told = [threads.of(row, small, 0, 3) for row in range(2, 8)]
        assert threading.active_count() == others + 2
        assert told.count(hashlib.sha256(DATA[:3]).hexdigest()) == 4  # there is no point in waiting longer


def test_nothing_is_left_of_what_nobody_waits_for() -> None:
    with alone(), HashThreads(SOURCE, 4) as threads:
        for row in range(6):
            threads.of(row, ENDLESS, 0, 1 << 50)
        time.sleep(0.05)
    threads.close()


@contextmanager
def alone() -> Iterator[None]:
    """In the end there are no more threads than before."""
    before = threading.enumerate()
    yield
    assert threading.enumerate() == before


def fails(error: Exception) -> Callable[[int, int, int], bytes]:
    def pread(capture: int, offset: int, length: int) -> bytes:
        raise error

    return pread


@pytest.mark.parametrize("error", [CaptureError("it has become shorter"), MemoryError(), ValueError("x")])
@pytest.mark.parametrize("wait", [False, True])
def test_an_error_comes_to_who_asks(error: Exception, wait: bool) -> None:
    with alone(), HashThreads(CaptureBytes(fails(error)), 2) as threads:
        threads.of(0, one_after_the_other(3), 0, 3)
        with pytest.raises(type(error)):  # noqa: PT012
            for _ in range(200):
                assert list(threads.known(wait=wait)) == []
                time.sleep(0.01)


def test_a_system_without_threads_is_one_of_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with HashThreads(SOURCE, 3) as threads:
        assert threads.of(0, one_after_the_other(5), 1, 5) == hashlib.sha256(DATA[1:5]).hexdigest()
        assert list(threads.known(wait=True)) == []


def test_control_c_ends_the_waiting() -> None:
    press = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    began = time.monotonic()
    with alone(), HashThreads(SOURCE, 2) as threads:
        threads.of(0, ENDLESS, 0, 1 << 50)
        time.sleep(0.05)  # a thread has begun, so that this one can only wait
        press.start()
        with pytest.raises(KeyboardInterrupt):
            list(threads.known(wait=True))
        press.join()
    assert time.monotonic() - began < 10
