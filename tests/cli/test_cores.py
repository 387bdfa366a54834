"""How many cores are ours, and JSON whose tensors are hashed on them: the same bytes on any number."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from rpcinspect.cli import cores, messages
from rpcinspect.cli.cores import usable_cores
from rpcinspect.rpc.command import PythonResp
from rpcinspect.rpc.command_codec import to_payload
from rpcinspect.rpc.tensor import TensorMeta, to_tensor_table
from rpcinspect.views.jsonl import hashes, message
from rpcinspect.views.spool import Spool
from tests.cli.runner import CHAIN, decode, rpcinspect
from tests.forks import python
from tests.places import recorded

ALIKE = (
    *("basic_chain.pcap", "bwd_boom.pcap.gz", "dtype_zoo.pcap.gz", "devmap_cpu.pcap.gz"),
    *("profiled_legacy.pcap", "ps_race.pcap.gz", "reinit.pcap.gz", "torch/sparse.pcap", "torch/snap300.pcap"),
    *("torch/chan_uvcma.pcap", "torch/stress_lossy.pcap.gz", "versions/torch-1.8.1.pcap"),
)
"""Plain and compressed, small and lossy, cut packets, several jobs, tensors that are shared, sparse, on their
way to devices, or invisible."""


# --- how many ---


def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, **limits: str) -> None:
    """Puts this process into a control group."""
    own = tmp_path / "cgroup"
    own.write_text(said)
    for name, limit in limits.items():
        folder = tmp_path / "fs" / name.strip("_").replace("_", "/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.max").write_text(limit + "\n")
    monkeypatch.setattr(cores, "OWN_GROUP", own)
    monkeypatch.setattr(cores, "GROUPS", tmp_path / "fs")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)), raising=False)


@pytest.mark.parametrize(
    ("said", "limits", "found"),
    [
        ("0::/a/b\n", {}, 16),
        ("0::/a/b\n", {"a_b": "max 100000"}, 16),
        ("0::/a/b\n", {"a_b": "400000 100000"}, 4),
        ("0::/a/b\n", {"a_b": "400000 100000", "a": "250000 100000"}, 2),
        ("0::/a/b\n", {"a_b": "50000 100000"}, 1),
        ("0::/a/b\n", {"a_b": "9900000 100000"}, 16),
        ("0::/gone\n", {"_": "300000 100000"}, 3),  # what a container sees of itself
        ("0::/a\n", {"a": "damaged"}, 16),
        ("0::/a\n", {"a": "1 0"}, 16),
        ("12:cpu:/a\n", {"a": "100000 100000"}, 16),
    ],
)
def test_a_share_of_the_processors(
    said: str, limits: dict[str, str], found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group(tmp_path, monkeypatch, said, **limits)
    assert usable_cores() == found


def test_only_processors_that_we_may_run_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group(tmp_path, monkeypatch, "0::/\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3}, raising=False)
    assert usable_cores() == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1


# --- what they do ---


def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Other threads hash every tensor; returns a list that gets a row for each hash that came later."""
    monkeypatch.setattr(message, "LARGE", 0)
    monkeypatch.setattr(hashes, "CHUNK", 100)
    later: list[int] = []
    replace = Spool.replace

    def noted(spool: Spool, row: int, old: bytes, new: bytes) -> None:
        later.append(row)
        replace(spool, row, old, new)

    monkeypatch.setattr(Spool, "replace", noted)
    return later


@pytest.mark.parametrize("name", ALIKE)
def test_the_same_bytes_on_any_number_of_cores(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recorded(name)
    options = [
        ("--format", "jsonl"),
        ("--format", "json"),
        ("--format", "jsonl", "-f", "request and tensors > 0"),
    ]
    alone = [decode(path, *how, "--jobs", 1) for how in options]
    later = everything_is_large(monkeypatch)
    for jobs in (1, 2, 3):
        assert [decode(path, *how, "--jobs", jobs) for how in options] == alone
    hashed = b'"sha256":"' in alone[0].out.encode()
    assert bool(later) == hashed


def test_messages_that_are_saved_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = decode(CHAIN, "--format", "jsonl", "-w", tmp_path / "one.pcap", "--jobs", 1)
    later = everything_is_large(monkeypatch)
    assert decode(CHAIN, "--format", "jsonl", "-w", tmp_path / "two.pcap", "--jobs", 2).out == alone.out
    assert later


def test_one_core_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    later = everything_is_large(monkeypatch)
    monkeypatch.setattr(messages, "usable_cores", lambda: 1)
    before = threading.active_count()
    decode(CHAIN, "--format", "jsonl")
    assert not later
    assert threading.active_count() == before
    monkeypatch.setattr(messages, "usable_cores", lambda: 2)
    decode(CHAIN, "--format", "jsonl")
    assert later


def test_small_tensors_go_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes.HashThreads, "of", None)
    assert decode(CHAIN, "--format", "jsonl", "--jobs", 2).code == 0


def test_no_cores_are_a_mistake() -> None:
    assert rpcinspect("decode", CHAIN, "--jobs", 0).code == 2


def endless(path: Path, length: int) -> None:
    """A log of two tensors, that takes no room."""
    table = to_tensor_table(
        [TensorMeta(dtype="uint8", sizes=(length,), strides=(1,), storage=0, storage_numel=length)]
    )
    payload = to_payload(PythonResp(pickle.dumps(1)))
    header = {"rpc": "message", "time_ns": 1, "src": "a", "dst": "b", "type": "PYTHON_RET"}
    header |= {"bytes": len(payload) + len(table) + length, "payload": len(payload), "table": len(table)}
    with path.open("wb") as file:
        file.write(b'{"rpclog":1}\n')
        for number in range(2):
            file.write(json.dumps(header | {"id": number, "storages": [length]}).encode() + b"\n")
            file.write(payload + table)
            file.seek(length, os.SEEK_CUR)
            file.write(b"\n")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="this system does not tell of threads")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_signals_end_all_threads_at_once(number: int, code: int, tmp_path: Path) -> None:
    path = tmp_path / "endless.rpclog"
    endless(path, 1 << 38)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = python("-m", "rpcinspect", "decode", path, "--format", "jsonl", "--jobs", 2, **streams)
    for _ in range(1000):
        if len(list(Path(f"/proc/{process.pid}/task").iterdir())) > 1:
            break
        time.sleep(0.02)
    time.sleep(0.2)
    began = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, b"")
    assert b"message" not in out
    assert time.monotonic() - began < 10
