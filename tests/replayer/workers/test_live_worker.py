"""The program that starts a live worker on a host: a group of two, what they may call, how they end."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replayer.programs import PROGRAM, QUIET, START_S, Programs, environment, start_as_fork, until

pytest.importorskip("torch")

SOURCE = """
import sys

def double(x):
    return x + x

if __name__ == "__main__":
    sys.exit("the script's own work must not be done")
"""


@pytest.fixture
def programs(tmp_path: Path, nothing_left: None) -> Iterator[Programs]:
    (tmp_path / "mine.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "train.py").write_text(SOURCE, encoding="utf-8")
    arguments = ("--path", tmp_path, "--import", "mine", "--main", tmp_path / "train.py", "--seed", 3)
    made = Programs(("ps", "trainer1"), (*QUIET, *arguments), start_as_fork)
    yield made
    made.kill()


def test_two_workers(programs: Programs) -> None:
    programs.start("ps", "trainer1")
    assert programs.members() == {"ps": 0, "trainer1": 1}
    assert programs.ask("trainer1", "mine", "double", 21) == 42
    assert programs.ask("ps", "__main__", "double", "a") == "aa"
    assert programs.ask("ps", "__mp_main__", "double", "b") == "bb"
    assert programs.ask("ps", "torch", "initial_seed") == 3
    assert programs.ask("ps", "torch", "get_num_threads") == 1
    programs.end_all()


def test_it_ends_with_whoever_started_it(programs: Programs) -> None:
    """torchrun was killed: nobody would ever end the worker."""
    start = "import subprocess as s, sys; s.Popen(sys.argv[1:]).wait()"
    parent = subprocess.Popen(
        [sys.executable, "-c", start, sys.executable, str(PROGRAM), "ps"],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env=environment(0, programs.port),
    )
    until(lambda: programs.members() == {"ps": 0}, START_S)
    parent.kill()
    output, _ = parent.communicate(timeout=START_S)  # it ends with both: they share it
    assert "the process that started it is gone" in output


def test_it_needs_nothing_of_rpcinspect() -> None:
    """It may be copied to hosts that have torch only."""
    tree = ast.parse(PROGRAM.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        assert not any(name.startswith("rpcinspect") for name in names)
