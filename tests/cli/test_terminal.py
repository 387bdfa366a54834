"""Prompts and lines of workers on one terminal."""

from __future__ import annotations

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


def test_without_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert WorkerTerminal().input is None
