"""Jobs of real workers, recorded by the command line: what decodes is what the workers printed."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import decoded
from tests.carriers import frames
from tests.recorder.parts import parted, workloads
from tests.recorder.recording import Ran, need_own_network, record
from tests.thorough import THOROUGH
from tests.truth import Workload

pytestmark = [pytest.mark.rooted, pytest.mark.slow]

JOB = Path(__file__).with_name("job.py")
DEFAULT = "transport_matrix,default"
IN_OTHERS = (
    "make test-thorough: quick, the killed worker here and those of test_worker_ends.py start in these ways"
)
WIRE = ("-o", "x.pcap", "--via", "wire", "--private-net", "--")


@pytest.fixture(autouse=True)
def _own_network() -> None:
    need_own_network()


def well(done: Ran) -> Ran:
    """A recording of which nothing must be told."""
    assert done.code == 0, done.err
    assert [line for line in done.told if "WARNING" in line] == []
    return done


def check_run(run: Workload, done: Ran) -> None:
    """What its workers and its author said of it."""
    assert run.calls()
    (expected,) = run.of("expect")
    assert dict(sorted(run.decoded.summary["by_type"].items())) == expected["by_type"]
    assert run.decoded.problems() == []
    for worker in run.of("worker"):
        assert f"{worker['name']} (id {worker['id']}, process " in done.err


def test_jobs_are_recorded_as_their_workers_saw_them(tmp_path: Path) -> None:
    """One after the other; the last leaves the choice of transports to torch. test_wire_and_agent.py has many
    more of the wire."""
    done = well(record(*WIRE, *workloads("rref_relay", DEFAULT), folder=tmp_path))
    parts = parted(done, tmp_path)
    check_run(parts["rref_relay"].of_wire, done)
    output = decoded.decode(parts[DEFAULT].capture)
    assert output.problems() == []
    assert {pipe["transport"] for pipe in output.of("pipe")} == {"uv"}
    assert {channel for pipe in output.of("pipe") for channel in pipe["channels"].values()} == {"basic"}
    counts = [decoded.decode(part.capture).summary["messages"] for part in parts.values()]
    assert f"recorded {sum(counts):,} messages, " in done.err


def test_a_redacted_recording_holds_nothing_of_the_job(tmp_path: Path) -> None:
    redact = ("-o", "x.pcap", "--private-net", "--redact", "--redact-seed", "ours", "--")
    done = well(record(*redact, *workloads("basic_chain"), folder=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["x.pcap"]
    data = (tmp_path / "x.pcap").read_bytes()
    assert [word for word in (b"worker0", b"basic_chain", b"scale", b"gain") if word in data] == []
    run = parted(done, tmp_path)["basic_chain"].of_wire
    (expected,) = run.of("expect")
    assert dict(sorted(run.decoded.summary["by_type"].items())) == expected["by_type"]
    assert run.decoded.problems() == []


def said(done: Ran) -> list[dict[str, Any]]:
    """What the workers of job.py printed, by name."""
    lines = [json.loads(line) for line in done.out.splitlines()]
    return sorted(lines, key=lambda line: str(line["worker"]))


def check_job(done: Ran, folder: Path) -> decoded.Decoded:
    """The five calls of job.py, and who its workers were."""
    first, second = said(done)
    for line in (first, second):
        assert f"{line['worker']} (id {line['worker'][-1]}, process {line['pid']}, torch " in done.err
    output = decoded.decode(folder / "x.pcap")
    calls = [m for m in output.messages if m["body"].get("function", "").endswith(".total")]
    assert [call["body"]["args"][1] for call in calls] == ["0", "1", "2", "3", "4"]
    answers = [output.answer(call) for call in calls]
    assert [answer and answer["body"]["value"] for answer in answers] == list(map(repr, first["answers"]))
    return output


@pytest.mark.skipif(not THOROUGH, reason=IN_OTHERS)
@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_children_of_python_are_recorded(tmp_path: Path, how: str) -> None:
    done = well(record(*WIRE, sys.executable, JOB, how, folder=tmp_path))
    assert check_job(done, tmp_path).problems() == []


@pytest.mark.skipif(not THOROUGH, reason=IN_OTHERS)
def test_workers_of_torchrun_are_recorded(tmp_path: Path) -> None:
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    done = well(record(*WIRE, *torchrun, JOB, folder=tmp_path))
    assert check_job(done, tmp_path).problems() == []


def test_a_worker_that_is_killed_has_been_recorded_until_then(tmp_path: Path) -> None:
    done = record(*WIRE, sys.executable, JOB, "killed", folder=tmp_path)
    assert done.code == 0, done.err
    output = check_job(done, tmp_path)
    (last,) = [m for m in output.messages if m["body"].get("function", "").endswith(".end_yourself")]
    assert output.answer(last) is None
    worker1 = next(line for line in done.told if line.strip().startswith("worker1 "))
    assert worker1.endswith("killed by SIGKILL")


def test_a_job_that_python_isolates_is_told_of(tmp_path: Path) -> None:
    done = record(*WIRE, sys.executable, "-E", JOB, "fork", folder=tmp_path)
    assert done.code == 0, done.err
    assert any(line.startswith("WARNING: no process called init_rpc") for line in done.told)


def test_two_sniffers_see_the_same(tmp_path: Path) -> None:
    """tcpdump runs beside ours in the same namespace: the same packets, at the same times."""
    if os.geteuid() != 0 or shutil.which("tcpdump") is None:
        pytest.skip("needs root and tcpdump")
    script = """
        ip link set lo up
        tcpdump -i lo -s 0 -B 65536 -U --nano -w other.pcap tcp 2>other.log & other=$!
        while ! grep -q 'listening on' other.log; do sleep 0.1; done
        "$@"; code=$?
        sleep 2; kill -INT $other; wait $other; exit $code
    """
    before = ("unshare", "--net", "sh", "-c", script, "sh")
    done = well(
        record("-o", "x.pcap", "--via", "wire", "--", *workloads("ctx_crowd"), folder=tmp_path, before=before)
    )
    assert "0 packets dropped by kernel" in (tmp_path / "other.log").read_text()
    ours, others = packets(tmp_path / "x.pcap"), packets(tmp_path / "other.pcap")
    assert len(ours) > 500
    assert Counter(data for _, data in ours) == Counter(data for _, data in others)
    assert max(abs(a - b) for a, b in zip(times(ours), times(others), strict=True)) < 10**8
    assert done.told[0] == "recording via wire into x.pcap"


def packets(path: Path) -> list[tuple[int, bytes]]:
    """Time and bytes of each packet."""
    return [(time_ns, frame) for frame, _, time_ns, _ in frames(path)]


def times(found: list[tuple[int, bytes]]) -> list[int]:
    """Of the packets, told apart by their bytes."""
    return [time_ns for _, time_ns in sorted((data, time_ns) for time_ns, data in found)]
