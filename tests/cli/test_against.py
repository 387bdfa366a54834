"""`replay --against`: both sources on real workers, the table, lines of JSON, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.runner import CHAIN, rpcinspect
from tests.places import recorded

pytestmark = pytest.mark.usefixtures("nothing_left")

SCALE = "import torch\n\ndef scale(x, weight, gain=1.0):\n    return {}\n"
RIGHT, WRONG = "torch.clamp(x * weight, -1, 1) * gain", "torch.clamp(x * weight, -1, 1) * gain * 1.5"


def folder(place: Path, body: str) -> Path:
    place.mkdir()
    (place / "basic_chain.py").write_text(SCALE.format(body))
    return place


def test_a_fix(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    old, new = folder(tmp_path / "old", WRONG), folder(tmp_path / "new", RIGHT)
    ran = rpcinspect("replay", CHAIN, "--path", old, "--against", new)
    assert ran.code == 1, ran.err
    head, six, fifteen, first, second, summary = ran.out.splitlines()
    assert head.split()[-4:] == ["capture", "first", "second", "verdict"]
    assert [line.split()[0] for line in (six, fifteen)] == ["6", "15"]
    assert six.split()[-6:] == [
        "tensors[0].elements[0]",
        "-0.9375",
        "-1.40625",
        "as",
        "captured",
        "first-differs",
    ]
    assert first.startswith(f"first (--path {old}): different: 1 of 4 gradients")
    assert second.startswith(f"second (--path {new} --path {old}): identical: 4 of 4 gradients")
    assert summary == "2 messages not as captured: 2 first-differs"


def test_the_script_of_a_job_in_which_a_gradient_is_nan(tmp_path: Path) -> None:
    """`sqrt` at zero: the other script avoids it, so that only its gradient is a number."""
    pytest.importorskip("torch")
    job = recorded("reports/job/train.py")
    (tmp_path / "train.py").write_text(job.read_text().replace("(out * 0).abs()", "(out * 0).abs() + 1e-12"))
    allowed = recorded("reports/job/allow.txt").read_text().split()
    seeds = ("--seed", "worker1=101", "--seed", "worker2=102", "--quiet-workers")
    capture = recorded("reports/job/nan.pcap")
    options = ("--main", job, *allowed, *seeds, "--format", "jsonl", "--rtol", "1e-4", "--atol", "1e-6")
    ran = rpcinspect("replay", capture, *options, "--against", tmp_path)
    *each, last = ran.objects
    (wrong,) = (one for one in each if one["verdict"] != "same")
    assert (wrong["type"], wrong["verdict"]) == ("BACKWARD_AUTOGRAD_REQ", "second-differs")
    assert wrong["second"]["difference"]["captured"] == "nan"
    assert isinstance(wrong["second"]["difference"]["live"], float)
    assert last["first"]["source"] == f"--main {job}"
    assert last["second"]["source"] == f"--path {tmp_path} --main {tmp_path / 'train.py'}"
    assert last["first"]["report"]["verdict"] in ("identical", "tolerance")
    assert last["second"]["report"]["verdict"] == "different"


def test_each_source_is_judged_by_itself(tmp_path: Path) -> None:
    old, new = folder(tmp_path / "old", RIGHT), tmp_path / "new"
    new.mkdir()
    (new / "basic_chain.py").write_text("from os import system as scale\n")
    ran = rpcinspect("replay", CHAIN, "--path", old, "--against", new)
    assert ran.code == 4
    assert ran.err.splitlines() == [f"rpcinspect: by --path {new} --path {old}:"]
    assert "REFUSED  basic_chain.scale" in ran.out
    assert "nothing was replayed" in ran.out


def test_a_folder_that_replaces_nothing(tmp_path: Path) -> None:
    """Told before what is refused, which starts nothing: an empty folder, and that of the script itself."""
    empty, script = tmp_path / "empty", tmp_path / "own" / "job.py"
    for folder in (empty, script.parent):
        folder.mkdir()
    script.write_text("def train(): ...\n")
    for other in (empty, script.parent):
        ran = rpcinspect("replay", CHAIN, "--main", script, "--against", other)
        assert ran.code == 4
        told = f"--against {other} replaces no file of --path or --main: both replays may run the same code"
        assert ran.err.splitlines()[0] == f"rpcinspect: {told}"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--against", "."], "--against needs --path or --main"),
        (["--path", ".", "--against", "no/where"], "--against no/where: there is no such file or folder"),
        (["--path", ".", "--against", ".", "--matrix", "python3"], "--against can't be used with --matrix"),
        (["--path", ".", "--against", ".", "--plan"], "--against can't be used with --plan"),
        (
            ["--path", ".", "--against", ".", "--threads", "1,2"],
            "--against can't be used with several --threads",
        ),
    ],
)
def test_wrong_usage(options: list[str], reason: str) -> None:
    ran = rpcinspect("replay", CHAIN, *options)
    assert (ran.code, ran.out) == (2, "")
    assert reason in ran.err
