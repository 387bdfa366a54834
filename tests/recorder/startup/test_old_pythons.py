"""The Python of a job may be older than ours, and has nothing of rpcinspect. Torch is played by a few lines:
what is tested is that our modules run there at all.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from rpcinspect.recorder.record import STARTUP, surroundings
from tests.recorder.recording import environment

OLDEST = (3, 8)
RPC = """
class TensorPipeRpcBackendOptions:
    def __init__(self, *, num_worker_threads=16, _transports=None, _channels=None):
        if "cuda_basic" in _channels:
            raise RuntimeError("Unknown channel: cuda_basic")
        self.all = num_worker_threads, _transports, _channels

class TensorPipeAgent:
    name, id = "alone", 0
    def get_worker_info(self):
        return self

class api:
    @staticmethod
    def _is_current_rpc_agent_set():
        return False
    @staticmethod
    def _init_rpc_states(agent):
        print("started")

def is_available():
    return True
"""
JOB = """
import torch.distributed.rpc as rpc
print(rpc.TensorPipeRpcBackendOptions(num_worker_threads=3, _channels=["cma"]).all)
rpc.api._init_rpc_states(rpc.TensorPipeAgent())
"""


@pytest.mark.parametrize("path", sorted(STARTUP.glob("*.py")), ids=lambda path: path.name)
def test_the_oldest_one_can_read_our_modules(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=OLDEST)


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13"])
def test_they_run_there(tmp_path: Path, version: str) -> None:
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-V"], check=False, capture_output=True).returncode:
        pytest.skip(f"no Python {version} here")
    for name in ("torch", "torch/distributed", "torch/distributed/rpc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(RPC if name.endswith("rpc") else "")
    notes = tmp_path / "notes"
    notes.mkdir()
    done = subprocess.run(
        [python, "-B", "-c", JOB],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=surroundings(environment() | {"PYTHONPATH": str(tmp_path)}, {"via": "wire", "notes": str(notes)}),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "(3, ['uv'], ['basic'])\nstarted\n"
    (note,) = notes.iterdir()
    told = json.loads(note.read_text())
    assert (told["name"], told["recorded"], told["ended"]) == ("alone", True, "clean")
