"""Whatever options a job makes, torch is told to use plain TCP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rpcinspect.recorder.record import surroundings
from tests.recorder.recording import environment

JOB = """
import os
import torch.distributed.rpc as rpc
import torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True)
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(store.port + 0)
options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=3, _transports=["shm", "uv"], init_method="tcp://127.0.0.1:0")
print(options.num_worker_threads, rpc.TensorPipeRpcBackendOptions.__init__.__name__)
for _ in range(2):
    rpc.init_rpc("alone", rank=0, world_size=1, rpc_backend_options=options)
    print(rpc.rpc_sync("alone", len, args=("abc",)))
    rpc.shutdown()
"""


@pytest.mark.slow
def test_options_are_overridden_and_each_start_is_noted(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", JOB],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=surroundings(environment(), {"via": "wire", "notes": str(tmp_path)}),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "__init__", "3", "3"]
    notes = [json.loads(path.read_text()) for path in sorted(tmp_path.iterdir())]
    assert [(note["name"], note["id"], note["recorded"], note["ended"]) for note in notes] == [
        ("alone", 0, True, "clean")
    ] * 2
