"""What bench/gpu_check.sh needs, as far as a machine without a GPU can tell."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_packages_that_are_there_win(repo: Path, tmp_path: Path) -> None:
    late = tmp_path / "late"
    late.mkdir()
    (late / "rich.py").write_text("raise SystemExit('the late one')\n", encoding="utf-8")
    (late / "only_late.py").write_text("print('found', __name__)\n", encoding="utf-8")
    for module, told in (("only_late", "found __main__"), ("rpcinspect", "rpcinspect ")):
        done = subprocess.run(
            [sys.executable, "-B", str(repo / "bench" / "late_packages.py"), module, "--version"],
            env={**os.environ, "RPCINSPECT_LATE_PACKAGES": str(late)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert told in done.stdout


@pytest.mark.slow
@pytest.mark.rooted
def test_the_check_without_a_gpu(repo: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if os.geteuid():
        pytest.skip("needs root")
    done = subprocess.run(
        [str(repo / "bench" / "gpu_check.sh"), "--dry"],
        env={**os.environ, "PYTHON": sys.executable, "OUT": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((tmp_path / "gpu_check.json").read_text(encoding="utf-8"))
    assert told["failed"] == 0
    assert len(told["rows"]) == 6


def test_without_a_gpu_it_says_so(repo: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert importlib.util.find_spec("torch") is not None
    done = subprocess.run(
        [str(repo / "bench" / "gpu_check.sh")],
        env={**os.environ, "PYTHON": sys.executable, "OUT": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "finds no GPU" in done.stderr or "can't sniff" in done.stderr
