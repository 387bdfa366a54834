"""`rpcinspect join`: groups of torch workers that run are joined, replayed against, and left."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rpcinspect.replayer.peers.membership import IS_STATIC, MEMBERS, PREFIX, TOKEN, read_members
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.workers.live_group import LiveGroup
from tests.cli.runner import CAPTURES, CHAIN, Ran, rpcinspect
from tests.forks import command, popen
from tests.replayer.live_calls import run as ask
from tests.replayer.programs import QUIET, Programs, environment, free_port, start_as_fork, until
from tests.views.replay.test_replay_json import check_contract

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_left")

SECONDS = 60.0


def connect(where: object, *arguments: object) -> Ran:
    store = f"tcp://127.0.0.1:{where.port}" if isinstance(where, LiveGroup) else str(where)
    return rpcinspect("join", store, *arguments, "--path", CAPTURES, "--yes")


@pytest.fixture
def store(group: LiveGroup) -> Iterator[StoreClient]:
    with StoreClient("127.0.0.1", group.port, prefix=PREFIX) as client:
        yield client


@pytest.fixture
def programs() -> Iterator[Callable[..., Programs]]:
    """Makes a group of programs; all of it ends with the test."""
    made: list[Programs] = []

    def make(*names: str, arguments: tuple[object, ...] = ()) -> Programs:
        made.append(Programs(names, (*arguments, "--path", CAPTURES), start_as_fork))
        return made[-1]

    yield make
    for one in made:
        one.kill()


# --- what is replayed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capture", "members", "last"),
    [
        ("basic_chain.pcap", ("worker1",), "4 of 4 gradients, 5 of 5 answers"),
        ("dtype_zoo.pcap.gz", ("worker1",), None),
        ("rref_relay.pcap.gz", ("worker2", "worker1"), "1 of 1 gradient, 16 of 16 answers"),
        ("devmap_cpu.pcap.gz", ("worker1", "worker2"), "8 of 8 gradients, 12 of 12 answers"),
        ("profiled_legacy.pcap", ("worker1", "worker2"), None),
    ],
)
def test_the_verdict_of_a_spawned_replay(
    capture: str, members: tuple[str, ...], last: str | None, group: LiveGroup, store: StoreClient
) -> None:
    for number, name in enumerate(members):
        group.start(name, 3 + number)  # not the captured ids
    joined = connect(group, CAPTURES / capture)
    assert (joined.code, joined.err) == (0, "")
    spawned = rpcinspect("replay", CAPTURES / capture, "--path", CAPTURES)
    assert joined.out.splitlines()[-1] == spawned.out.splitlines()[-1]
    if last is not None:
        assert joined.out.splitlines()[-1].startswith(f"identical: {last}")
    assert read_members(store).keys() == set(members)
    assert store.get(TOKEN) == b""
    for name in members:
        assert group.workers[name].leave()


def test_json_lines_and_repetition(group: LiveGroup, store: StoreClient) -> None:
    """Each time with an id that nobody has had: members keep their pipes to the ids that they knew."""
    group.start("worker1", 1)
    ran = connect(group, CHAIN, "--format", "jsonl", "--repeat", 3)
    assert ran.code == 0
    check_contract(ran.objects)
    assert ran.objects[-1]["verdict"] == "identical"
    assert (ran.objects[-1]["runs"], ran.objects[-1]["identical_runs"]) == (3, 3)
    assert [store.check(f"names/{number}") for number in (32767, 32766, 32765, 32764)] == [True] * 3 + [False]


def test_a_difference_is_told(group: LiveGroup) -> None:
    """worker2 calls worker1, who is not in this group."""
    group.start("worker2", 2)
    ran = connect(group, CAPTURES / "bwd_boom.pcap.gz")
    assert ran.code == 1
    assert "could not find destination name worker1" in ran.out
    assert group.workers["worker2"].leave()


def test_names_that_are_taken_and_names_that_are_others(group: LiveGroup, store: StoreClient) -> None:
    group.start("worker0", 0)
    group.start("ps", 1)
    ran = connect(group, CHAIN, "--rename", "worker1=ps")
    assert ran.code == 0
    assert read_members(store) == {"worker0": 0, "ps": 1}
    again = connect(group, CHAIN, "--rename", "worker1=ps", "--rename", "worker0=trainer")
    assert again.code == 0
    taken = connect(group, CHAIN, "--rename", "worker1=ps", "--rename", "worker0=worker0")
    assert taken.code == 1
    assert "the group has a member of this name" in taken.out


def test_what_a_replay_made_is_taken_back(group: LiveGroup) -> None:
    """The captured job leaks contexts and remote references."""
    group.start("worker1", 1)
    assert connect(group, CAPTURES / "faults" / "leaks.pcap.gz").code == 0
    for module, function in (
        ("torch._C._distributed_autograd", "_get_debug_info"),
        ("torch._C._distributed_rpc", "_rref_context_get_debug_info"),
    ):
        info = ask(group, "worker1", module, function)
        assert isinstance(info, dict)
        held = {name: value for name, value in info.items() if "num_" in name and int(value)}
        assert held == {}
    began = time.monotonic()
    assert group.workers["worker1"].leave()
    assert time.monotonic() - began < 5.0


def test_a_recording(group: LiveGroup, tmp_path: Path) -> None:
    group.start("worker1", 1)
    record = tmp_path / "live.pcap"
    assert connect(group, CHAIN, "--record", record).code == 0
    shown = rpcinspect("decode", record)
    assert shown.code == 0
    assert "basic_chain.scale" in shown.out


# --- what is refused ----------------------------------------------------------------------------------------


def test_nothing_without_yes(group: LiveGroup, store: StoreClient) -> None:
    group.start("worker1", 1)
    ran = rpcinspect("join", f"tcp://127.0.0.1:{group.port}", CHAIN, "--path", CAPTURES)
    assert (ran.code, ran.out) == (4, "")
    assert "would RUN what the capture sends" in ran.err
    assert "--yes" in ran.err
    assert not store.check("names/32767")


def test_the_gate_holds_as_ever(group: LiveGroup, store: StoreClient) -> None:
    group.start("worker1", 1)
    ran = rpcinspect("join", f"tcp://127.0.0.1:{group.port}", CHAIN, "--yes")
    assert ran.code == 4
    assert "REFUSED  basic_chain." in ran.out
    assert not store.check("names/32767")


def test_a_target_that_is_no_member(group: LiveGroup, store: StoreClient) -> None:
    group.start("worker7", 7)
    group.start("worker5", 5)
    ran = connect(group, CHAIN)
    assert ran.code == 1
    assert "worker1 is not a member of the group, whose members are worker5, worker7" in ran.out
    assert not store.check("names/32767")


def test_a_static_group(group: LiveGroup, store: StoreClient) -> None:
    store.set(IS_STATIC, b"true")
    store.set(MEMBERS, b"worker1-1,")
    ran = connect(group, CHAIN)
    assert ran.code == 1
    assert "the group is static (init_rpc with world_size): no worker can join it" in ran.out
    assert not store.check(TOKEN)


def test_no_group_at_all(group: LiveGroup) -> None:
    ran = connect(group, CHAIN)
    assert ran.code == 1
    assert "no torch.distributed.rpc group has its workers in this store" in ran.out


def test_no_store() -> None:
    ran = connect(f"tcp://127.0.0.1:{free_port()}", CHAIN)
    assert ran.code == 1
    assert "Connection refused" in ran.out


# --- groups of programs -------------------------------------------------------------------------------------


STATIC = """
import sys
import torch.distributed.rpc as rpc
rank, port = int(sys.argv[1]), sys.argv[2]
options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}")
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
if rank == 0:
    print("ready", flush=True)
    sys.stdin.readline()
    assert rpc.rpc_sync("worker1", len, ("four",)) == 4
