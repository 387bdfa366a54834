"""Recording from within a program, with real workers; what they saw is the truth."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rpcinspect
from rpcinspect.errors import RecordError
from tests.decoded import Decoded, decode
from tests.recorder.agents import FUNCTIONS, Parent, job, need_agent

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _agent() -> None:
    pytest.importorskip("torch")
    need_agent()


def run(parent: Parent, folder: Path, body: str, **settings: object) -> Decoded:
    (folder / "functions.py").write_text(FUNCTIONS)
    done = parent.run_workers(folder, job(body, **settings))
    assert [worker.returncode for worker in done] == [0, 0], "\n".join(worker.stderr for worker in done)
    return decode(folder / "x.rpclog")


def test_errors_of_the_callee_are_messages_and_time_outs_are_not(parent: Parent, tmp_path: Path) -> None:
    output = run(
        parent,
        tmp_path,
        """
for call, args in ((functions.fail, (1,)), (torch.add, (torch.ones(2), torch.ones(3)))):
    try:
        rpc.rpc_sync("worker1", call, args=args)
    except Exception as error:
        print(type(error).__name__)
try:
    rpc.rpc_sync("worker1", functions.sleep, args=(1.5,), timeout=0.2)
except RuntimeError as error:
    assert "ran for more than set timeout (200 ms)" in str(error)
else:
    raise AssertionError
""",
    )
    assert output.problems() == []
    assert output.summary["by_type"]["EXCEPTION"] == 1
    (exception,) = [m for m in output.messages if m["type"] == "EXCEPTION"]
    assert exception["body"]["error"]["text"].startswith(
        "The size of tensor a (2) must match the size of tensor b (3)"
    )
    failed = [m for m in output.messages if m.get("failure")]
    assert [m["failure"]["reason"] for m in failed] == ["timeout"]
    assert failed[0]["body"]["function"] == "functions.sleep"


@pytest.mark.parametrize(("tensors", "kept"), [("none", set()), ("small", {12}), ("all", {12, 40000})])
def test_storages_are_left_out_as_asked(parent: Parent, tmp_path: Path, tensors: str, kept: set[int]) -> None:
    output = run(
        parent,
        tmp_path,
        """
for n in (3, 10000):
    rpc.rpc_sync("worker1", functions.length, args=(torch.arange(n, dtype=torch.float32),))
""",
        tensors=tensors,
    )
    assert output.problems() == []
    found = [t for m in output.messages for t in m.get("tensors", [])]
    assert len(found) == 2
    assert {t["storage_nbytes"] for t in found if t["placement"] == "certain"} == kept
    assert {t["placement"] for t in found} <= {"certain", "missing"}


def test_tensors_of_like_shapes_are_told_apart(parent: Parent, tmp_path: Path) -> None:
    """What is said of a tensor is kept for when its like comes again: so each is sent twice."""
    output = run(
        parent,
        tmp_path,
        """
import json
base = torch.arange(12)
tensors = [base.reshape(3, 4), base.reshape(4, 3).t(), base.reshape(3, 4)[:, 1], torch.tensor(5)]
tensors += [base[:4], base[4:8], base[:4].clone(), base.double(), base.double().requires_grad_()]
tensors += [torch.complex(base.double(), base.double()), torch.complex(base.double(), base.double()).conj()]
with open("sent.json", "w") as file:
    for x in [*tensors, *reversed(tensors)]:
        rpc.rpc_sync("worker1", functions.length, args=(x,))
        whole = x.untyped_storage().nbytes()
        about = str(x.dtype)[6:], x.shape, x.stride(), x.storage_offset(), whole, x.requires_grad, x.is_conj()
        print(json.dumps(about), file=file)
""",
    )
    keys = ("dtype", "shape", "stride", "offset", "storage_nbytes", "requires_grad", "conj")
    found = [
        [tensor[key] for key in keys]
        for message in sorted(output.messages, key=lambda message: message["id"])
        for tensor in message.get("tensors", [])
    ]
    assert found == [json.loads(line) for line in (tmp_path / "sent.json").read_text().splitlines()]
    assert len(found) == 22


def test_a_message_larger_than_the_queue_is_written_too(parent: Parent, tmp_path: Path) -> None:
    output = run(
        parent,
        tmp_path,
        """
for n in (50_000, 10, 30_000):
    doubled = rpc.rpc_sync("worker1", functions.scale, args=(torch.arange(n, dtype=torch.float64), 2.0))
    assert doubled[-1] == 2 * n - 2
""",
        queue_bytes=65536,
    )
    assert output.problems() == []
    sizes = [t["storage_nbytes"] for m in output.messages for t in m.get("tensors", [])]
    assert sorted(sizes) == [80, 80, 240_000, 240_000, 400_000, 400_000]


def test_a_second_group_in_the_same_process_is_another_job(parent: Parent, tmp_path: Path) -> None:
    body = """
def work(rank):
    with rpcinspect.recording("x.rpclog") as recording:
        for _ in range(2):
            rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options())
            if rank == 0:
                rpc.rpc_sync("worker1", torch.add, args=(torch.ones(2), 1))
            rpc.shutdown()
