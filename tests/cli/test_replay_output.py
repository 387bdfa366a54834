"""`rpcinspect replay`: what live workers print is seen, and why an import fails."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rpcinspect.cli import progress
from tests.cli.runner import CAPTURES, CHAIN, visible
from tests.cli.test_replay_live import SCALE, replay

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_left")

NOT_FOUND = "no module basic_chain is found; --path FOLDER lets live workers find modules"
RIGHT = "return torch.clamp(x * weight, -1, 1) * gain"


def job(folder: Path, *body: str, top: str = "") -> Path:
    """The chain's module, whose function also does something else; `top`: what importing it does."""
    lines = "\n    ".join((*body, RIGHT))
    (folder / "basic_chain.py").write_text(f"import os, sys\nimport torch\n{top}\n{SCALE}{lines}\n")
    return folder


def test_what_a_worker_prints(tmp_path: Path) -> None:
    path = job(
        tmp_path,
        'print("serving", tuple(x.shape))',
        r'print("\x1b[2J\x1b]0;title\x07\u202e", file=sys.stderr)',
        r'os.write(1, b"\xff\xfe raw\n")',
        'os.system("echo from a child")',
        'print("no line end", end="", flush=True)',
        top='print("imported")',
    )
    ran = replay(CHAIN, "--path", path, "--format", "jsonl")
    assert ran.code == 0
    assert ran.err.splitlines() == [
        "import | imported",
        "worker1 | serving (3, 4)",
        r"worker1 | \x1b[2J\x1b]0;title\x07\u202e",
        "worker1 | \ufffd\ufffd raw",
        "worker1 | from a child",
        "worker1 | no line end",
    ]
    assert visible(ran.err)
    assert ran.objects[-1]["verdict"] == "identical"


def test_a_worker_that_writes_more_than_anybody_reads(tmp_path: Path) -> None:
    path = job(tmp_path, "os.write(2, b'z\\n' * 20_000_000)")
    ran = replay(CHAIN, "--path", path)
    assert ran.code == 0
    assert ran.out.splitlines()[-1].startswith("identical: 4 of 4 gradients")
    assert " | " not in ran.out
    lines = ran.err.splitlines()
    assert lines[:-1] == ["worker1 | z"] * 200
    assert lines[-1] == "worker1 | \u2026 19,999,800 more lines not shown (39,999,600 bytes)"


def test_what_is_tried_for_a_seed_is_not_shown(tmp_path: Path) -> None:
    """Only the replay that follows: lines of many tries would look like one job's."""
    path = job(tmp_path, 'print("serving")', "gain = gain + torch.rand(()).item()")
    ran = replay(CHAIN, "--path", path, "--search-seed", "1:3")
    assert "seed: none from 1 to 2 explains" in ran.out
    assert ran.err.splitlines() == ["worker1 | serving"]


def test_a_worker_that_asks(tmp_path: Path) -> None:
    """There is nobody to answer, and that is an answer."""
    path = job(tmp_path, "input('which one? ')")
    ran = replay(CHAIN, "--path", path, "--quiet-workers")
    assert (ran.code, ran.err) == (1, "")
    assert "captured: a result; now: EOFError('EOF when reading a line')" in ran.out


@pytest.mark.parametrize(
    ("top", "first", "then"),
    [
        (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('arm')\np.parse_args()",
            'importing basic_chain exited with 2: guard its script code with if __name__ == "__main__":',
            "the following arguments are required: arm",
        ),
        pytest.param(
            "raise SystemExit('I am a script')",
            'importing basic_chain exited with 1: guard its script code with if __name__ == "__main__":',
            "  I am a script",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "print('bye')\nos._exit(7)",
            "importing basic_chain ended the process: it ended with code 7:",
            "  bye",
            marks=pytest.mark.slow,
        ),
        (
            "import ctypes\nctypes.string_at(0)",
            "importing basic_chain ended the process: it was ended by SIGSEGV:",
            "basic_chain.py",
        ),
    ],
)
def test_an_import_that_fails(tmp_path: Path, top: str, first: str, then: str) -> None:
    ran = replay(CHAIN, "--path", job(tmp_path, top=top), "--quiet-workers")
    assert ran.code == 1
    lines = ran.out.splitlines()
    at = lines.index(first)
    assert any(then in line for line in lines[at + 1 :])
    assert lines[-1] == "failed: nothing was replayed"
    assert ran.err == ""


def test_a_script_that_raises(tmp_path: Path) -> None:
    path = job(tmp_path)
    (path / "train.py").write_text("def f():\n    return 1 / 0\n\nf()\n")
    ran = replay(CHAIN, "--path", path, "--main", path / "train.py", "--format", "jsonl")
    assert ran.code == 1
    assert json.loads(ran.out.splitlines()[-1])["verdict"] == "failed"
    told = [line for line in ran.err.splitlines() if not line.startswith("import | ")]
    assert told[0] == "rpcinspect: importing train: ZeroDivisionError: division by zero:"
    assert re.search(r'train\.py", line 2, in f', "\n".join(told))
    assert "worker_main.py" not in ran.err


def test_a_module_that_is_not_there() -> None:
    """It is known before anything is sent."""
    ran = replay(CHAIN, "--allow", "basic_chain")
    assert ran.code == 1
    assert ran.out.splitlines()[-3:] == [
        "live workers can't find what the capture names:",
        f"  basic_chain.scale (#6): {NOT_FOUND}",
        "failed: nothing was replayed",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import none_of_mine", "importing basic_chain fails: No module named 'none_of_mine'"),
        ("1 / 0", "importing basic_chain fails: ZeroDivisionError: division by zero"),
        ("def other(): ...", "basic_chain has no scale"),
    ],
)
def test_a_module_without_what_is_called(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "basic_chain.py").write_text(text)
    ran = replay(CHAIN, "--allow", "basic_chain", "--path", tmp_path)
    assert f"  basic_chain.scale (#6): {why}" in ran.out.splitlines()


def test_what_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_S", 1.0)
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(3)")
    ran = replay(CHAIN, "--path", CAPTURES, "--path", tmp_path, "--import", "slow")
    assert ran.code == 0
    line = "rpcinspect: waiting for the import of slow: [1-9] s"
    assert [one for one in ran.err.splitlines() if re.fullmatch(line, one)]
