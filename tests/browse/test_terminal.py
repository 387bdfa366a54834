"""The real program on a terminal: how it ends, where its keys come from, what it does to the terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browse.terminals import OTHER_SCREEN, ROOT, Terminal
from tests.cli.runner import CAPTURES, CHAIN

pytest.importorskip("textual")
FIRST = "basic_chain.scale("
"""Of the first call of the chain."""
LAST = "message 15: "
"""Begins the details of the last call."""


@pytest.fixture
def browsing() -> Iterator[Terminal]:
    """The chain on the screen, read to its end: calls stand below others in the list of then only."""
    with Terminal("browse", CHAIN) as terminal:
        terminal.until(FIRST)
        terminal.until("└ gradients")
        terminal.until("sent: ")
        yield terminal


def test_a_key_ends_it_and_the_terminal_is_as_it_was(browsing: Terminal) -> None:
    browsing.press("G")
    browsing.until(LAST)
    browsing.press("q")
    assert browsing.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_as_a_key_does(browsing: Terminal, number: signal.Signals) -> None:
    browsing.process.send_signal(number)
    assert browsing.ended() == 128 + number


def test_ctrl_c_is_a_key(browsing: Terminal) -> None:
    browsing.press("\x03")
    assert browsing.ended() == 130


@pytest.mark.parametrize("ignored", [(), (signal.SIGHUP,)], ids=["heard", "nohup"])
def test_it_ends_with_its_terminal(ignored: tuple[signal.Signals, ...]) -> None:
    with Terminal("browse", CHAIN, ignored=ignored) as terminal:
        terminal.until(FIRST)
        terminal.hang_up()
        assert terminal.process.wait(30.0) == 128 + signal.SIGHUP
        assert terminal.left_files() == []


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(browsing: Terminal) -> None:
    browsing.press("\x1a")
    pid, status = os.waitpid(browsing.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    while browsing.take(0.0) and browsing.settings() != browsing.before:
        pass
    assert browsing.settings() == browsing.before
    since = len(browsing.raw)
    os.kill(pid, signal.SIGCONT)
    browsing.until(FIRST, since)  # everything is drawn anew
    browsing.press("G")
    browsing.until(LAST)
    browsing.press("q")
    assert browsing.ended() == 0


def test_one_that_was_stopped_unasked_goes_on(browsing: Terminal) -> None:
    browsing.process.send_signal(signal.SIGSTOP)
    os.waitpid(browsing.process.pid, os.WUNTRACED)
    since = len(browsing.raw)
    browsing.process.send_signal(signal.SIGCONT)
    browsing.until(FIRST, since)
    browsing.press("q")
    assert browsing.ended() == 0


def test_a_pipe_is_the_capture_and_keys_come_from_the_terminal() -> None:
    data = CHAIN.read_bytes()
    half = len(data) // 2
    read, write = os.pipe()
    with Terminal("browse", "-", stdin=read) as terminal, open(write, "wb", buffering=0) as pipe:
        os.close(read)
        pipe.write(data[:half])
        terminal.until("live")
        terminal.press("a")  # housekeeping is shown, too
        terminal.until("_gather_to_leader")
        assert "gradients of context" not in terminal.text
        pipe.write(data[half:])
        terminal.until("24 messages")
        terminal.press("k")
        terminal.until("G follows it")
        pipe.close()
        terminal.until("gradients of context")  # is known once all was read
        terminal.press("q")
        assert terminal.ended() == 0


def test_ctrl_c_ends_a_growing_input_first() -> None:
    read, write = os.pipe()
    with Terminal("browse", "-", stdin=read) as terminal, open(write, "wb", buffering=0) as pipe:
        os.close(read)
        pipe.write(CHAIN.read_bytes())
        terminal.until("24 messages")
        terminal.press("\x03")
        terminal.until("gradients of context")
        terminal.press("\x03")
        assert terminal.ended() == 130


def test_a_large_window_and_a_tiny_one_while_it_is_read() -> None:
    data = CHAIN.read_bytes()
    read, write = os.pipe()
    with Terminal("browse", "-", stdin=read, columns=300, rows=80) as terminal:
        os.close(read)
        writer = threading.Thread(target=_write_slowly, args=(write, data))
        writer.start()
        for columns, rows in ((20, 5), (300, 80), (1, 1), (40, 10), (80, 24)):
            terminal.resize(columns, rows)
            terminal.take()
        writer.join()
        terminal.until("gradients of")
        terminal.press("q")
        assert terminal.ended() == 0


def _write_slowly(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb", buffering=0) as pipe:
        for at in range(0, len(data), 5000):
            pipe.write(data[at : at + 5000])


def test_ascii_only_where_the_locale_has_nothing_else() -> None:
    with Terminal("browse", CHAIN, environment={"LC_ALL": "C"}) as terminal:
        terminal.until("worker0 > worker1")
        terminal.press("8")
        terminal.until("*---------")  # of the timeline
        terminal.press("?")
        terminal.until("In this pane")
        terminal.press("q")
        terminal.press("q")
        assert terminal.ended() == 0
        assert terminal.raw.isascii()


def test_no_color() -> None:
    with Terminal("browse", CAPTURES / "ps_race.pcap.gz", environment={"NO_COLOR": "1"}) as terminal:
        terminal.until("sent: ")
        terminal.press("7")
        terminal.until("error-response")
        terminal.press("q")
        assert terminal.ended() == 0
    colours = set(re.findall(r"[34]8;2;(\d+);(\d+);(\d+)", terminal.raw))
    assert all(red == green == blue for red, green, blue in colours)
    assert not re.search(r"\x1b\[[0-9;]*[34]8;5;", terminal.raw)


@pytest.mark.parametrize("variable", ["0;15", "15;0"])
def test_light_and_dark_as_the_terminal_says(variable: str) -> None:
    with Terminal("browse", CHAIN, environment={"COLORFGBG": variable}) as terminal:
        terminal.until(FIRST)
        terminal.press("q")
        assert terminal.ended() == 0
    backgrounds = re.findall(r"48;2;(\d+);(\d+);(\d+)", terminal.raw)
    bright = sum(sum(map(int, one)) > 3 * 128 for one in backgrounds)
    assert (bright > len(backgrounds) / 2) == variable.endswith("15")


@pytest.mark.parametrize(
    ("environment", "told"),
    [({"TERM": "dumb"}, "TERM=dumb"), ({"TERM": ""}, "that it can draw on")],
)
def test_a_terminal_on_which_nothing_can_be_drawn(environment: dict[str, str], told: str) -> None:
    with Terminal("browse", CHAIN, environment=environment) as terminal:
        assert terminal.ended() == 2
        assert told in terminal.text
        assert len(terminal.text.splitlines()) == 1
        assert OTHER_SCREEN not in terminal.raw


def test_nothing_is_piped_into_it() -> None:
    with Terminal("browse", "-") as terminal:
        assert terminal.ended() == 2
        assert "nothing is piped into it" in terminal.text


def test_no_terminal_at_all() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rpcinspect", "browse", str(CHAIN)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        start_new_session=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("rpcinspect: browse needs a terminal, and standard output is not one: ")


def test_what_is_no_capture_is_told_on_the_own_screen(tmp_path: Path) -> None:
    (tmp_path / "no.pcap").write_bytes(b"nothing that anybody knows")
    with Terminal("browse", tmp_path / "no.pcap") as terminal:
        assert terminal.ended() == 3
        assert OTHER_SCREEN not in terminal.raw