rpc.shutdown()
"""


@pytest.mark.slow
def test_a_real_static_group_goes_on() -> None:
    port = free_port()
    workers = [
        popen(
            [sys.executable, "-c", STATIC, str(rank), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(rank, port),
            encoding="utf-8",
        )
        for rank in range(2)
    ]
    try:
        assert workers[0].stdout is not None
        assert workers[0].stdout.readline() == "ready\n"
        ran = connect(f"tcp://127.0.0.1:{port}", CHAIN)
        assert ran.code == 1
        assert "the group is static (init_rpc with world_size): no worker can join it" in ran.out
        workers[0].communicate("go on\n", timeout=SECONDS)
        workers[1].communicate(timeout=SECONDS)
        assert [worker.returncode for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--transport", "uv", "--channel", "mpt_uv")])
def test_a_group_of_programs_goes_on(options: tuple[str, ...], programs: Callable[..., Programs]) -> None:
    """torch's default on one host is shared memory between the members, and mpt_uv with us."""
    group = programs("worker2", "worker1", "late", arguments=options)
    group.start("worker2", "worker1")
    for capture in (CHAIN, CAPTURES / "rref_relay.pcap.gz"):
        ran = connect(group.store, capture)
        assert ran.code == 0, ran.out + ran.err
    group.check_works("late")
    group.end_all()


