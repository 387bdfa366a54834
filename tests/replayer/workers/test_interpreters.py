"""Pythons other than ours: those in which live workers can't run, and replays in one that can."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.workers.interpreters import NEWEST_TESTED_TORCH, OLDEST_TORCH, examine, release_of
from tests.cli.runner import CAPTURES, CHAIN, rpcinspect
from tests.places import ROOT
from tests.replayer.environments import bare, pretend, with_torch


def test_this_one() -> None:
    pytest.importorskip("torch")
    found = examine(sys.executable)
    assert found.program == sys.executable
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert release_of(found.torch) >= (2, 2)
    assert any((Path(folder) / "torch").is_dir() for folder in found.path)


def test_those_that_are_none(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(ReplayError, match="script: there is no such program"):
        examine(str(script))
    script.chmod(0o755)
    with pytest.raises(ReplayError, match="script: is not a Python: it does not answer as one"):
        examine(str(script))
    script.write_text("no shebang\0")
    with pytest.raises(ReplayError, match="script: can't be run: "):
        examine(str(script))


def test_no_torch_and_an_old_one(tmp_path: Path) -> None:
    python = bare(tmp_path / "env")
    with pytest.raises(ReplayError, match=r"has no PyTorch: .*/env/bin/python -m pip install torch"):
        examine(str(python))
    pretend(python, "1.13.1+cpu")
    with pytest.raises(ReplayError, match=r"live workers need torch 2\.2 or later, there is 1\.13\.1\+cpu"):
        examine(str(python))
    ran = rpcinspect("replay", CHAIN, "--path", CAPTURES, "--interpreter", python)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith("live workers need torch 2.2 or later, there is 1.13.1+cpu\n")


@pytest.mark.usefixtures("nothing_left")
def test_live_workers_in_an_environment_that_has_torch_only(tmp_path: Path) -> None:
    """No msgspec, no NumPy; gradients that are held are shown all the same."""
    pytest.importorskip("torch")
    python = with_torch(tmp_path / "env")
    for engine in ("wire", "agent"):
        options = ("--interpreter", python, "--engine", engine, "--gradients", "--quiet-workers")
        ran = rpcinspect("replay", CHAIN, "--path", CAPTURES, *options)
        assert ran.code == 0, ran.err
        assert ran.out.splitlines()[-1].startswith("identical: 4 of 4 gradients, 5 of 5 answers")


def test_the_newest_release_that_was_tried_is_that_of_the_page() -> None:
    page = (ROOT / "docs" / "replay.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| captured with \| messages \| live on (.*) \|$", page, re.MULTILINE)
    tried = [release_of(release) for release in row.split(" | ")]
    assert (tried[0], tried[-1]) == (OLDEST_TORCH, NEWEST_TESTED_TORCH)
