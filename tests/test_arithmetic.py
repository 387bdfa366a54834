"""What the workloads compute has the same bits whatever instructions the processor has.

A replay that compares bit for bit needs that: captures are recorded on one machine and replayed on others.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from hashlib import sha256

import pytest
import torch

from tests.recorder.parts import workloads
from tests.test_captures import WORKLOADS
from tests.truth import Json, workload

EVENTS = ("call", "answer", "run", "ran", "gradients", "local")


def hashes(events: list[Json]) -> Counter[tuple[str, str, str]]:
    """The tensors that the workers printed: worker, event, hash of the elements."""
    return Counter(
        (event["worker"], event["event"], tensor["sha256"])
        for event in events
        if event["event"] in EVENTS
        for tensor in event.get("tensors", [])
    )


NAMES = ("basic_chain", "profiled_legacy", "pairs/summation")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the workers of these workloads print with torch's kernels without AVX, which are called `default`;
    MKL's results are the same on all processors. All of them are forks of one process."""
    plain = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}
    asked = [",".join((WORKLOADS[name][0].removesuffix(".py"), *WORKLOADS[name][1])) for name in NAMES]
    done = subprocess.run(
        workloads(*asked),
        cwd=tmp_path_factory.mktemp("plain"),
        env=os.environ | plain,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line)["printed"] for line in done.stdout.splitlines()]
    return dict(zip(NAMES, told, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_another_instruction_set_gives_the_recorded_bits(name: str, printed: dict[str, str]) -> None:
    recorded = hashes(workload(name).events)
    assert recorded
    events = [json.loads(line.removeprefix("TRUTH ")) for line in printed[name].splitlines()]
    assert hashes(events) == recorded


def test_answers_of_the_server_follow_from_their_order() -> None:
    """The job with a lock, done again in one process: same inputs in the same order, same bits."""
    run = workload("ps_race_lock")
    order = [event["trainer"] for event in run.of("order", what="forward")]
    answers = [
        event["tensors"][0]["sha256"]
        for event in sorted(run.of("ran", function="ps_race.forward"), key=lambda event: event["time_ns"])
    ]
    assert len(order) == len(answers) == 12
    generators = {f"worker{rank}": torch.Generator().manual_seed(1000 + rank) for rank in (1, 2, 3)}
    weight = torch.full((4, 4), 0.5, requires_grad=True)
    for trainer, answer in zip(order, answers, strict=True):
        x = torch.randint(-32, 33, (4, 4), generator=generators[trainer]) / 8
        out = torch.clamp(x * weight, -1, 1) * weight
        assert sha256(out.detach().numpy().tobytes()).hexdigest() == answer
        (gradient,) = torch.autograd.grad(out.sum(), weight)
        with torch.no_grad():
            weight -= 0.125 * gradient
