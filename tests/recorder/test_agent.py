"""`rpcinspect record --via agent`, with real workers; what they printed is the truth."""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
import time
from pathlib import Path

import pytest

from tests.decoded import Decoded, Json, decode
from tests.recorder.agents import PROLOGUE, need_agent
from tests.recorder.parts import parted, workloads
from tests.recorder.recording import environment, finish, record, start
from tests.replayer.programs import free_port
from tests.thorough import some

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _agent() -> None:
    pytest.importorskip("torch")
    need_agent()


def test_a_job_is_recorded_as_its_workers_saw_it(tmp_path: Path) -> None:
    done = record("-o", "x.rpclog", "--", *workloads("basic_chain"), folder=tmp_path)
    assert done.code == 0, done.err
    assert [line for line in done.told if "WARNING" in line] == []
    assert "recording via agent into x.rpclog" in done.told
    run = parted(done, tmp_path)["basic_chain"].of_agent
    assert len(run.calls()) == 2
    (expected,) = run.of("expect")
    assert dict(sorted(run.decoded.summary["by_type"].items())) == expected["by_type"]
    assert run.decoded.problems() == []
    count = len(decode(tmp_path / "x.rpclog").messages)
    assert count == len(run.decoded.messages)
    assert stat.S_IMODE((tmp_path / "x.rpclog").stat().st_mode) == 0o600
    assert any(line.startswith(f"recorded {count} messages, ") for line in done.told), done.told


JOB = """
def call(x): return x + 1

ends = {
    "killed": lambda: os.kill(os.getpid(), 9),
    "gone": lambda: os._exit(5),
    "exits": lambda: sys.exit(6),
    "leaves": lambda: sys.exit(rpc.shutdown(graceful=False)),
}

def work(rank, name):
    os.environ.update(MASTER_ADDR="127.0.0.1")
    rpc.init_rpc(f"{name}{rank}", rank=rank, world_size=2, rpc_backend_options=options())
    if rank == 0:
        for n in range(200):
            assert rpc.rpc_sync(f"{name}1", call, args=(torch.full((100,), n),))[0] == n + 1
        ends[name]()
    time.sleep(60)

if __name__ == "__main__":
    import multiprocessing
    context = multiprocessing.get_context(sys.argv[1])
    for name, port in zip(sys.argv[2::2], sys.argv[3::2]):
        os.environ["MASTER_PORT"] = port
        workers = [context.Process(target=work, args=(rank, name)) for rank in range(2)]
        for worker in workers:
            worker.start()
        workers[0].join(120)
        workers[1].kill()
        workers[1].join()
        print(workers[0].exitcode)
"""
ENDS = {"killed": "-9", "gone": "5", "exits": "6", "leaves": "0"}
"""How the first worker of a group ends, and its exit code."""


@pytest.mark.parametrize(("method", "ends"), some([("fork", list(ENDS)), ("spawn", ["killed"])], 2))
def test_however_a_worker_ends_all_of_its_messages_are_there(
    tmp_path: Path, method: str, ends: list[str]
) -> None:
    """Right after its last answer; its peer is killed. One group after the other in the same log. Quick, only
    of forks: that workers of other starts are recorded hold test_worker_ends.py and test_record.py. The log's
    name is no text."""
    name = os.fsdecode(b"x\xff.rpclog")
    (tmp_path / "job.py").write_text(PROLOGUE.replace("import rpcinspect", "") + JOB)
    env = environment(OMP_NUM_THREADS="1")
    job = ["job.py", method, *(word for end in ends for word in (end, str(free_port())))]
    done = record("-o", name, "--via", "agent", "--", sys.executable, *job, folder=tmp_path, env=env)
    assert done.out.splitlines() == [ENDS[end] for end in ends], done.err
    output = decode(tmp_path / name)
    assert output.problems() == []
    for end in ends:
        calls = [m for m in calls_of(output) if m["src"] == f"{end}0"]
        assert len(calls) == 200
        assert all(output.answer(m) is not None for m in calls)
    told = next(line for line in done.told if line.startswith("recorded "))
    assert told.startswith(f"recorded {len(output.messages):,} messages, ")
    assert not list(Path("/dev/shm").glob("rpcinspect-*/*")) or _others(done.told)


