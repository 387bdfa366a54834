"""Captures that lack what live workers need: names, objects and weights come from the user, or from messages
in the middle of the job."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runner import rpcinspect
from tests.places import recorded

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_left")

NAMES = ("--worker", "1=worker1", "--worker", "2=worker2")
ALLOWED = ("--allow", "torch.distributed.nn.api.remote_module:_create_module")
ALLOWED = (*ALLOWED, "--allow", "_remote_module_non_scriptable:_remote_forward")

PROVIDER = """
import __main__ as job
from torch.distributed import rpc
from torch.distributed.optim import optimizer
from torch.distributed.optim.functional_sgd import _FunctionalSGD

def stage1():
    return job.Stage1("nan")

def stage2(step):
    found = job.Stage2("nan")
    found.step = step
    return found

def optimizer_of(stage):
    parameters = [rpc.RRef(parameter) for parameter in stage.parameters()]
    return optimizer._new_script_local_optimizer(_FunctionalSGD, parameters, lr=0.05).local_value()

def optimizer1(objects):
    return optimizer_of(objects["0:0"])

def optimizer2(objects):
    return optimizer_of(objects["0:2"])
"""
PROVIDED = (
    *("--provide", "0:0=late:stage1", "--provide", "0:2=late:stage2(2)"),
    *("--provide", "1:6=late:optimizer1", "--provide", "2:4=late:optimizer2"),
)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Path]:
    """The folder of the job's script, and of what makes its objects."""
    shutil.copy(recorded("reports/job/train.py"), tmp_path / "train.py")
    (tmp_path / "late.py").write_text(PROVIDER)
    yield tmp_path
    sys.modules.pop("train", None)


def replay(job: Path, *arguments: object) -> Any:
    main = ("--path", job, "--main", job / "train.py", *ALLOWED)
    return rpcinspect("replay", recorded("reports/job/nan_late.pcap"), *main, *arguments)


def weights_at_step_2(job: Path) -> list[str]:
    """`--checkpoint` options with the weights that the job's own steps 0 and 1 leave, computed here by
    plain torch, in one process."""
    import importlib.util

    import torch

    spec = importlib.util.spec_from_file_location("train", job / "train.py")
    assert spec is not None
    assert spec.loader is not None
    train = importlib.util.module_from_spec(spec)
    sys.modules["train"] = train
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # importing torch's optimizers uses TorchScript
        spec.loader.exec_module(train)
    with torch.random.fork_rng():
        stages = []
        for kind, seed in ((train.Stage1, 101), (train.Stage2, 102)):
            torch.manual_seed(seed)
            stages.append(kind("nan"))
        optimizers = [torch.optim.SGD(stage.parameters(), lr=0.05) for stage in stages]
        torch.manual_seed(7)
        for _ in range(2):
            x, y = torch.randn(6, 8), torch.randn(6, 4)
            loss = ((stages[1](stages[0](x)) - y) ** 2).mean()
            for one in optimizers:
                one.zero_grad()
            loss.backward()
            for one in optimizers:
                one.step()
    options = []
    for rref, stage in zip(("0:0", "0:2"), stages, strict=True):
        path = job / f"{rref.replace(':', '-')}.pt"
        torch.save(stage.state_dict(), path)
        options += ["--checkpoint", f"{rref}={path}"]
    return options


def test_with_objects_and_weights_everything_is_as_captured(job: Path) -> None:
    ran = replay(job, *NAMES, *PROVIDED, *weights_at_step_2(job), "--format", "jsonl")
    report = ran.objects[-1]
    assert (report["verdict"], report["gradients"]["identical"]) == ("identical", 6)
    assert report["skipped"] == {"older-rref": 5, "control": 2, "driver-not-live": 2, "missing-bytes": 2}


def test_without_the_weights_the_first_answers_differ(job: Path) -> None:
    ran = replay(job, *NAMES, *PROVIDED, "--format", "jsonl")
    assert ran.code == 1
    different = [one["message"] for one in ran.objects if one.get("result") == "different"]
    assert different[0] == 0
    assert {0, 10} <= set(different)


def test_names_are_made_up_and_the_plan_says_what_is_needed(job: Path) -> None:
    ran = replay(job, "--plan")
    assert "--worker 1=NAME --worker 2=NAME" in ran.out
    for line in (
        "RRef 0:0 of worker:1: for #0, #30",
        "RRef 0:2 of worker:2: for #10, #40",
        "RRef 1:6 of worker:1, a TorchScript _ScriptLocalOptimizerInterface: for #20, #50",
        "--provide 2:4=MODULE:FUNCTION",
    ):
        assert line in ran.out


