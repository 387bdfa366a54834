"""Recordings of reported programs: runs of a job whose calls overlap are the same, and one change is told as
what it is (captures/reports/README.md)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.runner import rpcinspect
from tests.places import recorded

SAME = [
    ("chain_ctx1.pcap", "chain_ctx2.pcap"),
    ("chain_ctx1.pcap", "chain_ctx3.pcap"),
    ("chain_ctx2.pcap", "chain_ctx3.pcap"),
    ("relay_plain1.pcap", "relay_plain2.pcap"),
    ("relay_plain1.pcap", "relay_plain3.pcap"),
    ("relay_plain2.pcap", "relay_plain3.pcap"),
    ("shared1.pcap", "shared2.pcap"),
    ("forks_a1.rpclog", "forks_a2.rpclog"),
]
BACK = pytest.mark.parametrize("back", [False, True], ids=["ab", "ba"])


def diff(folder: str, a: str, b: str, *, back: bool = False) -> list[dict[str, Any]]:
    paths = [recorded(f"reports/{folder}/{name}") for name in (a, b)]
    ran = rpcinspect("diff", *(paths[::-1] if back else paths), "--format", "jsonl")
    assert ran.code == (0 if ran.objects[-1]["same"] else 1)
    return ran.objects


@BACK
@pytest.mark.parametrize(("a", "b"), SAME)
def test_runs_of_one_job_are_the_same(a: str, b: str, back: bool) -> None:
    *lines, verdict = diff("concurrent", a, b, back=back)
    assert (verdict["same"], verdict["unrelated"], verdict["first"]) == (True, False, None)
    assert {line["code"] for line in lines} <= {"reordered", "latency"}


@BACK
def test_one_answer_is_another(back: bool) -> None:
    verdict = diff("concurrent", "forks_a1.rpclog", "forks_bad.rpclog", back=back)[-1]
    first = verdict["first"]
    ends = {"a": (201, 26.0), "b": (190, 27.0)}
    a, b = ("b", "a") if back else ("a", "b")
    assert (first["a"], first["a_value"]) == ends[a]
    assert (first["b"], first["b_value"]) == ends[b]
    assert (first["code"], first["source"], first["request"]) == ("value", "w2", False)
    assert verdict["different"] == 1


@BACK
def test_an_argument_together_with_another_order(back: bool) -> None:
    verdict = diff("diff", "fan_A.pcap", "fan_C.pcap", back=back)[-1]
    first = verdict["first"]
    assert (first["code"], first["path"]) == ("argument", "kwargs['max_outstanding']")
    assert sorted([first["a_value"], first["b_value"]], key=str) == [4, None]
    assert first["likely"] == "other-inputs"
    assert set(verdict["counts"]) <= {"argument", "latency"}


@BACK
def test_a_longer_storage_is_told_in_bytes(back: bool) -> None:
    *lines, verdict = diff("diff", "pad_a.pcap", "pad_b.pcap", back=back)
    told = [
        (line["a_value"], line["b_value"])
        for line in lines
        if (line["code"], line["path"]) == ("form", "tensors[0].storage_nbytes")
    ]
    assert told == [(64, 48) if back else (48, 64)]
    assert not verdict["same"]


def test_who_is_called_is_named_as_decode_names_it() -> None:
    """Not torch's function, through which a RemoteModule calls a method; `function` stays the wire's."""
    paths = [recorded(f"reports/job/{name}.pcap") for name in ("plain", "dropout")]
    text = rpcinspect("diff", *paths, "--all").out
    assert "PYTHON_REMOTE_CALL __main__.Stage1  argument" in text
    assert "FORWARD_AUTOGRAD_RESP Stage1.forward  value" in text
    assert "_remote_forward" not in text
    lines = [
        line for line in diff("job", "plain.pcap", "dropout.pcap") if line.get("call") == "Stage1.forward"
    ]
    assert {line["function"] for line in lines} == {"_remote_module_non_scriptable._remote_forward"}
