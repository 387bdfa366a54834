"""`rpcinspect browse --diff`: its options, what keeps it from starting, and what it shows on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.builders import pcap_file
from tests.cli.runner import CHAIN, rpcinspect
from tests.places import CAPTURES, ROOT

PAIRS = CAPTURES / "pairs"
PATIENCE_S = 60.0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--diff", CHAIN], "to compare two contexts of one capture, give --context twice; else give B"),
        (
            ["--diff", CHAIN, CHAIN, CHAIN],
            "two runs can be compared: give A and B; several captures of one run as A1,A2",
        ),
        (["--diff", "--live", "lo", CHAIN, CHAIN], "--diff compares two captures: no --live with it"),
        (["--rtol", "1", CHAIN], "--rtol is for --diff"),
        (["--context", "0:1", CHAIN], "--context is for --diff"),
        (["--strict", CHAIN], "--strict is for --diff"),
    ],
    ids=lambda one: " ".join(map(str, one[:2])) if isinstance(one, list) else "",
)
def test_mistakes(arguments: list[object], says: str) -> None:
    ran = rpcinspect("browse", *arguments)
    assert (ran.code, ran.out, ran.err) == (2, "", f"rpcinspect: {says}\n")


class Screen:
    """A real `rpcinspect browse --diff` on a terminal of its own."""

    def __init__(self, *arguments: object) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rpcinspect", "browse", "--diff", *map(str, arguments)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=ROOT,
            env={**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(1, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.text = ""

    def until(self, wanted: str) -> None:
        """Waits until a text was drawn."""
        end = time.monotonic() + PATIENCE_S
        while wanted not in self.text:
            assert time.monotonic() < end, self.text[-2000:]
            assert self._take(), self.text[-2000:]

    def press(self, key: str) -> None:
        os.write(self._ours, key.encode())

    def ended(self) -> int:
        """Waits for the end; returns the exit code."""
        end = time.monotonic() + PATIENCE_S
        while self._take() and time.monotonic() < end:
            pass
        code = self._process.wait(PATIENCE_S)
        os.close(self._ours)
        return code

    def _take(self) -> bool:
        if not select.select([self._ours], [], [], 0.1)[0]:
            return True
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:
            return False
        self.text += re.sub(r"\x1b\[[0-9;?<>=]*[a-zA-Z]", "", data.decode(errors="replace"))
        return bool(data)


def test_it_shows_where_two_runs_part() -> None:
    screen = Screen(PAIRS / "base.pcap.gz", PAIRS / "dropout_seed.pcap.gz")
    screen.until("first difference: #77, worker1 → worker0")
    screen.until("likely not-deterministic")
    screen.press("q")
    assert screen.ended() == 0


def test_rules_and_names_are_those_of_diff() -> None:
    """`renamed` is told to be the same once its worker is."""
    screen = Screen(PAIRS / "base.pcap.gz", PAIRS / "renamed.pcap.gz", "--rename", "worker2=worker_ps")
    screen.until("the same: 182 messages of both runs")
    screen.press("\x03")
    assert screen.ended() == 130


def test_two_contexts_of_one_capture() -> None:
    screen = Screen(PAIRS / "base.pcap.gz", "--context", "0:0", "--context", "0:1")
    screen.until("base.pcap.gz context 0:0")
    screen.until("base.pcap.gz context 0:1")
    screen.press("q")
    assert screen.ended() == 0


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--rename", "worker7=x"], 2, "rpcinspect: --rename worker7=x: A has no worker worker7"),
        (["--context", "0:77"], 2, "rpcinspect: --context 0:77: there is no such context"),
        (["--ignore", "nothing"], 2, "rpcinspect: --ignore nothing: these can be ignored: "),
    ],
)
def test_what_only_the_captures_show_to_be_wrong(options: list[str], code: int, says: str) -> None:
    screen = Screen(PAIRS / "base.pcap.gz", PAIRS / "again.pcap.gz", *options)
    assert screen.ended() == code
    assert screen.text.count(says) == 1


def test_captures_that_cannot_be_compared(tmp_path: Path) -> None:
    none = tmp_path / "none.pcap"
    none.write_bytes(pcap_file([]))
    for files, says in (
        ((none, none), "rpcinspect: no RPC messages: there is nothing to compare"),
        ((CHAIN, tmp_path / "absent"), "absent: No such file or directory"),
    ):
        screen = Screen(*files)
        assert screen.ended() == 3
        assert says in screen.text
