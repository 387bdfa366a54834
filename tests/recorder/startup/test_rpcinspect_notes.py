"""Notes that processes leave, their children included."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rpcinspect.recorder.record import STARTUP

LEAVE = """
import multiprocessing, os, sys
sys.path.insert(0, sys.argv[1])
from rpcinspect_notes import Notes
notes = Notes(sys.argv[2])
def child():
    notes.unrecorded("child")
if __name__ == "__main__":
    notes.unrecorded("first")
    notes.unrecorded("second")
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    if os.fork() == 0:
        notes.unrecorded("killed")
        os.kill(os.getpid(), 9)
    os.wait()
    notes.at_end(lambda: {"messages": 5})
"""


def test_each_process_says_what_it_did_and_that_it_ended(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LEAVE, str(STARTUP), str(tmp_path)], check=True, timeout=60)
    notes = {note["why"]: note for note in map(json.loads, (path.read_text() for path in tmp_path.iterdir()))}
    assert {why: note.get("ended") for why, note in notes.items()} == {
        "first": "clean",
        "second": "clean",
        "child": "clean",
        "killed": None,
    }
    assert {why for why, note in notes.items() if note.get("messages") == 5} == {"second"}
    assert len({note["pid"] for note in notes.values()}) == 3
