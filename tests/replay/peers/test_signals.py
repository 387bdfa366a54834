"""Signals are held back, take effect where that is allowed, and are never lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from rpcinspect.replay.peers.signals import HeldSignals


@pytest.fixture
def terminated() -> Iterator[list[int]]:
    """A handler for SIGTERM, as a command has one."""
    came: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = signal.signal(signal.SIGTERM, handler)
    yield came
    signal.signal(signal.SIGTERM, before)


def test_a_signal_waits_for_the_next_check(terminated: list[int]) -> None:
    with HeldSignals() as held:
        held.check()
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert terminated == []
        held.check(1.5)
        assert terminated == [signal.SIGTERM]
        held.check()
    assert terminated == [signal.SIGTERM]
    signal.raise_signal(signal.SIGTERM)
    assert terminated == [signal.SIGTERM] * 2


def test_the_key_of_interruption() -> None:
    with HeldSignals() as held:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            held.check()


def test_nothing_takes_effect_while_it_is_quiet() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), HeldSignals() as held:  # noqa: PT012
        with held.quiet():
            signal.raise_signal(signal.SIGINT)
            held.check()
            done.append("quiet")
        done.append("after")
    assert done == ["quiet", "after"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_errors_do_not_hide_a_signal(terminated: list[int]) -> None:
    with pytest.raises(ValueError, match="something else"), HeldSignals():  # noqa: PT012
        signal.raise_signal(signal.SIGTERM)
        raise ValueError("something else")
    assert terminated == [signal.SIGTERM]
    with pytest.raises(SystemExit), HeldSignals():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        raise SystemExit(1)  # it ends already


def test_signals_that_end_the_process_at_once_are_not_held() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with HeldSignals():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_have_none_to_hold() -> None:
    seen = []

    def work() -> None:
        with HeldSignals() as held, held.quiet():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
