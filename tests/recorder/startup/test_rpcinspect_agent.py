"""The stand-in for torch's agent is one for whoever asks, in groups of any kind; calls end as they end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import forks
from tests.decoded import decode
from tests.recorder.agents import FUNCTIONS, Parent, job, need_agent
from tests.recorder.recording import environment

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _agent() -> None:
    pytest.importorskip("torch")
    need_agent()


def test_the_agent_is_torchs_own_to_whoever_asks(parent: Parent, tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text("")
    body = """
from torch._C._distributed_rpc import TensorPipeAgent
agent = rpc.api._get_current_rpc_agent()
assert isinstance(agent, TensorPipeAgent) and isinstance(agent, rpc.TensorPipeAgent)
assert issubclass(type(agent), rpc.TensorPipeAgent) and not isinstance(1, rpc.TensorPipeAgent)
assert agent.is_static_group and agent.get_worker_info().name == "worker0" and agent.get_debug_info()
"""
    done = parent.run_workers(
        tmp_path, job(body) + "\nassert rpc.TensorPipeAgent.__name__ == 'TensorPipeAgent'"
    )
    assert [worker.returncode for worker in done] == [0, 0], done[0].stderr
    assert done[0].stdout.endswith("} None\n")


def test_it_goes_away_with_the_block(tmp_path: Path) -> None:
    code = """
import torch.distributed.rpc as rpc, rpcinspect
before = rpc.TensorPipeAgent
with rpcinspect.recording("x.rpclog"):
    assert rpc.TensorPipeAgent is not before
assert rpc.TensorPipeAgent is before
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    forks.run(command, check=True, timeout=120, cwd=tmp_path, env=environment())


def test_a_callee_that_dies_is_told_as_a_broken_connection(parent: Parent, tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    body = """
import functions
def work(rank):
    with rpcinspect.recording("x.rpclog"):
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options())
        if rank == 1:
            time.sleep(60)
        rpc.rpc_sync("worker1", torch.add, args=(torch.ones(2), 1))
        waiting = rpc.rpc_async("worker1", functions.sleep, args=(30,))
        for call in (functions.die, functions.die):
            try:
                rpc.rpc_sync("worker1", call)
            except RuntimeError as error:
                print(error)
            else:
                raise AssertionError
        try:
            waiting.wait()
        except RuntimeError as error:
            print(error)
        rpc.shutdown(graceful=False)
"""
    first, second = parent.run_workers(tmp_path, body)
    assert (first.returncode, second.returncode) == (0, 7), first.stderr
    output = decode(tmp_path / "x.rpclog")
    assert output.problems() == []
    failures = [m["failure"] for m in output.messages if m.get("failure")]
    assert [failure["reason"] for failure in failures] == ["connection"] * 3
    assert [failure["text"] for failure in failures] == [first.stdout.splitlines()[n] for n in (2, 0, 1)]
    assert "EXCEPTION" not in output.summary["by_type"]


def test_a_group_without_a_size_is_one_job(parent: Parent, tmp_path: Path) -> None:
    """One joins after the other: of two at once, torch's first may call the second too early and fail."""
    body = """
def work(rank):
    while rank == 1 and not os.path.exists("joined"):
        time.sleep(0.01)
    with rpcinspect.recording("x.rpclog"):
        path = f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}"
        rpc.init_rpc(f"worker{rank}", rank=rank, rpc_backend_options=options(init_method=path))
        open("joined", "w").close()
        assert not rpc.api._get_current_rpc_agent().is_static_group
        if rank == 1:
            assert rpc.rpc_sync("worker0", torch.add, args=(torch.ones(2), 1))[0] == 2
            open("called", "w").close()
        while not os.path.exists("called"):
            time.sleep(0.01)
        rpc.shutdown()
"""
    done = parent.run_workers(tmp_path, body)
    assert [worker.returncode for worker in done] == [0, 0], "\n".join(worker.stderr for worker in done)
    output = decode(tmp_path / "x.rpclog")
    assert output.problems() == []
    assert {(worker["name"], worker["id"], worker["job"]) for worker in output.of("worker")} == {
        ("worker0", 0, 0),
        ("worker1", 1, 0),
    }
    assert all(output.answer(m) is not None for m in output.messages if m["request"])


def test_a_process_with_another_torch_gets_its_own_agent(parent: Parent, tmp_path: Path) -> None:
    body = """
from rpcinspect.recorder.startup import rpcinspect_agent
class Notes:
    def follow(self, rpc, why_not, job): self.why_not, self.job = why_not, job
    def at_end(self, close): self.close = close
def work(rank):
    notes, own = Notes(), rpc.TensorPipeAgent
    rpcinspect_agent.install(rpc, {"torch": "1.0"}, notes)
    rpc.init_rpc("alone", rank=0, world_size=1, rpc_backend_options=options())
    agent = rpc.api._get_current_rpc_agent()
    assert type(agent) is own
    print(notes.why_not(agent))
    print(notes.why_not(object()))
    assert notes.job() is None
    rpc.shutdown()
    print(notes.close())
"""
    (done,) = parent.run_workers(tmp_path, body, 1)
    assert done.returncode == 0, done.stderr
    why, backend, counters = done.stdout.splitlines()
    assert why.startswith("the agent was built for torch 1.0, this is ")
    assert backend == "its backend is object, not TensorPipe"
    assert counters == "{'messages': 0, 'bytes': 0, 'dropped': 0, 'failed': 0}"
