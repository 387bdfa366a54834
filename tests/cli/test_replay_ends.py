"""However `rpcinspect replay` ends, nothing is left behind: no process, no file, the terminal as it was."""

from __future__ import annotations

import os
import pty
import random
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from tests.cli.runner import CAPTURES, CHAIN, rpcinspect
from tests.forks import command, forks
from tests.places import recorded
from tests.replayer.left_behind import descendants
from tests.thorough import some

pytest.importorskip("torch")

SECONDS = 60.0
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
"""Of the terminal's cursor."""
LOCKED = CAPTURES / "ps_race_lock.pcap.gz"
"""A replay that takes seconds."""


@dataclass
class Run:
    """A replay in a session of its own whose errors go to a terminal, with a folder for temporary files."""

    process: subprocess.Popen[str]
    temporary: Path
    terminal: int
    before: list[object]
    shown: list[bytes]
    others: set[int]
    """Processes that the one that forks live workers had before."""

    def seen(self) -> str:
        return b"".join(self.shown).decode(errors="replace")

    def below(self) -> set[int]:
        """The processes that it has, wherever they were forked."""
        return descendants(self.process.pid) | descendants(forks().pid) - self.others

    def wait_for(self, workers: int) -> set[int]:
        """Until it has so many processes, the parent of all workers included."""
        end = time.monotonic() + SECONDS
        while len(found := self.below()) < workers and time.monotonic() < end:
            time.sleep(0.01)
        assert len(found) >= workers
        return found

    def check_ended(self, below: set[int]) -> str:
        """Standard output, once everything has gone."""
        out, _ = self.process.communicate(timeout=SECONDS)
        end = time.monotonic() + SECONDS / 2
        while time.monotonic() < end and (alive(below) or os.listdir(self.temporary)):
            time.sleep(0.02)
        assert alive(below) == set()
        assert os.listdir(self.temporary) == []
        assert termios.tcgetattr(self.terminal) == self.before
        return out


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if os.path.exists(f"/proc/{pid}")}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[object]:
    """Starts a `Run` with arguments."""
    started: list[Run] = []
    folder = tmp_path / "tmp"

    def start(*arguments: object) -> Run:
        folder.mkdir()
        master, terminal = pty.openpty()
        before, others = termios.tcgetattr(terminal), descendants(forks().pid)
        process = command(
            *("replay", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=terminal,
            encoding="utf-8",
            cwd=CAPTURES.parent,
            start_new_session=True,
            env=os.environ | {"TMPDIR": str(folder), "TERM": "xterm"},
        )
        one = Run(process, folder, terminal, before, [], others)
        started.append(one)

        def read() -> None:
            try:
                while data := os.read(master, 4096):
                    one.shown.append(data)
            except OSError:
                pass
            os.close(master)

        threading.Thread(target=read, daemon=True).start()
        return one

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()
        os.close(one.terminal)


def sleeping(folder: Path) -> Sequence[object]:
    """Arguments for a replay whose live worker never answers, and a file that says when it is asked."""
    source = folder / "src"
    source.mkdir()
    began = folder / "began"
    (source / "basic_chain.py").write_text(
        f"import time\n\ndef scale(x, weight, gain=1.0):\n    open({str(began)!r}, 'w').close()\n"
        "    time.sleep(1000)\n",
        encoding="utf-8",
    )
    return CHAIN, "--path", source


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_signals_while_a_live_worker_works(number: int, run: object, tmp_path: Path) -> None:
    replay = run(*sleeping(tmp_path))  # type: ignore[operator]
    below = replay.wait_for(3)
    end = time.monotonic() + SECONDS
    while not (tmp_path / "began").exists() and time.monotonic() < end:
        time.sleep(0.01)
    replay.process.send_signal(number)
    replay.check_ended(below)
    assert replay.process.returncode == (-number if number == signal.SIGKILL else 128 + number)


def test_the_cursor_comes_back(run: object) -> None:
    """A bar hides it; the signal comes while that is drawn."""
    replay = run(LOCKED, "--path", CAPTURES, "--repeat", "50")  # type: ignore[operator]
    end = time.monotonic() + SECONDS
    while HIDE not in replay.seen() and time.monotonic() < end:
        time.sleep(0.01)
    below = replay.below()
    replay.process.send_signal(signal.SIGTERM)
    replay.check_ended(below)
    assert replay.process.returncode == 128 + signal.SIGTERM
    time.sleep(0.2)
    assert replay.seen().rfind(SHOW) > replay.seen().rfind(HIDE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tenth", "number"), some(list(product(range(0, 10, 2), (signal.SIGINT, signal.SIGKILL))), 3)
)
def test_signals_at_any_moment(tenth: int, number: int, run: object) -> None:
    """As from a terminal: to all processes of the foreground. Quick, each signal at two of five times."""
    replay = run(LOCKED, "--path", CAPTURES)  # type: ignore[operator]
    below: set[int] = set()
    end = time.monotonic() + SECONDS
    while not below and tenth and time.monotonic() < end:
        time.sleep(0.01)
        below = replay.below()
    time.sleep(random.uniform(0.1 * tenth, 0.1 * tenth + 0.2) + (0 if tenth else 0.2))
    below = replay.below()
    if replay.process.poll() is None:
        os.killpg(replay.process.pid, number)
    out = replay.check_ended(below)
    assert "Traceback" not in replay.seen()
    last = out.splitlines()[-1] if out else ""
    if last.startswith("identical: "):  # a fast machine has the whole report before the last moments
        return
    codes = {-number} if number == signal.SIGKILL else {130, -signal.SIGINT}
    assert replay.process.returncode in codes  # Python itself turns some into the signal: a shell shows 130
    assert last == "" or last.startswith("interrupted; ")


# --- what goes wrong by itself ------------------------------------------------------------------------------


@pytest.mark.usefixtures("nothing_left")
def test_a_worker_that_never_answers(tmp_path: Path) -> None:
    began = time.monotonic()
    ran = rpcinspect("replay", *sleeping(tmp_path), "--timeout", "1")
    assert ran.code == 1
    assert "no answer within 1.0 s" in ran.out
    assert time.monotonic() - began < SECONDS


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise RuntimeError('no such data set')", "importing train: RuntimeError: no such data set"),
        (
            "import sys; sys.exit('usage: train.py DATA')",
            "importing train exited with 1: guard its script code",
        ),
        ("import nowhere", "importing train: ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_a_main_script_that_fails(text: str, reason: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"def f(a, b):\n    return a * b\n\n{text}\n", encoding="utf-8")
    ran = rpcinspect("replay", recorded("torch/dyn.pcap"), "--main", script)
    assert ran.code == 1
    assert reason in ran.out
    assert "worker_main" not in ran.out + ran.err  # the script's own lines, none of ours


@pytest.mark.usefixtures("nothing_left")
def test_a_script_that_lacks_what_is_called() -> None:
    scripts = recorded("torch/scripts")
    ran = rpcinspect("replay", recorded("torch/dyn.pcap"), "--main", scripts / "nested.py")
    assert ran.code == 4
    assert "REFUSED  __mp_main__.f " in ran.out
