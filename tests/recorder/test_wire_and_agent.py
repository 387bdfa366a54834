"""The same run recorded by the wire and by the agent, at the same time: both say the same. And what the agent
records on the transports that no packet shows, a replay gives again."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping

import pytest

from tests.forks import ran
from tests.recorder.agents import need_agent
from tests.recorder.both import WORKLOADS, hold_against_each_other, record_both
from tests.recorder.parts import Part, parted, workloads
from tests.recorder.recording import CAPTURES, environment, record

pytestmark = [pytest.mark.slow]


@pytest.fixture(autouse=True)
def _agent() -> None:
    pytest.importorskip("torch")
    need_agent()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Part]:
    """The workloads, recorded by both."""
    return record_both(tmp_path_factory.mktemp("both"), sys.executable)


@pytest.mark.rooted
@pytest.mark.parametrize("name", WORKLOADS)
def test_wire_and_agent_say_the_same_of_a_run(recorded: Mapping[str, Part], name: str) -> None:
    hold_against_each_other(recorded[name])


@pytest.fixture(scope="module")
def of_shared_memory(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Part]:
    """Some of the workloads, which here leave the choice to torch: shared memory."""
    folder = tmp_path_factory.mktemp("shared_memory")
    jobs = folder / "jobs"
    shutil.copytree(CAPTURES, jobs, ignore=lambda _, names: [n for n in names if not n.endswith(".py")])
    common = jobs / "common.py"
    text = common.read_text()
    for choice in ('("uv",)', '("basic",)'):
        assert f"= {choice}," in text
        text = text.replace(f"= {choice},", "= (),")
    common.write_text(text)
    command = workloads(*REPLAYED, modules=jobs)
    done = record("-o", "x.rpclog", "--via", "agent", "--", *command, folder=folder)
    assert done.code == 0, done.err
    return parted(done, folder)


REPLAYED = ("basic_chain", "views_alias", "rref_relay")


@pytest.mark.parametrize("name", REPLAYED)
def test_a_log_of_shared_memory_replays_identical(of_shared_memory: Mapping[str, Part], name: str) -> None:
    part = of_shared_memory[name]
    run = part.of_agent
    (expected,) = run.of("expect")
    assert dict(sorted(run.decoded.summary["by_type"].items())) == expected["by_type"]
    assert run.decoded.problems() == []
    command = ("replay", str(part.log), "--path", "jobs", "--format", "jsonl")
    replayed = ran(*command, cwd=part.folder, env=environment(), encoding="utf-8", timeout=300)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    report = json.loads(replayed.stdout.splitlines()[-1])
    assert report["verdict"] == "identical"
    assert report["sent"] > 0