def calls_of(output: Decoded) -> list[Json]:
    """Of the function of this job."""
    return [m for m in output.messages if m["request"] and "call" in str(m["body"].get("function"))]


def _others(told: list[str]) -> bool:
    """Other tests record at the same time."""
    return bool(told)


def test_what_came_after_the_log_had_ended_is_missing_and_not_unanswered(tmp_path: Path) -> None:
    """A limit on the size of files, which writes meet as they meet a full disk."""
    body = JOB.replace("if rank == 0:", "if rank == 0:\n        resource.setrlimit(*LIMIT)", 1)
    limit = "import resource\nLIMIT = resource.RLIMIT_FSIZE, (60_000, 60_000)\n"
    (tmp_path / "job.py").write_text(PROLOGUE.replace("import rpcinspect", "") + limit + body)
    env = environment(OMP_NUM_THREADS="1")
    job = (sys.executable, "job.py", "fork", "leaves", free_port())
    done = record("-o", "x.rpclog", "--via", "agent", "--", *job, folder=tmp_path, env=env)
    assert done.out.splitlines() == ["0"], done.err
    assert [line for line in done.told if "ended before the command" in line]
    assert not [line for line in done.told if "came faster" in line]
    output = decode(tmp_path / "x.rpclog")
    assert output.problems() == []
    assert 10 < len(output.messages) < 400
    assert any(line.startswith(f"recorded {len(output.messages):,} messages, ") for line in done.told), (
        done.told
    )
    assert {finding["code"] for finding in output.of("finding")} == {"capture-gap"}


def test_the_job_goes_on_when_the_recorder_is_killed(tmp_path: Path) -> None:
    body = JOB.replace(
        "ends[name]()", "open('alive', 'w').close(); time.sleep(1); rpc.rpc_sync('killed1', call, args=(1,))"
    )
    body = body.replace("time.sleep(60)", "time.sleep(3); rpc.shutdown(); open(f'done{rank}', 'w').close()")
    (tmp_path / "job.py").write_text(PROLOGUE.replace("import rpcinspect", "") + body)
    env = environment(OMP_NUM_THREADS="1", TMPDIR=str(tmp_path))  # notes
    job = (sys.executable, "job.py", "fork", "killed", free_port())
    process = start("-o", "x.rpclog", "--via", "agent", "--", *job, folder=tmp_path, env=env)
    _wait_for(tmp_path / "alive")
    os.kill(process.pid, signal.SIGKILL)
    done = finish(process)  # its output ends with the last worker
    assert {"done0", "done1"} <= {path.name for path in tmp_path.iterdir()}, done.err
    output = decode(tmp_path / "x.rpclog")
    assert output.problems() == []
    calls = calls_of(output)
    assert len(calls) == 201
    assert all(output.answer(m) is not None for m in calls)


def _wait_for(path: Path) -> None:
    end = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_without_a_compiler_it_is_the_wire(tmp_path: Path) -> None:
    """Said in one line; asked for by name, nothing runs."""
    env = environment(CXX="/no/compiler", XDG_CACHE_HOME=str(tmp_path / "cache"))
    job = ("--", sys.executable, "-c", "print('ran')")
    asked = record("--via", "agent", *job, folder=tmp_path, env=env)
    why = "CXX is /no/compiler, and there is no such compiler"
    assert (asked.code, asked.out) == (2, "")
    assert re.search(f"--via agent: {why}", asked.err)
    named = record("-o", "run.rpclog", *job, folder=tmp_path, env=env)
    assert f"-o run.rpclog is written by torch's agent: {why}" in named.err
    done = record(*job, folder=tmp_path, env=env)
    assert any(line.startswith(f"not recording via agent: {why}") for line in done.told)
    assert any(line.startswith("recording via wire into ") for line in done.told)


def test_a_log_that_can_not_be_written_is_told_before_anything_runs(tmp_path: Path) -> None:
    done = record(
        "-o", "no/x.rpclog", "--via", "agent", "--", sys.executable, "-c", "print(1)", folder=tmp_path
    )
    assert (done.code, done.out) == (2, "")
    assert "no/x.rpclog: can't be written: No such file or directory" in done.err