def waiting(folder: Path) -> tuple[Path, Path, Path]:
    """Sources whose function waits; (folder, it was called, it may go on)."""
    source = folder / "src"
    source.mkdir()
    began, go = folder / "began", folder / "go"
    (source / "basic_chain.py").write_text(
        f"import os, time\n\ndef scale(x, weight, gain=1.0):\n    open({str(began)!r}, 'w').close()\n"
        f"    while not os.path.exists({str(go)!r}):\n        time.sleep(0.02)\n    return x\n"
        "def combine(*args, **kwargs):\n    return args[0]\n",
        encoding="utf-8",
    )
    return source, began, go


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_signals_during_a_replay(number: int, tmp_path: Path, programs: Callable[..., Programs]) -> None:
    source, began, go = waiting(tmp_path)
    group = programs("worker1", "worker3", "late", arguments=(*QUIET, "--path", source))
    group.start("worker1", "worker3")
    process = command(
        *("join", group.store, CHAIN, "--path", source, "--yes"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        cwd=CAPTURES.parent,
    )
    try:
        until(began.exists, SECONDS)
        assert group.members().keys() == {"worker1", "worker3", "worker0"}
        process.send_signal(number)
        out, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.communicate()
    go.touch()
    assert "Traceback" not in out + err
    if number == signal.SIGKILL:
        assert "worker0" in group.members()
        ran = rpcinspect("leave", group.store, "worker0", "--yes")
        assert (ran.code, ran.err) == (0, "rpcinspect: worker0 is no longer a member\n")
    else:
        assert process.returncode == (130 if number == signal.SIGINT else 128 + number)
    group.check_works("late")
    group.end_all()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_signals_at_any_moment(number: int, programs: Callable[..., Programs]) -> None:
    """The first moments, while Python starts, are not ours. Two things that torch does to its workers when a
    process is killed at once are not ours either, see docs/replay.md: what is killed here holds no remote
    references, and a worker that takes no connection any more is replaced.
    """
    capture = "devmap_cpu.pcap.gz" if number == signal.SIGKILL else "rref_relay.pcap.gz"
    group = started(programs)
    began = time.monotonic()
    assert joining(group, capture).wait(SECONDS) == 0
    whole_s = time.monotonic() - began
    codes = []
    for _ in range(6):
        process = joining(group, capture)
        time.sleep(random.uniform(0.6 * whole_s, whole_s))
        process.send_signal(number)
        codes.append(process.wait(SECONDS))
        if number == signal.SIGKILL:
            ran = rpcinspect("leave", group.store, "worker0", "--yes")
            assert ran.code == 0 or "worker0 is not a member of the group" in ran.err
        assert group.members().keys() == {"worker1", "worker2"}
        assert group.token() == b""
        if number == signal.SIGKILL and not all(map(group.takes_connections, ("worker1", "worker2"))):
            ends = set(group.kill())  # some of those that take no connection have crashed in torch by then
            assert ends <= {-signal.SIGKILL, -signal.SIGSEGV}
            group = started(programs)
    assert set(codes) <= {0, 130, -number}
    group.check_works("late")
    group.end_all()


def started(programs: Callable[..., Programs]) -> Programs:
    """A group of two, and somebody who may join it."""
    group = programs("worker1", "worker2", "late", arguments=QUIET)
    group.start("worker1", "worker2")
    return group


def joining(group: Programs, capture: str) -> subprocess.Popen[bytes]:
    """A replay that has just been started."""
    return command(
        *("join", group.store, CAPTURES / capture, "--path", CAPTURES, "--yes"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=CAPTURES.parent,
    )
