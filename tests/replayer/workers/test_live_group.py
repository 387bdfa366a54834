"""Live workers: what they are started with, what they see, what they show."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.pickles.tree import Global, PickleCall
from rpcinspect.replayer.peers.loop import Loop
from rpcinspect.replayer.peers.membership import PREFIX
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.workers.live_group import LiveGroup
from rpcinspect.replayer.workers.outputs import TAIL_BYTES
from rpcinspect.replayer.workers.seeds import Seeds
from rpcinspect.replayer.workers.workers import WorkerOptions, Workers
from rpcinspect.rpc.command import ScriptCall
from rpcinspect.rpc.command_codec import to_payload
from rpcinspect.rpc.envelope import AutogradMetadata, RpcWithAutograd, wrap
from rpcinspect.rpc.message import MessageType, RpcMessage
from rpcinspect.rpc.tensor import TensorMeta, to_tensor_table
from tests.replayer.left_behind import descendants
from tests.replayer.live_calls import SECONDS, members, run

SCRIPT = '''
"""A user's script, started as `python train.py`."""
import helper

STARTED = []
COUNT = 0

def f(x):
    return (__name__, helper.twice(x))

def count():
    global COUNT
    COUNT += 1
    return COUNT

if __name__ == "__main__":
    STARTED.append(1)
    raise SystemExit("the script's own work must not be done")