def test_live_workers_have_the_names_that_were_made_up(job: Path) -> None:
    ran = replay(job, "--provide", "0:2=late:stage2(2)", "--format", "jsonl")
    sent = [
        one for one in ran.objects if one.get("action") == "send" and one["type"] == "FORWARD_AUTOGRAD_REQ"
    ]
    assert {one["to"] for one in sent} == {"worker:2"}
    assert "different" in {one["result"] for one in sent}


def test_what_fails_in_the_live_worker_is_told(job: Path) -> None:
    ran = replay(job, "--provide", "2:4=late:optimizer2")
    assert ran.code == 1
    assert "worker:2 | KeyError: '0:2'" in ran.err
    assert "in optimizer2" in ran.err
    assert "--provide 2:4=late:optimizer2 failed in worker:2: KeyError: '0:2'" in ran.out


@pytest.mark.parametrize("function", ["hangs", "asks"])
def test_a_function_that_takes_too_long(job: Path, function: str) -> None:
    """It sleeps, or waits for a played worker, which answers nobody before the job's first message."""
    (job / "late.py").write_text(
        "import time\nfrom torch.distributed import rpc\n"
        "def hangs(): time.sleep(1000)\n"
        "def asks(): return rpc.rpc_sync('worker0', len, args=('four',))\n"
    )
    ran = replay(job, "--provide", f"0:2=late:{function}", "--timeout", "3")
    assert ran.code == 1
    why = "no answer came within 3 s" if function == "hangs" else "makes a request before anything was sent"
    assert why in ran.out


def test_a_file_that_does_not_fit(job: Path) -> None:
    import torch

    torch.save({"fc.weight": torch.zeros(2, 2)}, job / "other.pt")
    ran = replay(job, "--provide", "0:2=late:stage2(2)", "--checkpoint", f"0:2={job / 'other.pt'}")
    assert ran.code == 1
    assert "worker:2: RRef 0:2 gets its values from" in ran.out
    assert "Error(s) in loading state_dict for Stage2: " in ran.out
    assert "size mismatch for fc.weight" in ran.out


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (("--provide", "0:2"), "--provide 0:2: not RREF=MODULE:FUNCTION"),
        (("--provide", "0:2=os.system"), "--provide 0:2=os.system: not MODULE:FUNCTION"),
        (("--checkpoint", "0:2=none.pt"), "none.pt is not a file"),
        (("--worker", "2=worker 2"), "--worker 2=worker 2: not ID=NAME"),
        (("--worker", "2=a", "--worker", "3=a"), "each id and each name once"),
    ],
)
def test_options_that_are_wrong(job: Path, option: tuple[str, ...], told: str) -> None:
    ran = replay(job, *option, "--plan")
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err


def test_an_rref_that_nobody_needs(job: Path) -> None:
    ran = replay(job, "--provide", "7:2=late:stage1", "--plan")
    assert ran.code == 2
    assert "--provide 7:2: no live worker has an RRef of this id" in ran.err


RANDOM = recorded("reports/state/random_weights.rpclog")
RANDOM_JOB = ("--path", RANDOM.parent, "--main", RANDOM.parent / "random_weights.py", "--format", "jsonl")


def test_weights_that_nobody_seeded_are_restored() -> None:
    """The trainer fetched them before its first step: without them all that was computed differs."""
    fresh = rpcinspect("replay", RANDOM, *RANDOM_JOB).objects[-1]
    assert (fresh["verdict"], fresh["responses"]["identical"]) == ("different", 16)
    restored = rpcinspect("replay", RANDOM, *RANDOM_JOB, "--restore-parameters").objects[-1]
    assert (restored["verdict"], restored["responses"]["identical"]) == ("identical", 21)
    assert restored["gradients"]["identical"] == restored["gradients"]["expected"] == 3


def test_the_report_says_what_was_restored() -> None:
    ran = rpcinspect("replay", RANDOM, *RANDOM_JOB[:4], "--restore-parameters", "--plan")
    for rref, message in (("1:0", 11), ("1:1", 13)):
        assert f"ps: RRef {rref} gets its values from #{message}, if it is a parameter, after #5" in ran.out
