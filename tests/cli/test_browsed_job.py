"""`record --browse` on a real terminal: the command, its output, its end, and ours."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browse.terminals import OTHER_SCREEN, OWN_SCREEN, PATIENCE_S, Terminal
from tests.cli.runner import decode

pytest.importorskip("textual")
pytest.importorskip("torch")

WORKERS = """
import os, sys, time
import torch, torch.distributed.rpc as rpc

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29872")
rank = 0 if os.fork() else 1
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
if rank == 0:
    for step in range(3):
        rpc.rpc_sync("worker1", torch.add, (torch.ones(3), step))
        print("step", step)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
rpc.shutdown()
if rank == 0:
    os.wait()
    sys.exit(7)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "run.rpclog"


def record(log: Path, *command: object) -> Terminal:
    return Terminal("record", "--browse", "--via", "agent", "-o", log, "--", *command, columns=120)


@pytest.fixture
def shell(log: Path) -> Iterator[Terminal]:
    """A command that goes on until it is ended, and says what ends it."""
    script = "trap 'echo heard it; exit 9' INT TERM HUP; echo it runs; while :; do sleep 0.1; done"
    with record(log, "sh", "-c", script) as terminal:
        terminal.until("no messages  ·  live")
        yield terminal


def output(log: Path) -> str:
    return log.with_name(f"{log.name}.out").read_text()


@pytest.mark.slow
def test_messages_come_while_the_job_runs_and_all_is_there_at_its_end(log: Path, tmp_path: Path) -> None:
    script, go_on = tmp_path / "job.py", tmp_path / "go on"
    script.write_text(WORKERS)
    with record(log, sys.executable, script, go_on) as terminal:
        terminal.until("aten::add")
        terminal.press("o")
        terminal.until("step 2")  # of its output, which a terminal gets line by line
        terminal.press("q")
        go_on.touch()
        terminal.until("sent: ")  # all is known once it has ended
        terminal.press("q")
        assert terminal.ended() == 7
        screen, after = terminal.raw.split(OWN_SCREEN)
    assert "recorded" in after
    assert "recorded" not in screen
    calls = [one for one in decode(log, "--format", "jsonl").objects if one.get("type") == "SCRIPT_CALL"]
    assert len(calls) == 3
    assert "step 0\nstep 1\nstep 2\n" in output(log).replace("\r\n", "\n")


def test_ctrl_c_reaches_the_command_first(shell: Terminal, log: Path) -> None:
    shell.press("\x03")
    shell.until("Ctrl-C was sent to the command")
    shell.until("no RPC messages")
    shell.press("\x03")
    assert shell.ended() == 9
    assert output(log).splitlines().count("heard it") == 1


def test_the_command_goes_on_where_the_screen_is_left(shell: Terminal, log: Path) -> None:
    shell.press("q")
    shell.until("the command goes on")
    shell.press("\x03")
    shell.until("heard it")
    assert shell.ended() == 9


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on(shell: Terminal, log: Path, number: signal.Signals) -> None:
    shell.process.send_signal(number)
    assert shell.ended() == 9
    assert "heard it" in output(log)


def test_a_lost_connection_ends_the_command(shell: Terminal, log: Path) -> None:
    below = shell.children()
    assert below
    shell.hang_up()
    assert shell.process.wait(PATIENCE_S) == 9
    end = time.monotonic() + PATIENCE_S
    while any(os.path.exists(f"/proc/{pid}") for pid in below) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in below)
    assert "heard it" in output(log)


def test_a_command_whose_browser_is_killed_ends(shell: Terminal, log: Path) -> None:
    below = shell.children()
    shell.process.kill()
    shell.process.wait()
    end = time.monotonic() + PATIENCE_S
    while any(os.path.exists(f"/proc/{pid}") for pid in below) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in below)


def test_what_cannot_begin_is_told_without_a_screen(tmp_path: Path, log: Path) -> None:
    with record(log, tmp_path / "none") as terminal:
        assert terminal.ended() == 127
        assert OTHER_SCREEN not in terminal.raw
        assert "no such command" in terminal.text
    with record(tmp_path / "no folder" / "run.rpclog", "true") as terminal:
        assert terminal.ended() == 2
        assert OTHER_SCREEN not in terminal.raw
        assert "can't be written" in terminal.text


def test_a_recording_that_hides_values_is_not_shown(log: Path) -> None:
    with Terminal("record", "--browse", "--redact", "-o", log, "--", "true") as terminal:
        assert terminal.ended() == 2
        assert "leave out --redact" in terminal.text
