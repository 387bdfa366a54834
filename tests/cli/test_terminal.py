"""Prompts and lines of workers on one terminal."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from rpcinspect.cli.terminal import WorkerTerminal


def test_a_line_comes_above_the_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = WorkerTerminal()
    terminal.write("worker1 holds\n(worker1) ")
    terminal.show("worker2", "printed meanwhile")
    terminal.say("ours")
    terminal.typed("p x")
    terminal.write("1\n")
    terminal.show("worker2", "later")
    assert capsys.readouterr().err.splitlines() == [
        "worker1 holds",
        "(worker1) ",
        "worker2 | printed meanwhile",
        "(worker1) ",
        "rpcinspect: ours",
        "(worker1) p x",
        "1",
        "worker2 | later",
    ]


def test_nothing_that_is_shown_is_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = WorkerTerminal()
    terminal.write("\x1b[2Ja\tb\x07\nnext")
    terminal.typed("\x1b[31m")
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert shown.splitlines()[1].startswith("next")


NOBODY_READS = """
import os, time
from rpcinspect.cli.interrupt import ends_as_exits
from rpcinspect.cli.terminal import WorkerTerminal
from rpcinspect.replayer.workers.outputs import Outputs

with ends_as_exits(), Outputs(WorkerTerminal().show) as outputs:
    for name in "abc":
        os.write(outputs.new(name).writer, (b"x" * 1000 + b"\\n") * 60)
    print("ready", flush=True)
    time.sleep(60)
"""


def test_a_signal_ends_us_though_nobody_reads_the_lines() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", NOBODY_READS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.5)  # until the pipe is full
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 128 + signal.SIGTERM
        finally:
            process.kill()


def test_without_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert WorkerTerminal().input is None
