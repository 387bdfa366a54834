"""Recordings that a replay once got wrong: what live workers send, and what a recording has not got.

All jobs are deterministic, so that every live message is as captured where its captured one is there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runner import rpcinspect
from tests.places import recorded
from tests.replayer.one_way import one_way
from tests.replayer.without_tensors import without_tensors

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_left")

SRC = recorded("reports/replay/src")
NESTED = ("--path", SRC, "--main", SRC / "nested_main.py")
LISTENERS = (33485, 33717, 34255)
"""Ports of the workers in nested.pcap."""
ERRS = """
import torch
import torch.distributed.rpc as rpc

def die(x): ...

def hop(x): return rpc.rpc_sync("worker2", die, args=(x,))
"""
REMOTE_MODULE = "RemoteModuleTest.test_send_remote_module_with_a_new_attribute_not_pickled_over_the_wire"


def replayed(*arguments: object) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The lines of requests of live workers, and the last line."""
    ran = rpcinspect("replay", *arguments, "--format", "jsonl")
    return [one for one in ran.objects if one["kind"] == "inbound"], ran.objects[-1]


def answered(report: dict[str, Any]) -> tuple[int, int]:
    """Answers that are identical, and all."""
    return report["responses"]["identical"], report["responses"]["expected"]


@pytest.mark.parametrize("name", ["nested.pcap", "nested.rpclog"])
def test_a_lookup_that_a_workers_own_program_makes_too(name: str) -> None:
    """`serve(4)` of mid asks store for `lookup(4)`; mid's own program had asked it for 0, 1 and 2."""
    inbound, report = replayed(recorded(f"reports/replay/{name}"), *NESTED, "--live", "mid")
    assert report["verdict"] == "identical"
    assert answered(report) == (3, 3)
    assert [(one["from"], one["role"], one["result"]) for one in inbound] == [
        ("mid", "store", "identical")
    ] * 3
    assert len({one["captured"] for one in inbound} - {None}) == 3
    assert report["skipped"] == {"control": 12, "driver-not-live": 3}


def test_everybody_in_turn() -> None:
    _, report = replayed(recorded("reports/replay/nested.pcap"), *NESTED)
    assert (report["verdict"], answered(report)) == ("identical", (9, 9))


def test_calls_of_scripts_and_of_threads_beside_them() -> None:
    main = ("--path", SRC, "--main", SRC / "rtt_main.py")
    inbound, report = replayed(recorded("reports/replay/part.pcap"), *main)
    assert (report["verdict"], answered(report)) == ("identical", (15, 15))
    assert {one["result"] for one in inbound} == {"identical"}


def test_a_played_worker_ends_where_its_process_did(tmp_path: Path) -> None:
    """worker1 calls worker2, which dies of it; worker1 answers with the error of the connection at once, not
    with a time-out. So it does here, where the plan does not even know that the call is part of `hop`."""
    (tmp_path / "errs.py").write_text(ERRS)
    capture = recorded("reports/findings/errs_die.pcap")
    inbound, report = replayed(capture, "--path", tmp_path, "--live", "worker1")
    assert [(one["captured"], one["result"]) for one in inbound] == [(9, "identical")]
    assert (report["verdict"], answered(report)) == ("identical", (1, 1))
    assert report["messages_wall_s"] < 5


def test_only_requests_were_captured(tmp_path: Path) -> None:
    """Nothing can be compared, and that is no difference."""
    path = one_way("reports/replay/nested.pcap", LISTENERS, tmp_path / "requests.pcap")
    inbound, report = replayed(path, *NESTED, "--live", "mid")
    assert (report["verdict"], answered(report)) == ("nothing-to-replay", (0, 3))
    assert report["sent"] == 3
    assert [one["result"] for one in inbound] == ["identical"] * 3  # they are there, their answers are not
    ran = rpcinspect("replay", path, *NESTED)
    assert ran.code == 1
    assert "nothing to replay" in ran.out
    assert "not compared: 9 messages: its answer was not captured" in ran.out
    assert "Capture both directions" in ran.out


