"""Bounds of a process: in processes of their own, and in live workers as these see them."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.replayer.peers.loop import Loop, ResponseArrived
from rpcinspect.replayer.peers.membership import PREFIX
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.workers.live_group import LiveGroup
from rpcinspect.replayer.workers.workers import Workers
from tests.replayer.live_calls import SECONDS, python_call, run

linux = pytest.mark.skipif(sys.platform != "linux", reason="the bounds of Linux")
LITTLE = 100_000_000

CRASH = """
import os, resource, signal, sys
from rpcinspect.replayer.workers import bounds
resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
if sys.argv[1] == "bounded":
    bounds.forbid_cores()
os.kill(os.getpid(), signal.SIGSEGV)
"""


def can_dump() -> bool:
    """Whether a process of ours may leave a core file in its folder at all."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    unlimited = hard == resource.RLIM_INFINITY or os.geteuid() == 0
    return unlimited and Path("/proc/sys/kernel/core_pattern").read_text().strip() in ("core", "core.%p")


@linux
@pytest.mark.parametrize("way", ["free", "bounded"])
def test_no_core_is_left(way: str, tmp_path: Path, repo: Path) -> None:
    if not can_dump():
        pytest.skip("this system leaves no core files")
    environment = os.environ | {"PYTHONPATH": str(repo)}
    done = subprocess.run([sys.executable, "-c", CRASH, way], cwd=tmp_path, env=environment, timeout=60)
    assert done.returncode == -11
    assert (os.listdir(tmp_path) != []) is (way == "free")


def told(code: str) -> Any:
    """What a program prints as JSON; it has the module as `bounds`."""
    head = "import json, resource, threading\nfrom rpcinspect.replayer.workers import bounds\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@linux
def test_memory_is_bounded_once_and_for_all() -> None:
    found = told(
        "was = bounds.private_bytes()\n"
        "said = bounds.bound_memory(50_000_000, 2)\n"
        "limits = resource.getrlimit(resource.RLIMIT_DATA)\n"
        "def take(count):\n"
        "    try: return len(bytes(count))\n"
        "    except MemoryError: return None\n"
        "took = [take(20_000_000), take(100_000_000)]\n"
        "looser = bounds.bound_memory(1 << 40, 0)\n"
        "print(json.dumps([was, bounds.stack_bytes(), said, limits, took, looser,\n"
        "    resource.getrlimit(resource.RLIMIT_DATA)]))"
    )
    was, stack, said, limits, took, looser, after = found
    assert said == 50_000_000
    assert limits[0] == limits[1]
    assert 0 <= limits[0] - (was + said + 2 * stack) < 10_000_000
    assert took == [20_000_000, None]
    assert looser == 1 << 40
    assert after == limits


@linux
def test_address_space_that_is_only_reserved_is_free() -> None:
    """CUDA, and glibc's heaps of threads, reserve much more than they use."""
    found = told(
        "import ctypes, mmap\n"
        "bounds.bound_memory(50_000_000, 0)\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "libc.mmap.restype = ctypes.c_void_p\n"
        "size, anonymous = ctypes.c_size_t(1 << 36), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000\n"
        "at = libc.mmap(None, size, 0, anonymous, -1, ctypes.c_long(0))\n"
        "print(json.dumps(at not in (None, ctypes.c_void_p(-1).value)))"
    )
    assert found is True


def test_without_a_bound() -> None:
    assert told(
        "before = resource.getrlimit(resource.RLIMIT_DATA)\n"
        "said = bounds.bound_memory(None, 2)\n"
        "print(json.dumps([said, resource.getrlimit(resource.RLIMIT_DATA) == before]))"
    ) == [None, True]


def ask(group: LiveGroup, worker: str, module: str, name: str, *args: object) -> ResponseArrived:
    """The answer to a call, whatever it is."""
    with StoreClient("127.0.0.1", group.port, prefix=PREFIX) as store, Loop() as loop:
        peer = Peer(loop, "stranger", 99)
        peer.addresses[worker] = store.get(f"addrs/{worker}").decode()
        return peer.call(worker, python_call(module, name, *args), timeout_s=SECONDS)


@linux
def test_live_workers_and_what_they_start(workers: Workers, nothing_left: None) -> None:
    with LiveGroup(workers, memory=LITTLE) as group:
        group.start("w", 0)
        status = run(group, "w", "linecache", "getlines", "/proc/self/status")
        assert "NoNewPrivs:\t1\n" in str(run(group, "w", "subprocess", "getoutput", "cat /proc/self/status"))
        assert isinstance(status, list)
        assert "NoNewPrivs:\t1\n" in status
        soft, hard = run(group, "w", "resource", "getrlimit", resource.RLIMIT_CORE)  # type: ignore[misc]
        assert soft == hard <= 1
        bound, hard = run(group, "w", "resource", "getrlimit", resource.RLIMIT_DATA)  # type: ignore[misc]
        assert bound == hard != resource.RLIM_INFINITY
        assert b"MemoryError" in ask(group, "w", "builtins", "bytes", bound).message.payload
        assert run(group, "w", "builtins", "len", b"abc") == 3
        assert group.ended() == ()


@linux
def test_a_group_without_a_bound(group: LiveGroup) -> None:
    group.start("w", 0)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    assert run(group, "w", "resource", "getrlimit", resource.RLIMIT_DATA) == before
