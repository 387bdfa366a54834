"""Orphans of a command, taken in with their status: in a process of its own, since a process adopts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from rpcinspect.recorder.processes import START, Reaper, is_zombie, process_stat
from tests.recorder.recording import environment

ORPHANS = """
import json, os
from rpcinspect.recorder.launcher import CommandProcess
from tests.recorder.recording import children
script = '''
(sh -c 'echo $$ >three; exit 3' &)
(sh -c 'echo $$ >nine; kill -9 $$' &)
(sleep 30 >/dev/null 2>&1 & echo $! >sleeps)
while [ ! -s three ] || [ ! -s nine ] || [ ! -s sleeps ]; do sleep 0.05; done
sleep 0.5
exit 5
'''
with CommandProcess(["sh", "-c", script], os.environ, list) as command:
    command.begin()
    code = command.wait()
    there = children(os.getpid())
ended = {pid: status for (pid, _), (status, _) in command.statuses.items()}
print(json.dumps({"code": code, "command": command.pid, "ended": ended, "there": there}))
"""


def test_orphans_are_taken_in_and_not_waited_for(tmp_path: Path) -> None:
    run = [sys.executable, "-c", ORPHANS]
    done = subprocess.run(
        run, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=25, check=True
    )
    three, nine, sleeps = (int((tmp_path / name).read_text()) for name in ("three", "nine", "sleeps"))
    os.kill(sleeps, 9)
    told = json.loads(done.stdout)
    assert told["code"] == 5
    assert told["ended"] == {str(three): 3 << 8, str(nine): 9, str(told["command"]): 5 << 8}
    assert told["there"] == [sleeps], "no zombie is left"


def test_children_of_others_are_left_to_them() -> None:
    """Whoever started a process before waits for it."""
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"]) as child:
        reaper = Reaper()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        stat = process_stat(child.pid)
        reaper.look()
        reaper.close()
        assert reaper.statuses == {}
        assert child.wait() == 7
        assert stat is not None
        assert is_zombie(stat)
    assert process_stat(child.pid) is None


def test_a_process_is_known_by_its_start() -> None:
    mine, first = process_stat(os.getpid()), process_stat(1)
    assert mine is not None
    assert first is not None
    assert int(mine[START]) > int(first[START])
    assert not is_zombie(mine)


def test_one_that_runs_has_no_status() -> None:
    reaper = Reaper()
    try:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
            assert reaper.wait_for(child.pid) is None
            assert reaper.wait_for(os.getpid()) is None, "no child of ours"
            child.kill()
            child.wait()
    finally:
        reaper.close()
