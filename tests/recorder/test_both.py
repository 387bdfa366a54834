"""The same run recorded by the wire and by the agent, at the same time: both say the same. And what the agent
records on the transports that no packet shows, a replay gives again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recorder.agents import need_agent
from tests.recorder.both import WORKLOADS, hold_against_each_other
from tests.recorder.recording import CAPTURES, environment, record
from tests.truth import Workload

pytestmark = [pytest.mark.slow]


@pytest.fixture(autouse=True)
def _agent() -> None:
    pytest.importorskip("torch")
    need_agent()


@pytest.mark.rooted
@pytest.mark.parametrize("name", WORKLOADS)
def test_wire_and_agent_say_the_same_of_a_run(tmp_path: Path, name: str) -> None:
    hold_against_each_other(tmp_path, name, sys.executable)


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


@pytest.mark.parametrize("name", ["basic_chain", "views_alias", "rref_relay"])
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
