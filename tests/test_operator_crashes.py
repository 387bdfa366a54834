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

STEPS = """
import ctypes, json, os, torch

def beside(offset):
    tensor = torch.ones(16)
    ctypes.string_at(tensor.data_ptr() + offset, 1)

def over():
    tensor = torch.ones(5)
    ctypes.memset(tensor.data_ptr() + 20, 0, 1)
    del tensor

steps = {
    "inside": lambda: beside(63),
    "behind": lambda: beside(64),
    "before": lambda: beside(-4033),
    "written over": over,
}
codes = {}
for name, step in steps.items():
    child = os.fork()
    if not child:
        step()
        os._exit(0)
    codes[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(codes))
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a program with guard pages."""
    source = Path(__file__).resolve().parent.parent / "bench" / "guard_pages.c"
    library = tmp_path_factory.mktemp("guard") / "guard_pages.so"
    command = ["cc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"]
    subprocess.run([*command, "-lpthread"], check=True)
    return os.environ | {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}


def test_an_operator_that_dies_is_told(repo: Path, guarded: dict[str, str]) -> None:
    """`to.prim_dtype` takes an element type as a number, and does not look at it."""
    environment = guarded | {"OPERATOR_CRASHES_GUARD": "1"}  # it need not start itself again
    program = repo / "bench" / "operator_crashes.py"
    command = [sys.executable, str(program), "--calls", "40", "to.prim_dtype", "neg"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    lines = {line["operator"]: line for line in map(json.loads, ran.stdout.splitlines())}
    assert ran.returncode == 1, ran.stderr
    deaths = {death["signal"] for death in lines["to.prim_dtype"]["deaths"]}
    assert deaths
    assert deaths <= {"SIGSEGV", "SIGBUS"}
    assert lines["neg"]["deaths"] == []
    assert lines["neg"]["answered"] > 10


def test_a_step_outside_of_a_tensor_ends_the_process(guarded: dict[str, str]) -> None:
    """Each step in a fork of a process that has torch."""
    command = [sys.executable, "-c", STEPS]
    ran = subprocess.run(command, env=guarded, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(ran.stdout) == {"inside": 0, "behind": -11, "before": -11, "written over": -6}
