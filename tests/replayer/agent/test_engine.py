"""Whole replays with torch's own agent in the place of played workers: what it can do comes back identical,
and what it can't is skipped by name. The counts are those of the wire engine's tests, from the jobs' scripts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.errors import DeviceError
from rpcinspect.replayer.options import ReplayOptions
from rpcinspect.replayer.planning.devices import DevicePlacement, Devices
from rpcinspect.replayer.workers.workers import WorkerOptions, Workers
from rpcinspect.run.run import RunModel
from tests.places import recorded
from tests.replayer.cuda_captures import on_cuda
from tests.replayer.test_replayer import CAPTURES, not_alike, replayed
from tests.truth import capture_of

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_left")

AGENT = ReplayOptions(engine="agent")


class Job(Struct, frozen=True):
    """A capture, and what of it a replay by torch's agent must find identical."""

    name: str
    answers: int
    gradients: int
    unsupported: int
    """Requests that this engine can't replay: cleanups that torch answers unseen."""

    def __str__(self) -> str:
        return self.name


JOBS = [
    Job("basic_chain", answers=5, gradients=4, unsupported=1),
    Job("param_detach", answers=5, gradients=3, unsupported=1),
    Job("dtype_zoo", answers=45, gradients=0, unsupported=0),
    Job("views_alias", answers=14, gradients=0, unsupported=0),
    Job("ctx_crowd", answers=34, gradients=10, unsupported=6),
    Job("bwd_boom", answers=3, gradients=1, unsupported=1),
    Job("devmap_cpu", answers=12, gradients=8, unsupported=2),
    Job("ps_race", answers=28, gradients=6, unsupported=19),
    Job("ps_race_lock", answers=78, gradients=12, unsupported=33),
]


@pytest.mark.parametrize("job", JOBS, ids=str)
def test_a_bundled_job(job: Job, workers: Workers) -> None:
    outcome, made = replayed(capture_of(job.name), options=AGENT, workers=workers)
    assert not_alike(outcome, ("identical",)) == []
    assert (made.verdict, made.engine) == ("identical", "agent")
    assert (made.responses.expected, made.responses.identical) == (job.answers, job.answers)
    assert (made.gradients.expected, made.gradients.identical) == (job.gradients, job.gradients)
    assert made.not_replayed.get("unsupported", 0) == job.unsupported
    assert made.unexpected == 0


def test_a_worker_that_calls_in_the_context_of_another(workers: Workers) -> None:
    """w2 of the chain is called by w0 and calls w1; it is played, and nobody calls it: its context is
    brought."""
    options = replace(AGENT, timeout_s=10.0)
    outcome, made = replayed(capture_of("bwd_boom"), options=options, workers=workers, roles=("worker2",))
    sent = [one for run in outcome.runs for one in run[0].steps if one.step.action == "send"]
    assert [one.result for one in sent if one.step.type == "FORWARD_AUTOGRAD_REQ"] == ["identical"]
    assert made.failed == 0


def test_remote_references_that_are_handed_on(workers: Workers) -> None:
    """Those that a played worker has made itself; what another one made it can't have."""
    outcome, made = replayed(capture_of("rref_relay"), options=AGENT, workers=workers)
    assert not_alike(outcome, ("identical",)) == []
    assert made.responses.identical == made.responses.expected >= 8
    skipped = [
        step for session in outcome.plan.sessions for step in session.steps if step.code == "unsupported"
    ]
    assert any(step.text is not None and "its own calls made" in step.text for step in skipped)


def test_what_it_can_not_do_is_skipped_with_a_reason(workers: Workers) -> None:
    outcome, made = replayed(capture_of("profiled_legacy"), options=AGENT, workers=workers)
    assert made.verdict == "identical"
    skipped = [
        step for session in outcome.plan.sessions for step in session.steps if step.code == "unsupported"
    ]
    assert skipped
    assert all(step.text for step in skipped)
    assert any(step.type == "RUN_WITH_PROFILING_REQ" for step in skipped)


def test_a_scripted_remote_module() -> None:
    """Its functions are made by a call of its owner, in the owner's process; the played worker has none."""
    path = recorded("torch-suite/RemoteModuleTest.test_forward_sync_script.pcap")
    outcome, made = replayed(path, options=AGENT, trust=True)
    assert made.verdict == "identical"
    assert (made.responses.expected, made.responses.identical) == (3, 3)
    (forward,) = [
        one for one in outcome.plan.sessions[0].steps if one.type == "SCRIPT_CALL" and one.code is not None
    ]
    assert forward.code == "unsupported"
    assert "scripted RemoteModule" in str(forward.text)


@pytest.mark.parametrize("engine", ["wire", "agent"])
@pytest.mark.parametrize(("name", "gradients"), [("basic_chain", 4), ("devmap_cpu", 8)])
def test_tensors_of_a_gpu_on_a_machine_without(
    name: str, gradients: int, engine: Literal["wire", "agent"], workers: Workers, tmp_path: Path
) -> None:
    """Tables, device maps and descriptors say cuda:0 and cuda:1; here everything is on the CPU."""
    path = on_cuda(capture_of(name), tmp_path / "cuda.pcap", 0, 1)
    outcome, made = replayed(path, options=ReplayOptions(engine=engine), workers=workers)
    assert not_alike(outcome, ("identical",)) == []
    assert (made.gradients.identical, made.device) == (gradients, "cpu")


def test_devices_that_are_mapped(workers: Workers, tmp_path: Path) -> None:
    """`--map` decides for each device, and the live maps follow; to the CPU is all that a CPU can show."""
    path = on_cuda(capture_of("devmap_cpu"), tmp_path / "cuda.pcap", 0, 1)
    options = replace(AGENT, devices=Devices("cpu", {"cuda:0": "cpu", "cuda:1": "cpu"}))
    outcome, made = replayed(path, options=options, workers=workers)
    assert not_alike(outcome, ("identical",)) == []
    assert made.gradients.identical == 8
    with RunModel.open([str(path)]) as run:
        calls = run.calls.values()
        mapped = Devices("cuda", {"cuda:1": "cuda:0"})
        moved = DevicePlacement.of(mapped, calls)
        assert (moved.used, moved.moves) == ({"cuda:0"}, True)
        maps = moved.maps(["worker0", "worker1"], calls)
    assert maps["worker0"]["worker1"] == {"cuda:0": "cuda:0"}


def test_a_gpu_that_is_not_there(workers: Workers) -> None:
    """The workers of these tests see none, whatever the machine has."""
    options = ReplayOptions(engine="agent", devices=Devices("cuda"))
    with pytest.raises(
        DeviceError, match=r"^--device cuda: PyTorch \S+ (is built without CUDA|finds no GPU)$"
    ):
        replayed(capture_of("basic_chain"), options=options, workers=workers)


def test_workers_that_import_for_themselves() -> None:
    """As with `--device cuda`, where nothing may be forked that a module of the user's has initialised; here
    everything is on the CPU."""
    options = replace(AGENT, workers=WorkerOptions(path=(str(CAPTURES),), cuda=True))
    outcome, made = replayed(capture_of("basic_chain"), options=options)
    assert not_alike(outcome, ("identical",)) == []
    assert (made.verdict, made.gradients.identical) == ("identical", 4)
