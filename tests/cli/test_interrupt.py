"""Signals while messages are shown. What a whole process does is in test_cli.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import cast

import pytest

from rpcinspect.cli.interrupt import Interrupt, ends_as_exits, ends_reading, held_back
from rpcinspect.pipeline import Decoding

FATAL = [signal.SIGPIPE, signal.SIGTERM, signal.SIGHUP]


class Reading:
    """Counts what a decoding would be told."""

    def __init__(self) -> None:
        self.stopped = self.closed = 0

    def stop(self) -> None:
        self.stopped += 1

    def close(self) -> None:
        self.closed += 1


def reading() -> tuple[Reading, Decoding]:
    made = Reading()
    return made, cast(Decoding, made)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_nothing_was_pressed() -> None:
    counted, decoding = reading()
    with ends_reading(decoding) as interrupt:
        assert not interrupt.pressed
    assert (counted.stopped, counted.closed) == (0, 0)
    assert not Interrupt().pressed


def test_the_first_press_stops_the_reading_and_the_second_everything() -> None:
    counted, decoding = reading()
    with ends_reading(decoding) as interrupt:
        press()
        assert interrupt.pressed
        assert counted.stopped == 1
        with pytest.raises(KeyboardInterrupt):
            press()
        assert counted.stopped == 1


def pressed_within(steps: list[str]) -> None:
    with held_back():
        steps.append("one")
        press()
        steps.append("two")
    steps.append("three")


def test_steps_that_belong_together_are_all_taken() -> None:
    before = signal.getsignal(signal.SIGINT)
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        pressed_within(steps)
    assert steps == ["one", "two"]
    with held_back():
        steps.append("undisturbed")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_would_end_us_is_an_exit(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as ended, ends_as_exits():
            os.kill(os.getpid(), number)
        assert ended.value.code == 128 + number
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_reader_that_is_gone_does_not_end_us() -> None:
    before = signal.getsignal(signal.SIGPIPE)
    with ends_as_exits():
        os.kill(os.getpid(), signal.SIGPIPE)
    assert signal.getsignal(signal.SIGPIPE) == before


@pytest.mark.parametrize("number", [signal.SIGINT, *FATAL])
def test_signals_are_as_before_afterwards(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    _, decoding = reading()
    with ends_reading(decoding):
        during = signal.getsignal(number)
    assert signal.getsignal(number) is before
    assert (during is before) == (before != signal.SIG_DFL and number != signal.SIGINT)
    with pytest.raises(ValueError, match="odd"), ends_reading(decoding):
        raise ValueError("odd")
    assert signal.getsignal(number) is before


def test_a_signal_that_somebody_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        counted, decoding = reading()
        with ends_reading(decoding):
            os.kill(os.getpid(), signal.SIGHUP)
        assert counted.closed == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", FATAL)
def test_a_signal_that_ends_us_closes_the_capture_first(number: signal.Signals) -> None:
    program = (
        "import os, signal, sys\n"
        "from rpcinspect.cli.interrupt import ends_reading\n"
        "class Reading:\n"
        "    def close(self): os.write(1, b'closed')\n"
        f"signal.signal({int(number)}, signal.SIG_DFL)\n"
        "with ends_reading(Reading()):\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "os.write(1, b'went on')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (-number, b"closed")