"""
    done = parent.run_workers(tmp_path, body)
    assert [worker.returncode for worker in done] == [0, 0], done[0].stderr
    output = decode(tmp_path / "x.rpclog")
    assert output.problems() == []
    assert len({worker["job"] for worker in output.of("worker")}) == 2
    assert output.summary["by_type"]["SCRIPT_CALL"] == 2
    assert all(output.answer(m) is not None for m in output.messages if m["request"])


def test_a_forked_child_writes_nothing_in_its_parents_name(parent: Parent, tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    body = """
rpc.rpc_sync("worker1", torch.add, args=(torch.ones(2), 1))
child = os.fork()
if child == 0:
    time.sleep(0.3)
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
rpc.rpc_sync("worker1", torch.add, args=(torch.ones(2), 2))
"""
    done = parent.run_workers(tmp_path, job(body))
    assert [worker.returncode for worker in done] == [0, 0], done[0].stderr
    output = decode(tmp_path / "x.rpclog")
    assert output.problems() == []
    assert output.summary["by_type"]["SCRIPT_CALL"] == 2


def test_a_full_disk_ends_the_recording_and_not_the_job(parent: Parent, tmp_path: Path) -> None:
    """A limit on the size of files, which writes meet as they meet a full disk."""
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    body = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for n in range(40):
    assert rpc.rpc_sync("worker1", functions.length, args=(torch.zeros(2000),)) == 2000
    time.sleep(0.03)
"""
    done = parent.run_workers(tmp_path, job(body))
    assert [worker.returncode for worker in done] == [0, 0], done[0].stderr
    told = [line for line in done[0].stderr.splitlines() if "rpcinspect" in line]
    assert told == [
        f"rpcinspect: the recording ends here, the job goes on: {tmp_path / 'x.rpclog'}: File too large"
    ]
    assert "'failure': " in done[0].stdout
    output = decode(tmp_path / "x.rpclog")
    assert [p for p in output.problems() if p["layer"] == "capture"] == []
    assert 5 <= len([m for m in output.messages if m.get("tensors")]) <= 12


def test_what_can_not_begin_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="can't be written: Is a directory"):
        rpcinspect.recording(tmp_path).__enter__()
    with pytest.raises(RecordError, match="none, small or all"):
        rpcinspect.recording(tmp_path / "x", tensors="some")  # type: ignore[arg-type]
    with pytest.raises(RecordError, match="wait or drop"):
        rpcinspect.recording(tmp_path / "x", when_full="never")  # type: ignore[arg-type]


def test_it_begins_before_init_rpc(parent: Parent, tmp_path: Path) -> None:
    body = """
def work(rank):
    rpc.init_rpc("alone", rank=0, world_size=1)
    try:
        with rpcinspect.recording("x.rpclog"):
            pass
    except rpcinspect.errors.RecordError as error:
        print(error)
    rpc.shutdown()
"""
    (done,) = parent.run_workers(tmp_path, "import rpcinspect.errors\n" + body, 1)
    assert done.returncode == 0, done.stderr
    assert "RPC has been started before" in done.stdout


def test_the_interpreter_is_ours() -> None:
    assert need_agent().path.count(f"cpython-{sys.version_info.major}{sys.version_info.minor}") == 1


HOLDER = """
import fcntl
with open("x.rpclog", "r+b") as log:
    fcntl.lockf(log, fcntl.LOCK_EX)
    print("held", flush=True)
    input()
"""


def test_a_full_queue_drops_where_that_was_asked_for(parent: Parent, tmp_path: Path) -> None:
    """What was dropped is counted, and nobody takes it for lost by the capture.

    The queue gets full because another process holds the log's lock meanwhile, as a slow writer would.
    """
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "holder.py").write_text(HOLDER)
    body = """
import subprocess
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
with subprocess.Popen([sys.executable, "holder.py"], **pipes, text=True) as holder:
    assert holder.stdout.readline() == "held\\n"
    calls = [rpc.rpc_async("worker1", functions.length, args=(torch.zeros(2000),)) for _ in range(300)]
    assert [call.wait() for call in calls] == [2000] * 300
    holder.communicate("now\\n")
"""
    done = parent.run_workers(tmp_path, job(body, when_full="drop", queue_bytes=65536))
    assert [worker.returncode for worker in done] == [0, 0], done[0].stderr
    (dropped,) = map(int, re.findall(r"'dropped': (\d+)", done[0].stdout))
    output = decode(tmp_path / "x.rpclog")
    calls = [m for m in output.messages if m["body"].get("function") == "functions.length"]
    answers = [m for m in output.messages if m["type"] == "PYTHON_RET" and m["body"]["value"] == "2000"]
    assert dropped > 0
    assert 0 < len(calls) + len(answers) <= 600 - dropped
    assert output.problems() == []
    assert b'{"rpc":"lost","src":"worker0","dst":"worker1"' in (tmp_path / "x.rpclog").read_bytes()
    codes = {finding["code"] for finding in output.of("finding")}
    assert "unanswered-request" not in codes


@pytest.mark.rooted
def test_a_disk_that_has_no_room_left(parent: Parent, tmp_path: Path) -> None:
    """A small file system, which the recording fills."""
    if os.geteuid() != 0:
        pytest.skip("not root")
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", disk], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        body = """
for n in range(40):
    assert rpc.rpc_sync("worker1", functions.length, args=(torch.zeros(2000),)) == 2000
    time.sleep(0.03)
"""
        done = parent.run_workers(tmp_path, job(body).replace('"x.rpclog"', '"disk/x.rpclog"'))
        assert [worker.returncode for worker in done] == [0, 0], [worker.stderr for worker in done]
        told = [line for line in done[0].stderr.splitlines() if "rpcinspect" in line]
        ends = "rpcinspect: the recording ends here, the job goes on"
        assert told == [f"{ends}: {disk / 'x.rpclog'}: No space left on device"]
        output = decode(disk / "x.rpclog")
        assert [p for p in output.problems() if p["layer"] == "capture"] == []
        assert 5 <= len([m for m in output.messages if m.get("tensors")]) <= 12
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
