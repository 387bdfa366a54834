"""The same deterministic job, run and captured several times: all runs are the same, whatever interleaved."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from tests.cli.runner import rpcinspect
from tests.recorder.parts import PROGRAM
from tests.test_captures import load_record
from tests.thorough import THOROUGH
from tests.truth import CAPTURES

RUNS = 3 if THOROUGH else 2
"""Ten of them were the same, too, each with each: `captures/record.py --times 10` records them."""


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Captures of that many runs of captures/training.py, its workers forks of one process each time."""
    record = load_record()
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    if os.geteuid() != 0:
        pytest.skip("not root")
    for program in ("ip", "tcpdump", "unshare"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    if subprocess.run(
        ["unshare", "--net", "--mount", "--uts", "true"], check=False, capture_output=True
    ).returncode:
        pytest.skip("no network namespaces here")
    captures = [tmp_path / f"run-{run}.pcap" for run in range(RUNS)]
    with record.stage(tmp_path, [PROGRAM, CAPTURES / "training.py", *record.SHARED]) as folder:
        for capture in captures:
            arguments = (str(folder), "no.rpclog", "training")
            record.record(Path(sys.executable), folder / PROGRAM.name, arguments, capture)
    return captures


@pytest.mark.rooted
@pytest.mark.slow
def test_runs_of_a_deterministic_job_are_the_same(runs: list[Path]) -> None:
    for a, b in combinations(runs, 2):
        ran = rpcinspect("diff", a, b, "--strict", "--format", "jsonl")
        assert ran.code == 0
        assert {line["code"] for line in ran.objects if line["kind"] == "difference"} <= {"latency"}
        (verdict,) = [line for line in ran.objects if line["kind"] == "verdict"]
        assert verdict["same"]
