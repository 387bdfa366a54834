"""A press of Ctrl-C comes where Python can't raise its exception: it must be heard all the same."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType

import pytest

from rpcinspect import exit_codes
from rpcinspect.cli.guard import guarded
from rpcinspect.cli.interrupt import ends_as_exits, held_back
from rpcinspect.replayer.peers.loop import Loop
from rpcinspect.signals import never_lost


class Gone:
    """Runs a function when it goes."""

    def __init__(self, went: Callable[[], None]) -> None:
        self._went = went

    def __del__(self) -> None:
        self._went()


def lost_in_weakref(number: int = signal.SIGINT) -> None:
    """A signal while a callback of a weak reference runs, as in the sets that `threading` and `abc` keep."""
    thing = Gone(lambda: None)
    reference = weakref.ref(thing, lambda _: signal.raise_signal(number))
    del thing
    assert reference() is None


def lost_in_del(number: int = signal.SIGINT) -> None:
    """The same while a `__del__` runs."""
    Gone(lambda: signal.raise_signal(number))


LOSING = pytest.mark.parametrize("press", [lost_in_weakref, lost_in_del])
WAITS: dict[str, Callable[[], object]] = {
    "loop": lambda: Loop().wait(20.0),
    "sleep": lambda: time.sleep(20.0),
    "socket": lambda: socket.socketpair()[0].recv(1),
}


@LOSING
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_it_ends_whatever_waits(press: Callable[[], None], wait: str) -> None:
    before = sys.unraisablehook
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), never_lost():  # noqa: PT012
        press()
        WAITS[wait]()
    assert time.monotonic() - began < 10.0
    assert sys.unraisablehook is before


@LOSING
def test_it_comes_at_the_end_where_that_is_near(press: Callable[[], None]) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), never_lost():  # noqa: PT012
        press()
        done.append("within")
    time.sleep(0.1)  # it comes once
    assert done == ["within"]


def test_one_that_is_lost_again_comes_again() -> None:
    presses: list[int] = []

    def lose_two(number: int, frame: FrameType | None) -> None:
        presses.append(number)
        if len(presses) == 2:  # what was sent again is lost, too
            lost_in_del()
            return
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, lose_two)
    try:
        with pytest.raises(KeyboardInterrupt), never_lost():  # noqa: PT012
            lost_in_weakref()
            time.sleep(20.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(presses) == 4


def test_an_exit_for_a_signal_is_not_lost_either() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as ended, never_lost(), ends_as_exits():  # noqa: PT012
            lost_in_weakref(signal.SIGTERM)
            Loop().wait(20.0)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == exit_codes.INTERRUPTED - signal.SIGINT + signal.SIGTERM


def test_who_holds_it_back_gets_it() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), never_lost():  # noqa: PT012
        lost_in_weakref()
        with held_back():
            time.sleep(0.1)
            done.append("the steps")
        done.append("what follows")
    assert done == ["the steps"]


def test_an_error_does_not_hide_it() -> None:
    with pytest.raises(KeyboardInterrupt) as pressed, never_lost():  # noqa: PT012
        lost_in_del()
        raise ValueError("ours")
    assert isinstance(pressed.value.__context__, ValueError)
    with pytest.raises(SystemExit), never_lost():  # noqa: PT012
        lost_in_del()
        raise SystemExit(1)  # it ends already
    time.sleep(0.1)  # it comes once


def test_other_errors_are_told_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(unraisable.exc_value))

    def broken() -> None:
        raise ZeroDivisionError

    def exits() -> None:
        raise SystemExit(3)

    with never_lost():
        Gone(broken)
        Gone(exits)
    assert [type(error) for error in told] == [ZeroDivisionError, SystemExit]


def test_other_threads_have_nothing_to_hear() -> None:
    seen = []

    def work() -> None:
        with never_lost():
            seen.append(sys.unraisablehook)

    before = sys.unraisablehook
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_every_command_hears_it() -> None:
    def command() -> int:
        lost_in_weakref()
        time.sleep(20.0)
        return 0

    began = time.monotonic()
    assert guarded(command) == exit_codes.INTERRUPTED
    assert time.monotonic() - began < 10.0
