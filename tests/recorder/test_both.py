"""The same run recorded by the wire and by the agent, at the same time: both say the same. And what the agent
records on the transports that no packet shows, a replay gives again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.decoded import Decoded, decode
from tests.recorder.agents import need_agent
from tests.recorder.recording import CAPTURES, environment, need_own_network, record
from tests.truth import Workload

pytestmark = [pytest.mark.slow]

Json = dict[str, Any]

WORKLOADS = {
    "basic_chain": "D01",
    "profiled_legacy": "D02",
    "param_detach": "D03",
    "dtype_zoo": "D04",
    "views_alias": "D05",
    "ctx_crowd": "D06",
    "rref_relay": "D07",
    "bwd_boom": "D08",
    "devmap_cpu": "D10",
}
"""All of them choose uv and basic by themselves."""

OF_THE_CAPTURE = {"index", "time_ns", "end_time_ns", "pipe", "location"}
"""What is no matter of the message: its number in the order of time, when it was seen, and where it lies."""


@pytest.fixture(autouse=True)
def _agent() -> None:
    pytest.importorskip("torch")
    need_agent()


def by_key(output: Decoded) -> dict[tuple[object, ...], Json]:
    """Messages by what makes them this one; `answers` is a number in the order of time, here its request."""
    keys = {m["index"]: (m["src"], m["dst"], m["request"], m["id"]) for m in output.messages}
    assert len(set(keys.values())) == len(keys)
    found = {}
    for message in output.messages:
        said = {name: value for name, value in message.items() if name not in OF_THE_CAPTURE}
        said["answers"] = None if message["answers"] is None else keys[message["answers"]]
        found[keys[message["index"]]] = said
    return found


@pytest.mark.rooted
@pytest.mark.parametrize("name", WORKLOADS)
def test_wire_and_agent_say_the_same_of_a_run(tmp_path: Path, name: str) -> None:
    need_own_network()
    inner = (sys.executable, "-m", "rpcinspect", "record", "-o", "x.rpclog", "--via", "agent", "--")
    outer = ("-o", "x.pcap", "--via", "wire", "--private-net", "--")
    done = record(*outer, *inner, sys.executable, CAPTURES / f"{name}.py", folder=tmp_path)
    assert done.code == 0, done.err
    run = Workload(name, tmp_path / "x.pcap", done.out)
    wire, agent = by_key(run.decoded), by_key(decode(tmp_path / "x.rpclog"))
    assert set(wire) == set(agent)
    for key, message in wire.items():
        assert message == agent[key], key
    (expected,) = run.of("expect")
    assert run.decoded.summary["by_type"] == decode(tmp_path / "x.rpclog").summary["by_type"]
    assert dict(sorted(run.decoded.summary["by_type"].items())) == expected["by_type"]
    assert contexts(run.decoded) == contexts(decode(tmp_path / "x.rpclog"))


def contexts(output: Decoded) -> list[str]:
    """What is said of autograd contexts and references, without numbers of messages and times."""
    kept = []
    for line in (*output.of("context"), *output.of("rref")):
        kept.append(json.dumps(_without_indexes(line), sort_keys=True))
    return sorted(kept)


def _without_indexes(value: Any) -> Any:
    """Numbers that depend on the order of time are those of lists and keys that name messages."""
    if isinstance(value, dict):
        return {key: _without_indexes(item) for key, item in value.items() if key not in NUMBERED}
    if isinstance(value, list):
        return [_without_indexes(item) for item in value]
    return value


NUMBERED = {"index", "message", "messages", "forward", "response", "backward", "cleanup", "time_ns"}


@pytest.fixture
def own_transports(tmp_path: Path) -> Path:
    """The workloads, which here leave the choice to torch: shared memory."""
    folder = tmp_path / "jobs"
    shutil.copytree(CAPTURES, folder, ignore=lambda _, names: [n for n in names if not n.endswith(".py")])
    common = folder / "common.py"
    text = common.read_text()
    for choice in ('("uv",)', '("basic",)'):
        assert f"= {choice}," in text
        text = text.replace(f"= {choice},", "= (),")
    common.write_text(text)
    return folder


@pytest.mark.parametrize("name", ["basic_chain", "param_detach", "views_alias", "ctx_crowd", "rref_relay"])
def test_a_log_of_shared_memory_replays_identical(tmp_path: Path, own_transports: Path, name: str) -> None:
    job = (sys.executable, own_transports / f"{name}.py")
    done = record("-o", "x.rpclog", "--via", "agent", "--", *job, folder=tmp_path)
    assert done.code == 0, done.err
    run = Workload(name, tmp_path / "x.rpclog", done.out)
    (expected,) = run.of("expect")
    assert dict(sorted(run.decoded.summary["by_type"].items())) == expected["by_type"]
    assert run.decoded.problems() == []
    replayed = subprocess.run(
        [sys.executable, "-m", "rpcinspect", "replay", "x.rpclog", "--path", "jobs", "--format", "jsonl"],
        check=False,
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    report = json.loads(replayed.stdout.splitlines()[-1])
    assert report["verdict"] == "identical"
    assert report["sent"] > 0
