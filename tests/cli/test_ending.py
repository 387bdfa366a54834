"""How the process ends: what must be written is, and what wants to know of the end hears of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rpcinspect.cli.ending import watched
from rpcinspect.unexpected import DEBUG

ROOT = Path(__file__).resolve().parents[2]
FULL = Path("/dev/full")
CAPTURE = ROOT / "captures" / "basic_chain.pcap"
START = "import atexit, sys, threading; from rpcinspect.__main__ import main"


def ended(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"{START}\n{program}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_buffers_are_written_and_functions_for_the_end_run() -> None:
    done = ended("atexit.register(print, 'the end'); main()", "decode", "--format", "jsonl", str(CAPTURE))
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[-1]) == (0, "the end")
    assert lines[-2].startswith("{")


def test_python_does_not_end_what_has_no_more_to_do() -> None:
    program = """
class Kept:
    def __del__(self): print('freed')
kept = Kept()
main()
"""
    assert ended(program, "--version").stdout.splitlines()[1:] == []


def test_other_threads_are_waited_for() -> None:
    wait = "threading.Thread(target=lambda: (threading.main_thread().join(), print('done'))).start()"
    assert ended(f"{wait}\nmain()", "--version").stdout.splitlines()[1:] == ["done"]


def test_a_profiler_tells_what_it_saw() -> None:
    command = [sys.executable, "-m", "cProfile", "-m", "rpcinspect", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "function calls" in done.stdout


def test_a_tool_of_later_pythons_is_one_that_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """cProfile of 3.12 sets no `sys.setprofile`."""
    tools = {2: "cProfile"}
    monkeypatch.setattr(sys, "monitoring", SimpleNamespace(get_tool=tools.get), raising=False)
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    assert watched()
    tools.clear()
    assert not watched()


def test_the_exit_code_is_the_commands(tmp_path: Path) -> None:
    path = tmp_path / "none.pcap"
    path.write_bytes(b"no capture")
    assert ended("main()", "decode", str(path)).returncode == 3
    assert ended("main()", "decode", "--no-such-option").returncode == 2


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [["--version"], ["decode", "--help"]])
def test_help_that_can_not_be_written_is_one_line(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DEBUG, raising=False)
    command = [sys.executable, "-m", "rpcinspect", *arguments]
    with FULL.open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    told = "rpcinspect: standard output: can't be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, told)
