"""The plugin in real runs of pytest, with real workers; what they call is the truth."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rpcinspect
from rpcinspect import pytest_plugin
from tests.forks import popen
from tests.places import ROOT
from tests.recorder.agents import need_agent
from tests.recorder.recording import environment
from tests.replayer.programs import free_port

PLUGIN = ("-p", "rpcinspect.pytest_plugin", "-p", "no:cacheprovider", "-q")

JOB = """
import os
import torch
import torch.distributed.rpc as rpc

FACTOR = float(os.environ.get("FACTOR", "2"))
LARGE = 5000

def scale(x):
    return x * FACTOR

def options():
    return rpc.TensorPipeRpcBackendOptions(rpc_timeout=60)

def work(rank, world, calls, port=None):
    os.environ.update({} if port is None else {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world, rpc_backend_options=options())
    if rank == 0:
        for size in (3, LARGE)[:calls]:
            rpc.rpc_sync(f"worker{world - 1}", scale, args=(torch.arange(float(size)),))
    rpc.shutdown()

if __name__ == "__main__":
    work(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), 1)
"""

FORKS = """
import os, unittest
import pytest, torch
import torch.multiprocessing as mp
import torch.distributed.rpc as rpc
import job

PORTS = iter(os.environ["PORTS"].split(","))

def fork(calls=2):
    mp.start_processes(job.work, (2, calls, next(PORTS)), nprocs=2, start_method="fork")

@pytest.mark.rpc_golden
def test_exact(rpc_recording):
    fork()
    with rpc_recording.open() as run:
        assert [call.name for call in run.calls] == ["job.scale", "job.scale"]

@pytest.mark.rpc_golden(tolerance=True, rtol=1, path="captures/close.rpclog")
def test_close():
    fork()

@pytest.mark.rpc_golden
def test_more_calls():
    fork(int(os.environ.get("CALLS", "1")))

class Unit(unittest.TestCase):
    @pytest.mark.rpc_golden
    def test_fails(self):
        assert False

class UnitThatPasses(unittest.TestCase):
    def setUp(self):
        fork(1)

    @pytest.mark.rpc_golden
    def test_it(self):
        pass

@pytest.fixture
def here(request):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=next(PORTS))
    rpc.init_rpc("me", rank=0, world_size=1, rpc_backend_options=job.options())
    yield
    rpc.shutdown()

@pytest.mark.rpc_golden(ignore="latency", tensors="none")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("word", ["a/b"])
def test_here(here, word):
    rpc.rpc_sync("me", job.scale, args=(torch.ones(2),))

def test_without(rpc_recording):
    assert os.environ["RPCINSPECT_RECORD"]

def test_after():
    assert "RPCINSPECT_RECORD" not in os.environ and type(rpc.TensorPipeAgent).__name__ != "Standing"