'''


NAMED = """
import os
PID = os.getpid()
def pid(): return PID
"""


@pytest.fixture(scope="module")
def script_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Workers of a user's script, with two threads."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("user")
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    (folder / "helper.py").write_text("def twice(x): return 2 * x\n", encoding="utf-8")
    (folder / "lib").mkdir()
    (folder / "lib" / "named.py").write_text(NAMED, encoding="utf-8")
    options = WorkerOptions(
        path=(str(folder / "lib"),),
        imports=("named",),
        main=str(folder / "train.py"),
        threads=2,
        rpc_timeout_s=10,
    )
    with Workers(options) as workers:
        yield workers
    left = {path.name for path in folder.rglob("*")}
    assert left == {"train.py", "helper.py", "lib", "named.py"}


@pytest.fixture
def script_group(script_workers: Workers, nothing_left: None) -> Iterator[LiveGroup]:
    with LiveGroup(script_workers) as group:
        yield group


def test_functions_of_the_script_resolve(script_group: LiveGroup) -> None:
    script_group.start("w", 3)
    assert run(script_group, "w", "__main__", "f", 4) == ("__mp_main__", 8)
    assert run(script_group, "w", "__mp_main__", "f", 4) == ("__mp_main__", 8)
    assert [run(script_group, "w", "__main__", "count") for _ in range(2)] == [1, 2]
    assert run(script_group, "w", "__mp_main__", "count") == 3


def test_modules_are_imported_once_for_all_workers(script_group: LiveGroup) -> None:
    seen = []
    for number in range(2):
        worker = script_group.start(f"w{number}", number)
        assert run(script_group, worker.name, "os", "getpid") == worker.child.pid
        seen.append(run(script_group, worker.name, "named", "pid"))
    assert seen[0] == seen[1] != script_group.workers["w0"].child.pid


def test_seeds_and_threads(script_group: LiveGroup) -> None:
    script_group.seeds = Seeds(everybody=7, own={"w2": 8})
    for number in range(3):
        script_group.start(f"w{number}", number)
    assert run(script_group, "w0", "torch", "get_num_threads") == 2
    assert [run(script_group, f"w{number}", "torch", "initial_seed") for number in range(3)] == [7, 7, 8]
    numbers = [run(script_group, f"w{number}", "random", "random") for number in range(3)]
    assert numbers[0] == numbers[1] != numbers[2]


def test_what_a_worker_sees_of_this_machine(group: LiveGroup) -> None:
    os.environ["RPCINSPECT_TEST_SECRET"] = "secret"
    try:
        worker = group.start("w", 0)
        pid = worker.child.pid
        environment = run(group, "w", "builtins", "dict", [])
        assert environment == {}
        names = str(run(group, "w", "subprocess", "getoutput", "env"))
    finally:
        del os.environ["RPCINSPECT_TEST_SECRET"]
    assert "SECRET" not in names
    assert "TP_SOCKET_IFNAME=lo" in names
    folder = str(run(group, "w", "os", "getcwd"))
    assert os.path.basename(os.path.dirname(folder)).startswith("rpcinspect-")
    assert run(group, "w", "os.path", "expanduser", "~") == folder
    assert run(group, "w", "os", "getpgid", 0) == pid != os.getpgid(0)
    assert run(group, "w", "os", "getenv", "CUDA_VISIBLE_DEVICES") == ""
    Path(folder, "dropped").write_text("x", encoding="utf-8")
    worker.child.end()
    assert not os.path.exists(folder)


def listening(pids: set[int]) -> set[tuple[str, int]]:
    """(address, port) of the sockets that these processes listen on, as /proc shows them."""
    inodes = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(entry)
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                host, port = fields[1].split(":")
                raw = struct.pack(
                    f"={len(host) // 8}I", *struct.unpack(f">{len(host) // 8}I", bytes.fromhex(host))
                )
                family = socket.AF_INET if table == "tcp" else socket.AF_INET6
                found.add((socket.inet_ntop(family, raw), int(port, 16)))
    return found


def test_everything_listens_on_the_loopback_only(group: LiveGroup) -> None:
    group.start("w0", 0)
    group.start("w1", 1)
    found = listening(descendants(os.getpid()))
    assert len(found) >= 3
    assert {host for host, _ in found} == {"127.0.0.1"}
    assert ("127.0.0.1", group.port) in found


def test_ports_are_free_afterwards(workers: Workers) -> None:
    with LiveGroup(workers) as group:
        group.start("w", 0)
        ports = [port for _, port in listening(descendants(os.getpid()))]
        assert group.port in ports
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_a_name_that_is_taken(group: LiveGroup) -> None:
    group.start("w", 0)
    # torch lets the second one in by its name and finds out about the id.
    with pytest.raises(ReplayError, match="other could not start: init_rpc: RuntimeError"):
        group.start("other", 0)


def test_a_worker_that_ends_itself(group: LiveGroup) -> None:
    worker = group.start("w", 0)
    assert worker.child.wait() is None
    with pytest.raises(ReplayError):
        run(group, "w", "os", "_exit", 3)
    ended = worker.child.wait(SECONDS)
    assert ended is not None
    assert (ended.code, ended.signal) == (3, None)
    with pytest.raises(ReplayError):
        worker.gradients(0)
    assert not worker.leave(1.0)


def test_what_a_worker_writes_is_kept(group: LiveGroup) -> None:
    worker = group.start("w", 0)
    run(group, "w", "os", "write", 2, b"to standard error\n")
    run(group, "w", "os", "write", 1, b"to standard output\n")
    assert "to standard error\n" in worker.child.output.tail()
    assert "to standard output\n" in worker.child.output.tail()
    run(group, "w", "os", "write", 1, b"x" * (1 << 17))
    worker.child.end()
    kept = worker.child.output.tail()
    assert len(kept) == TAIL_BYTES
    assert "x" * 10_000 in kept
    assert "standard" not in kept
    with pytest.raises(ReplayError):
        run(group, "w", "os", "getpid")


def test_a_killed_worker_tells_why(group: LiveGroup) -> None:
    worker = group.start("w", 0)
    os.kill(worker.child.pid, signal.SIGSEGV)
    ended = worker.child.wait(SECONDS)
    assert ended is not None
    assert ended.signal == "SIGSEGV"
    assert (ended.peak_bytes or 0) > 100_000_000  # torch alone
    assert "Segmentation fault" in worker.child.output.tail()


def test_who_has_ended_in_that_order(group: LiveGroup) -> None:
    for number in range(3):
        group.start(f"w{number}", number)
    assert group.ended() == ()
    began = time.monotonic()
    assert group.ended(0.2) == ()
    assert time.monotonic() - began >= 0.2
    for name in ("w2", "w0"):
        os.kill(group.workers[name].child.pid, signal.SIGTERM)
        assert group.workers[name].child.wait(SECONDS) is not None
    os.kill(group.workers["w1"].child.pid, signal.SIGSTOP)  # it does not end
    ended = group.ended(SECONDS)
    assert [(one.worker, one.exit.signal) for one in ended] == [("w2", "SIGTERM"), ("w0", "SIGTERM")]
    assert [one.who for one in ended] == ["the live worker w2", "the live worker w0"]


def test_processes_that_a_worker_starts_end_with_it(group: LiveGroup) -> None:
    worker = group.start("w", 0)
    before = descendants(os.getpid())
    run(group, "w", "subprocess", "getoutput", "sleep 1000 >/dev/null 2>&1 &")
    (sleeper,) = descendants(os.getpid()) - before
    worker.child.end()
    end = time.monotonic() + SECONDS
    while sleeper in descendants(os.getpid()) and time.monotonic() < end:
        time.sleep(0.01)
    assert sleeper not in descendants(os.getpid())
    assert not os.path.exists(f"/proc/{sleeper}")


def test_device_maps_between_live_workers(group: LiveGroup) -> None:
    group.maps = {"w0": {"w1": {"cpu": "cpu"}}}
    group.start("w0", 0)
    group.start("w1", 1)
    assert "'w1'" in str(run(group, "w0", "torch.distributed.rpc.backend_registry", "_get_device_infos"))


def test_gradients_are_shown(group: LiveGroup) -> None:
    """A leaf that lives in the worker: the value that a called operator was given, as a tensor of ours."""
    worker = group.start("worker1", 1)
    context_id = 5
    metas = [
        TensorMeta(dtype="float32", sizes=(3,), strides=(1,), requires_grad=True, storage=0, storage_numel=3)
    ]
    tensor = PickleCall(Global("torch.jit._pickle", "build_tensor_from_id"), (0,))
    command = ScriptCall(
        args=(tensor, 2.0),
        schema="aten::mul.Scalar(Tensor self, Scalar other) -> Tensor",
        qualified_name="torch.ops.aten.mul",
    )
    envelope = RpcWithAutograd(
        message_type=int(MessageType.FORWARD_AUTOGRAD_REQ),
        autograd_metadata=AutogradMetadata(context_id, 1),
        from_worker_id=0,
        device_map={},
        wrapped_message_type=int(MessageType.SCRIPT_CALL),
    )
    payload = wrap([envelope], to_payload(command))
    request = RpcMessage(int(MessageType.FORWARD_AUTOGRAD_REQ), 0, payload, to_tensor_table(metas))
    with StoreClient("127.0.0.1", group.port, prefix=PREFIX) as store, Loop() as loop:
        peer = Peer(loop, "worker0", 0)
        with members(store, [peer]):
            data = struct.pack("<3f", 1.0, 2.0, 3.0)
            answer = peer.call("worker1", request, [data], timeout_s=SECONDS)
            assert answer.message.type == MessageType.FORWARD_AUTOGRAD_RESP
            assert answer.tensors == (struct.pack("<3f", 2.0, 4.0, 6.0),)
            assert worker.gradients(context_id) == ()
            with pytest.raises(ReplayError, match="Could not find autograd context with id: 6"):
                worker.gradients(6)