@pytest.mark.parametrize(("live", "count"), [(("--live", "mid"), 3), ((), 9)])
def test_a_log_without_tensors(live: tuple[str, ...], count: int, tmp_path: Path) -> None:
    """What is played has no answers to give, what is live none that can be compared."""
    path = without_tensors("reports/replay/nested.rpclog", tmp_path / "none.rpclog")
    ran = rpcinspect("replay", path, *NESTED, *live)
    assert ran.code == 1
    assert f"not compared: {count} messages" in ran.out
    assert "different" not in ran.out
    assert "nothing to replay" in ran.out
    assert "Bytes of 9 messages were not recorded. record --tensors all" in ran.out


def test_a_training_job_without_tensors(tmp_path: Path) -> None:
    """No forward call takes place, so no worker has a reason to clean up, nor to have stepped."""
    log, job = tmp_path / "whole.rpclog", recorded("reports/job")
    assert rpcinspect("export", "rpclog", recorded("reports/job/plain.pcap"), "-o", log).code == 0
    path = without_tensors(str(log), tmp_path / "none.rpclog")
    ran = rpcinspect("replay", path, "--main", job / "train.py")
    assert ran.code == 0
    assert "different" not in ran.out
    assert "nothing came" not in ran.out
    assert re.search(r"^identical: 0 of 15 gradients, .* missing-bytes", ran.out, re.MULTILINE)


@pytest.mark.parametrize(("arm", "gradients", "answers"), [("nan", 12, 38), ("plain", 15, 46)])
def test_torchs_agent_drives_a_pipeline_of_two_stages(arm: str, gradients: int, answers: int) -> None:
    """train.py: four steps of nan, five of plain; three gradients are sent and one returns in each."""
    job = recorded("reports/job")
    allow = (job / "allow.txt").read_text().split()
    more = ("--path", job, "--main", job / "train.py", *allow, "--engine", "agent")
    seeds = ("--seed", "worker1=101", "--seed", "worker2=102")
    _, report = replayed(recorded(f"reports/job/{arm}.pcap"), *more, *seeds, "--tolerance")
    assert report["verdict"] in ("identical", "tolerance")
    assert report["gradients"]["expected"] == gradients
    assert report["gradients"]["identical"] + report["gradients"]["tolerance"] == gradients
    assert report["responses"]["identical"] + report["responses"]["tolerance"] == answers


def test_a_log_of_one_host_of_two() -> None:
    """What worker2 sends back is in the other host's log; with both, all of it is as captured."""
    job = recorded("reports/job")
    allow = (job / "allow.txt").read_text().split()
    more = ("--path", job, "--main", job / "train.py", *allow, "--tolerance")
    seeds = ("--seed", "worker1=101", "--seed", "worker2=102")
    a, b = recorded("reports/job/two_a.rpclog"), recorded("reports/job/two_b.rpclog")
    inbound, report = replayed(a, *more, *seeds)
    assert report["verdict"] in ("identical", "tolerance")
    assert report["gradients"]["identical"] + report["gradients"]["tolerance"] == 8
    alone = [one for one in inbound if one["type"] == "BACKWARD_AUTOGRAD_REQ"]
    assert [(one["captured"], one["result"]) for one in alone] == [(None, None)] * 4
    assert {one["text"] for one in alone} == {"nothing that worker2 sent is recorded"}
    inbound, report = replayed(a, b, *more, *seeds)
    assert report["verdict"] in ("identical", "tolerance")
    assert None not in [one["captured"] for one in inbound]
    other = rpcinspect("replay", b, *more)
    assert "nothing to replay" in other.out
    assert "Nothing that worker0 sent is recorded" in other.out


@pytest.mark.parametrize(("name", "note"), [("chan_uvcma", "(cma)"), ("snap300", "Capture whole packets")])
def test_bytes_of_tensors_are_missing(name: str, note: str) -> None:
    path = recorded(f"torch/{name}.pcap")
    main = recorded("torch/scripts/chan.py")
    ran = rpcinspect("replay", path, "--path", main.parent, "--main", main, "--trust-capture")
    assert ran.code == 1
    assert "nothing to replay" in ran.out
    assert "different" not in ran.out
    assert "all others are the same" in ran.out
    assert note in ran.out


def test_forks_in_remote_modules_are_deleted_as_they_were() -> None:
    ran = rpcinspect("replay", recorded(f"torch-suite/{REMOTE_MODULE}.pcap"), "--trust-capture")
    assert ran.code == 0
    assert "identical: 6 of 6" in ran.out or "identical" in ran.out.splitlines()[-1]
    assert "older-rref" not in ran.out