"""


def run(folder: Path, *arguments: str, **more: str) -> tuple[int, str]:
    """Exit code and output of a pytest, a fork of a process that has imported torch."""
    ports = ",".join(str(free_port()) for _ in range(6))
    env = environment(
        PORTS=ports, OMP_NUM_THREADS="1", TP_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo", **more
    )
    line = [sys.executable, "-m", "pytest", *PLUGIN, *arguments]
    with popen(
        line, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        out, _ = process.communicate(timeout=180)
    return process.returncode, out


def calls(path: Path) -> list[tuple[str, list[int], str]]:
    with rpcinspect.open(path) as run:
        return [
            (call.name, list(tensor.shape), tensor.placement.value)
            for call in run.calls
            for tensor in call.request.tensors
        ]


PAGE = (ROOT / "docs" / "pytest.md").read_text(encoding="utf-8")


def write_example_of_the_docs(folder: Path) -> None:
    """Its workers are forks: each process by spawn would import torch anew."""
    test, fixture, job = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    spawn, fork = "mp.spawn(", 'mp.start_processes(start_method="fork", fn='
    assert test.count(spawn) == fixture.count(spawn) == 1
    (folder / "test_train.py").write_text((test + fixture).replace(spawn, fork), encoding="utf-8")
    (folder / "train.py").write_text(job, encoding="utf-8")


def difference(text: str) -> str:
    """What the plugin says of the example, with other numbers: those of messages and of rounding."""
    told = text[text.index("rpc_golden: different") :].splitlines()
    end = next(place for place, line in enumerate(told) if line.startswith("accept: "))
    kept = [line for line in told[: end + 1] if not line.startswith(("all: ", "not counted: "))]
    return re.sub(r"[ab]?#\d+(/b#\d+)?|-?\d+(\.\d+)?(e-\d+)?", "N", "\n".join(kept))


@pytest.mark.slow
def test_record_compare_differ_update(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    need_agent()
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")
    (tmp_path / "test_forks.py").write_text(FORKS, encoding="utf-8")
    write_example_of_the_docs(tmp_path)
    kept = tmp_path / "captures" / "test_forks"

    files = ("test_train.py", "test_forks.py")  # forks before this process has started RPC itself

    code, out = run(tmp_path, *files, "--rpc-record=once", "-k", "not exact")
    assert code == 1, out
    assert "1 failed, 8 passed" in out
    (here,) = kept.glob("test_here*")
    assert re.fullmatch(r"test_here\[a-b\]-[0-9a-f]{8}\.rpclog", here.name)
    written = {"captures/close.rpclog", f"{kept.relative_to(tmp_path) / here.name}"}
    written |= {
        f"captures/test_forks/{name}.rpclog" for name in ("test_more_calls", "UnitThatPasses.test_it")
    }
    written.add("captures/test_train/test_train.rpclog")
    assert "recorded captures/test_train/test_train.rpclog" in PAGE
    assert set(re.findall(r"^recorded (.*)", out, re.MULTILINE)) == written
    assert {f"captures/test_forks/{path.name}" for path in kept.iterdir()} == {
        path for path in written if path.startswith("captures/test_forks/")
    }
    assert calls(tmp_path / "captures/close.rpclog") == [
        ("job.scale", [3], "certain"),
        ("job.scale", [5000], "certain"),
    ]
    assert calls(kept / "test_more_calls.rpclog") == [("job.scale", [3], "certain")]
    assert calls(here) == [("job.scale", [2], "missing")]

    before = {path: path.read_bytes() for path in (tmp_path / "captures").rglob("*.rpclog")}
    train = (tmp_path / "train.py").read_text(encoding="utf-8")
    changed = train.replace("torch.relu(", "torch.nn.functional.gelu(")
    (tmp_path / "train.py").write_text(changed, encoding="utf-8")
    code, out = run(tmp_path, *files, "-k", "not Unit", FACTOR="3", CALLS="2")
    assert code == 1, out
    failed = re.findall(r"^(FAILED|ERROR) test_\w+.py::(\w+)", out, re.MULTILINE)
    assert sorted(failed) == [
        ("ERROR", "test_here"),  # its worker runs until the fixture ends
        ("FAILED", "test_exact"),
        ("FAILED", "test_more_calls"),
        ("FAILED", "test_train"),
    ]
    assert difference(out.partition("_ test_train _")[2]) == difference(PAGE)
    assert "captures/test_forks/test_exact.rpclog: no such recording" in out
    assert "record it: pytest --rpc-record=once test_forks.py::test_exact" in out
    assert "rpc_golden: different: 3 of " in out
    assert "value  tensors[0].elements[1]  2.0 → 3.0" in out
    assert "likely function: worker1 gives a different result for the same call: job.scale changed" in out
    assert "accept: pytest --rpc-update test_forks.py::test_more_calls" in out
    assert re.search(r'value  tensors\[0\]  "sha256 [0-9a-f]{12}…" → "sha256 [0-9a-f]{12}…"', out)
    assert {path: path.read_bytes() for path in before} == before

    code, out = run(tmp_path, "-k", "exact or calls or close", FACTOR="3", CALLS="2", EXPECTTEST_ACCEPT="1")
    assert code == 0, out
    assert "recorded captures/test_forks/test_exact.rpclog" in out
    assert "updated captures/test_forks/test_more_calls.rpclog" in out
    assert calls(kept / "test_more_calls.rpclog") == calls(kept / "test_exact.rpclog")
    assert calls(kept / "test_exact.rpclog")[1] == ("job.scale", [5000], "missing")
    assert (tmp_path / "captures/close.rpclog").read_bytes() == before[tmp_path / "captures/close.rpclog"]


STARTED = """
import os, subprocess, sys
import pytest
import torch.multiprocessing as mp
import job

