"""Jobs of real workers, recorded by the command line: what decodes is what the workers printed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import decoded
from tests.recorder.recording import CAPTURES, need_own_network, record
from tests.truth import Workload

pytestmark = [pytest.mark.rooted, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _own_network() -> None:
    need_own_network()


def test_a_job_is_recorded_as_its_workers_saw_it(tmp_path: Path) -> None:
    script = CAPTURES / "basic_chain.py"
    done = record(
        "-o", "x.pcap", "--via", "wire", "--private-net", "--", sys.executable, script, folder=tmp_path
    )
    assert done.code == 0, done.err
    assert [line for line in done.told if "WARNING" in line] == []
    run = Workload("basic_chain", tmp_path / "x.pcap", done.out)
    assert len(run.calls()) == 2
    (expected,) = run.of("expect")
    assert dict(sorted(run.decoded.summary["by_type"].items())) == expected["by_type"]
    assert run.decoded.problems() == []


def test_default_transports_become_visible(tmp_path: Path) -> None:
    job = (sys.executable, CAPTURES / "transport_matrix.py", "default")
    done = record("-o", "x.pcap", "--via", "wire", "--private-net", "--", *job, folder=tmp_path)
    assert done.code == 0, done.err
    output = decoded.decode(tmp_path / "x.pcap")
    assert output.problems() == []
    assert {pipe["transport"] for pipe in output.of("pipe")} == {"uv"}
    assert {channel for pipe in output.of("pipe") for channel in pipe["channels"].values()} == {"basic"}
