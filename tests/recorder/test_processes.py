"""How processes ended that somebody else is the parent of: what they were made to do is the truth."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcinspect.recorder.processes import (
    START,
    CommandProcesses,
    Process,
    ProcessNote,
    is_running,
    process_stat,
    read_notes,
    zombie_status,
)
from rpcinspect.recorder.record import STARTUP
from rpcinspect.session.process_end import ProcessEnd

PARENT = """
import multiprocessing, os, signal, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
import rpcinspect_notes
from rpcinspect_notes import Notes
if sys.argv[3] == "no handles":
    rpcinspect_notes.hand_over = lambda path, started: None
notes = Notes(sys.argv[2])
def child(how):
    notes.unrecorded(how)
    if how == "killed": os.kill(os.getpid(), signal.SIGKILL)
    if how == "real-time": os.kill(os.getpid(), signal.SIGRTMIN + 3)
    if how == "leaves": os._exit(4)
    if how == "exits": sys.exit(3)
    if how == "raises": raise ValueError("on purpose")
if __name__ == "__main__":
    for how in ("killed", "real-time", "leaves", "exits", "raises", "ends"):
        process = multiprocessing.get_context("fork").Process(target=child, args=(how,))
        process.start()
        process.join()
    notes.unrecorded("main")
    raise KeyError("on purpose")
"""


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[CommandProcesses]:
    made = CommandProcesses(tmp_path)
    yield made
    made.close()


def ended(processes: CommandProcesses, folder: Path, handles: str) -> dict[str, ProcessEnd]:
    """By what each process was to do."""
    processes.watch()
    run = [sys.executable, "-c", PARENT, str(STARTUP), str(folder), handles]
    subprocess.run(run, check=False, timeout=60, stderr=subprocess.DEVNULL)
    notes = read_notes(folder)
    ends = processes.ends(notes, {})
    return {str(note.why): ends[note.pid, note.started or 0] for note in notes}


def keeps_statuses() -> bool:
    """Linux 6.15 or later."""
    return tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 15)


def test_children_of_others_by_their_handles(tmp_path: Path, processes: CommandProcesses) -> None:
    if not keeps_statuses():
        pytest.skip("this kernel forgets the status of a process once its parent has it")
    found = ended(processes, tmp_path, "handles")
    assert {how: str(one) for how, one in found.items()} == {
        "killed": "killed by SIGKILL",
        "real-time": "killed by SIG37",
        "leaves": "exit status 4",
        "exits": "exit status 3",
        "raises": "exit status 1 (ValueError)",
        "ends": "exit status 0",
        "main": "exit status 1 (KeyError)",
    }
    times = [one.time_ns or 0 for one in found.values()]
    assert 0 < times[0] < times[-1]


def test_without_handles_what_a_process_says_of_itself(tmp_path: Path, processes: CommandProcesses) -> None:
    """Nobody says how one ended that was killed, or left at once: no guess."""
    found = ended(processes, tmp_path, "no handles")
    assert {how: str(one) for how, one in found.items()} == {
        "killed": "unknown",
        "real-time": "unknown",
        "leaves": "unknown",
        "exits": "exit status 3",
        "raises": "exit status 1 (ValueError)",
        "ends": "ended by itself",
        "main": "ended by itself (KeyError)",
    }


def process_of(pid: int) -> Process:
    stat = process_stat(pid)
    assert stat is not None
    return pid, int(stat[START])


def note_of(process: Process) -> ProcessNote:
    return ProcessNote(pid=process[0], started=process[1], recorded=True)


def test_children_of_ours_by_their_status(processes: CommandProcesses) -> None:
    process = (1 << 22) + 1, 7
    ends = processes.ends([note_of(process)], {process: (9, 5)})
    assert ends[process] == ProcessEnd(how="signal", signal="SIGKILL", time_ns=5, pid=process[0])


def test_one_that_runs_and_one_that_nobody_has_waited_for(processes: CommandProcesses) -> None:
    mine = process_of(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "import os; os._exit(9)"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        other = process_of(child.pid)
        assert zombie_status(other) == 9 << 8
        assert not is_running(*other)
        ends = processes.ends([note_of(mine), note_of(other)], {})
    assert (ends[mine].how, ends[other].status) == ("running", 9)
    assert zombie_status(other) is None


def test_an_id_that_is_used_again_is_another_process(processes: CommandProcesses) -> None:
    pid, start = process_of(os.getpid())
    before = pid, start - 1
    assert not is_running(*before)
    assert processes.ends([note_of(before)], {(pid, start): (0, 1)})[before].how == "unknown"


def test_a_note_without_a_start_says_nothing(processes: CommandProcesses) -> None:
    assert processes.ends([ProcessNote(pid=os.getpid(), recorded=True)], {}) == {}


def test_a_folder_with_a_name_that_is_too_long(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    made = CommandProcesses(folder)
    made.watch()
    assert made.ends([], {}) == {}
    made.close()


def test_what_is_no_process_is_passed_over(tmp_path: Path, processes: CommandProcesses) -> None:
    import socket

    processes.watch()
    for said in (b"", b"x y", b"1 2"):
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(tmp_path / "processes"))
            caller.sendall(said)
    assert processes.ends([], {}) == {}
