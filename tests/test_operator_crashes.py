"""bench/operator_crashes.py finds what ends a process, and its guard pages see a step outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
]

BESIDE = """
import ctypes, sys, torch
tensor = torch.ones(16)
ctypes.string_at(tensor.data_ptr() + int(sys.argv[1]), 1)
"""
OVER = """
import ctypes, torch
tensor = torch.ones(5)
ctypes.memset(tensor.data_ptr() + 20, 0, 1)
del tensor
"""


def test_an_operator_that_dies_is_told(repo: Path) -> None:
    """`to.prim_dtype` takes an element type as a number, and does not look at it."""
    program = repo / "bench" / "operator_crashes.py"
    command = [sys.executable, str(program), "--calls", "40", "to.prim_dtype", "neg"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    lines = {line["operator"]: line for line in map(json.loads, ran.stdout.splitlines())}
    assert ran.returncode == 1, ran.stderr
    deaths = {death["signal"] for death in lines["to.prim_dtype"]["deaths"]}
    assert deaths
    assert deaths <= {"SIGSEGV", "SIGBUS"}
    assert lines["neg"]["deaths"] == []
    assert lines["neg"]["answered"] > 10


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of guard pages."""
    source = Path(__file__).resolve().parent.parent / "bench" / "guard_pages.c"
    library = tmp_path_factory.mktemp("guard") / "guard_pages.so"
    command = ["cc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"]
    subprocess.run([*command, "-lpthread"], check=True)
    return library


@pytest.mark.parametrize(
    ("program", "words", "code"),
    [(BESIDE, ["63"], 0), (BESIDE, ["64"], -11), (BESIDE, ["-4033"], -11), (OVER, [], -6)],
    ids=["inside", "behind", "before", "written over"],
)
def test_a_step_outside_of_a_tensor_ends_the_process(
    guard: Path, program: str, words: list[str], code: int
) -> None:
    environment = os.environ | {"LD_PRELOAD": str(guard)}
    command = [sys.executable, "-c", program, *words]
    ran = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    assert ran.returncode == code, ran.stderr
