"""SKILL.md: its format, and every command line in it, run."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from rpcinspect.cli.export import ExportCommand
from rpcinspect.cli.program import Program
from rpcinspect.views.questions.all import QUESTIONS
from tests.cli.runner import rpcinspect
from tests.forks import ran
from tests.places import CAPTURES, ROOT
from tests.test_docs import FENCE

SKILL = ROOT / "skills" / "rpcinspect" / "SKILL.md"
TEXT = SKILL.read_text(encoding="utf-8")
LINES = [line.partition("  #")[0].rstrip() for block in FENCE.findall(TEXT) for line in block.splitlines()]
SLOW = ("record", "doctor")
"""They look for torch, which takes seconds."""
MAX_LINES, MAX_DESCRIPTION = 150, 1024


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the command lines name."""
    made = tmp_path_factory.mktemp("skill")
    for name, capture in (("run", "error"), ("bad", "error"), ("good", "base")):
        (made / f"{name}.pcap").symlink_to(CAPTURES / "pairs" / f"{capture}.pcap.gz")
    (made / "train.py").write_text("print('a job')\n")
    return made


def test_it_has_the_form_of_a_skill() -> None:
    front, text = re.match(r"^---\n(.*?)\n---\n(.*)$", TEXT, re.DOTALL).groups()  # type: ignore[union-attr]
    fields = dict(line.split(": ", 1) for line in front.splitlines())
    assert fields.keys() == {"name", "description"}
    assert fields["name"] == SKILL.parent.name
    assert 0 < len(fields["description"]) <= MAX_DESCRIPTION
    assert text.lstrip().startswith("# ")
    assert len(TEXT.splitlines()) < MAX_LINES


@pytest.mark.parametrize(
    "line", [pytest.param(one, marks=pytest.mark.slow) if one.split()[1] in SLOW else one for one in LINES]
)
def test_every_command_line_runs(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    program, *words = shlex.split(line)
    assert program == "rpcinspect"
    if words[0] == "record":
        pytest.importorskip("torch")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = ran(
            *words, timeout=300, encoding="utf-8", env=os.environ | {"PATH": path}
        )  # it may build the agent
        assert (done.returncode, done.stdout) == (0, "a job\n")
        return
    shown = rpcinspect(*words)
    assert shown.code == (words[0] == "diff" or "--check" in words), shown.err
    if "-o" in words:
        assert (folder / words[words.index("-o") + 1]).stat().st_size
        return
    assert shown.out
    if words[-1] == "json":
        json.loads(shown.out)
    elif "jsonl" in words:
        assert all(one["kind"] for one in shown.objects)


def test_what_it_says_to_read_is_there(folder: Path) -> None:
    run = folder / "run.pcap"
    found = rpcinspect("findings", run).out
    assert re.match(r"error: error-response  worker2 failed first in training.norm_of: .*\(#117\)", found)
    message = rpcinspect("decode", run, "--message", "117").out
    assert "Traceback (most recent call last):" in message
    assert "answers: message 116" in message
    call, _ = rpcinspect("decode", run, "--calls", "-f", "error", "--format", "jsonl").objects
    section = TEXT.partition("## JSON")[2].partition("## ")[0].partition("Calls have")[2].partition(". ")[0]
    assert set(re.findall(r"`([a-z_]+)`", section)) <= call.keys()
    codes = set(re.findall(r"`([a-z]+-[a-z-]+)`", TEXT))
    told = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert len(codes) > 5
    assert [code for code in codes if f"## `{code}`" not in told] == []


def test_every_question_is_in_the_table() -> None:
    table = "\n".join(line for line in TEXT.splitlines() if line.startswith("| "))
    named = set(re.findall(r"`([a-z]+)`", table.replace("|", "\n|")))
    assert {*QUESTIONS, "graph", "diff"} <= named
    commands = {name for names in Program.GROUPS.values() for name in names}
    commands |= {name for names in ExportCommand.GROUPS.values() for name in names}
    assert {shlex.split(line)[1] for line in LINES} <= commands