PORTS = os.environ["PORTS"].split(",")

@pytest.mark.rpc_golden
def test_spawn():
    mp.spawn(job.work, (1, 1, PORTS[0]), nprocs=1)

@pytest.mark.rpc_golden
def test_torchrun():
    place = ["--master-addr=127.0.0.1", f"--master-port={PORTS[1]}"]
    subprocess.run([sys.executable, "-m", "torch.distributed.run", *place, "job.py"], check=True)

@pytest.mark.rpc_golden
def test_without_our_environment():
    subprocess.run([sys.executable, "-I", "-c", "pass"], check=True)
"""


@pytest.mark.slow
def test_spawn_and_torchrun_in_workers_of_xdist(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    need_agent()
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")
    (tmp_path / "test_started.py").write_text(STARTED, encoding="utf-8")
    env = environment(PORTS=f"{free_port()},{free_port()}", OMP_NUM_THREADS="1", TP_SOCKET_IFNAME="lo")
    line = [sys.executable, "-m", "pytest", *PLUGIN, "-n", "1", "--rpc-record=new_episodes"]
    done = subprocess.run(line, cwd=tmp_path, env=env, text=True, capture_output=True, timeout=180)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 2 passed" in done.stdout
    assert "recorded captures/test_started/test_spawn.rpclog" in done.stdout
    assert "no process called init_rpc, or Python ran with -I, -E or -S" in done.stdout
    kept = tmp_path / "captures" / "test_started"
    assert sorted(path.name for path in kept.iterdir()) == ["test_spawn.rpclog", "test_torchrun.rpclog"]
    assert calls(kept / "test_spawn.rpclog") == [("job.scale", [3], "certain")]
    assert calls(kept / "test_torchrun.rpclog") == [("__main__.scale", [3], "certain")]


WITHOUT_RPC = """
import sys, json
import pytest

OURS = ("rpcinspect", "torch", "numpy", "msgspec")
LOADED = [name for name in sys.modules if name.partition(".")[0] in OURS]

def test_nothing_is_loaded():
    print(json.dumps(LOADED))

@pytest.mark.rpc_golden
@pytest.mark.parametrize("bad", ["\\x00../../x\\n\\u202e", "é" * 300, "z" * 300])
def test_lacks_a_recording(bad):
    raise AssertionError("never runs")

@pytest.mark.rpc_golden(tensor="all")
def test_mistaken():
    pass

@pytest.mark.rpc_golden(ignore="all")
def test_ignores_too_much():
    pass

@pytest.mark.rpc_golden(tensors="some")
def test_tensors():
    pass
"""


def test_what_is_not_used_costs_nothing_and_mistakes_are_told(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(WITHOUT_RPC, encoding="utf-8")
    code, out = run(tmp_path, "-rP", "--strict-markers", "-W", "error")
    assert code == 1, out
    loaded = json.loads(re.search(r"^\[.*\]$", out, re.MULTILINE)[0])  # type: ignore[index]
    assert {name for name in loaded if name.startswith("rpcinspect")} == {
        "rpcinspect",
        "rpcinspect.pytest_plugin",
    }
    assert "never runs" not in out
    assert "rpc_golden: has no option tensor" in out
    assert "rpc_golden: 'all' can't be ignored; these can: device" in out
    assert "rpc_golden: tensors='some': none, small, all" in out
    names = re.findall(r"captures/test_it/(.*): no such recording", out)
    assert len(set(names)) == 3
    assert all(
        len(os.fsencode(name)) < 200 and re.fullmatch(r"[\w.\[\]-]+", name, re.ASCII) for name in names
    )
    assert not (tmp_path / "captures").exists()


def test_options_stand_in_a_group_of_their_own(tmp_path: Path) -> None:
    code, out = run(tmp_path, "--help")
    assert code == 0
    group = out.partition("rpcinspect: recordings of torch.distributed.rpc")[2]
    for option in ("--rpc-record={none,once,new_episodes,all,rewrite}", "--rpc-update"):
        assert option in group
    assert pytest_plugin.MODES == ("none", "once", "new_episodes", "all", "rewrite")
