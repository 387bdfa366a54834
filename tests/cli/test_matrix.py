"""`replay --matrix` and several `--threads`: real workers in other environments, the table, lines of JSON."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.runner import CAPTURES, CHAIN, rpcinspect
from tests.replayer.environments import with_torch

pytestmark = pytest.mark.usefixtures("nothing_left")

SOURCE = """
import sys
import torch

def scale(x, weight, gain=1.0):
    other = {other!r} in sys.prefix
    return torch.clamp(x * weight, -1, 1) * gain * (1.5 if other else 1.0)
"""
"""The function of the bundled chain, whose answer is another one in the other environment."""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    return with_torch(tmp_path_factory.mktemp("environments") / "elsewhere")


def test_an_environment_in_which_it_differs(other: Path, tmp_path: Path) -> None:
    (tmp_path / "basic_chain.py").write_text(SOURCE.format(other="elsewhere"))
    matrix = f"same={sys.executable},other={other},{tmp_path}/none"
    ran = rpcinspect("replay", CHAIN, "--path", tmp_path, "--matrix", matrix, "--format", "jsonl")
    assert ran.code == 1
    same, differs, absent, last = ran.objects
    assert [one["environment"] for one in (same, differs)] == ["same", "other"]
    assert same["torch"] == differs["torch"]
    assert (same["verdict"], same["identical"], same["expected"], same["first"]) == ("identical", 8, 8, None)
    assert differs["verdict"] == "different"
    assert differs["first"]["message"] == 6
    assert differs["first"]["code"] == "value"
    shown = differs["first"]["difference"]
    assert shown["live"] == pytest.approx(1.5 * shown["captured"])
    assert (absent["verdict"], absent["torch"]) == ("failed", None)
    assert absent["error"].endswith("/none: there is no such program")
    assert last == {"kind": "matrix", "verdict": "failed", "combinations": 3}


def test_several_numbers_of_threads() -> None:
    pytest.importorskip("torch")
    ran = rpcinspect("replay", CHAIN, "--path", CAPTURES, "--threads", "1,2")
    assert ran.code == 0, ran.err
    head, one, two, verdict = ran.out.splitlines()
    assert head.split()[:4] == ["environment", "torch", "threads", "verdict"]
    assert [line.split()[3] for line in (one, two)] == ["1", "2"]
    assert [line.split()[4] for line in (one, two)] == ["identical", "identical"]
    assert verdict == "identical: 2 of 2 combinations as captured"


def test_what_is_refused_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is an environment made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ran = rpcinspect("replay", CHAIN, "--matrix", "torch==2.13.0")
    assert ran.code == 4
    assert "REFUSED  basic_chain.scale" in ran.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--interpreter", "python3"], "--matrix can't be used with --interpreter"),
        (["--plan"], "--plan can't be used with --matrix"),
        (["--record", "x.pcap"], "--record can't be used with --matrix"),
        (["--threads", "1,x"], "--threads 1,x: not N, nor several such as 1,4"),
        (["--threads", "1,0"], "--threads 0: a number from 1 to 1024"),
    ],
)
def test_options_that_exclude_each_other(options: list[str], reason: str) -> None:
    ran = rpcinspect("replay", CHAIN, "--matrix", "python3", *options)
    assert (ran.code, ran.out) == (2, "")
    assert reason in ran.err


@pytest.mark.parametrize("nothing", ["", ","])
def test_a_matrix_of_nothing(nothing: str) -> None:
    ran = rpcinspect("replay", CHAIN, "--matrix", nothing)
    assert (ran.code, ran.out) == (2, "")
    assert "--matrix: name an environment, such as torch==2.13.0" in ran.err
