"""What an interpreter does at its start, in a recorded command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rpcinspect.recorder.record import surroundings
from tests.recorder.recording import environment


def python(
    code: str, folder: Path, *options: str, path: str | None = None
) -> subprocess.CompletedProcess[str]:
    """A Python process of a recorded command."""
    before = environment()
    del before["PYTHONPATH"]
    if path is not None:
        before["PYTHONPATH"] = path
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=surroundings(before, {"via": "wire", "notes": str(folder)}),
    )


def test_nothing_is_imported_and_nothing_seen(tmp_path: Path) -> None:
    modules = "{'json', 'importlib.util', 'multiprocessing'}"
    code = f"import sys; print(sorted({modules} & set(sys.modules)), sys.path)"
    done = python(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("[] ")
    assert "startup" not in done.stdout


def test_the_users_own_still_runs(tmp_path: Path) -> None:
    mine = tmp_path / "sitecustomize.py"
    mine.write_text("print('mine', __name__)")
    done = python("import sitecustomize; print(sitecustomize.__file__)", tmp_path, path=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"mine sitecustomize\n{mine}\n", "")


def test_what_the_users_own_raises_is_told_as_ever(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise ValueError(7)")
    done = python("print('ran')", tmp_path, path=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr == "Error in sitecustomize; set PYTHONVERBOSE for traceback:\nValueError: 7\n"


def test_a_hook_that_fails_leaves_a_note_and_the_job_goes_on(tmp_path: Path) -> None:
    for name in ("torch", "torch/distributed", "torch/distributed/rpc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    done = python("import torch.distributed.rpc as rpc; print(rpc.__name__)", tmp_path, path=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "torch.distributed.rpc\n", "")
    (path,) = tmp_path.glob("*.json")
    note = json.loads(path.read_text())
    assert (note["recorded"], note["ended"]) == (False, "clean")
    assert "is_available" in note["why"]
