"""Notes as processes leave them, and as a hostile one might; and whether a process still runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rpcinspect.recorder.processes import is_running, read_notes


def leave(folder: Path, file: str, **content: object) -> None:
    (folder / file).write_text(json.dumps({"pid": 7, "recorded": True, **content}))


def test_notes_are_in_the_order_of_ids(tmp_path: Path) -> None:
    leave(tmp_path, "9-0.json", name="b", id=1, torch="2.13.0", ended="clean", messages=3, dropped=0, other=5)
    leave(tmp_path, "8-0.json", name="a", id=0, torch="2.13.0")
    leave(tmp_path, "6-0.json", name=None, id=None, recorded=False, why="no compiler")
    first, second, third = read_notes(tmp_path)
    assert (first.name, first.ended, first.messages) == ("a", None, 0)
    assert (second.name, second.ended, second.messages, second.dropped) == ("b", "clean", 3, 0)
    assert (third.name, third.recorded, third.why) == (None, False, "no compiler")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"pid": "x"}', '{"pid": 7}', "\ud800".encode("utf-8", "replace").decode()]
)
def test_what_is_no_note_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "1-0.json").write_text(text)
    assert read_notes(tmp_path) == []


def test_who_runs_and_who_does_not() -> None:
    assert is_running(os.getpid())
    assert is_running(1)
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(child.pid), "it has ended, and nobody has waited for it"
    child.wait()
    assert not is_running(child.pid)
