"""Whether torch is there, found out without importing it; and what a replay says where it is not."""

from __future__ import annotations

import re
import shlex
import site
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from rpcinspect.cli.requirements import EXTRAS, missing_mcp, pip_install
from tests.cli.runner import CAPTURES, CHAIN, rpcinspect

ROOT = CAPTURES.parent


def run(code: str, *folders: Path | str) -> subprocess.CompletedProcess[str]:
    """In an interpreter that knows Python's own modules and these folders only."""
    paths = [str(folder) for folder in folders]
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path += {paths!r}\n{code}"],
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )


def without(name: str, folder: Path) -> Path:
    """All installed packages but one, by links."""
    for installed in map(Path, site.getsitepackages()):
        for entry in installed.iterdir():
            if not entry.name.startswith((name, "_")) and not entry.name.endswith(".pth"):
                (folder / entry.name).symlink_to(entry)
    return folder


def test_it_is_looked_for_and_not_imported(tmp_path: Path) -> None:
    fake, others = tmp_path / "fake", without("torch", tmp_path)
    (fake / "torch").mkdir(parents=True)
    (fake / "torch" / "__init__.py").write_text("raise SystemExit('imported')")
    code = "from rpcinspect.cli.requirements import missing_torch; print(missing_torch())"
    assert run(code, ROOT, fake, others).stdout == "None\n"
    assert run(code, ROOT, others).stdout.startswith(
        "live workers need PyTorch, which is not installed here: "
    )


def test_a_replay_says_what_to_install_and_a_plan_needs_nothing(tmp_path: Path) -> None:
    folder = without("torch", tmp_path)
    code = f"sys.argv = ['rpcinspect', 'replay', {str(CHAIN)!r}, '--path', {str(CAPTURES)!r}, *MORE]\n"
    code += "from rpcinspect.cli import main; main()"
    done = run(code.replace("*MORE", ""), ROOT, folder)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert f"{sys.executable} -m pip install 'rpcinspect[replay]'" in line
    assert "200 MB" in line
    planned = run(code.replace("*MORE", "'--plan'"), ROOT, folder)
    assert (planned.returncode, planned.stderr) == (0, "")
    assert "5 to send" in planned.stdout


@pytest.mark.parametrize("words", [("browse", str(CHAIN)), ("record", "--browse", "--", "true")])
def test_browse_says_what_to_install(words: tuple[str, ...], tmp_path: Path) -> None:
    code = f"sys.argv = ['rpcinspect', *{words!r}]\nfrom rpcinspect.cli import main; main()"
    done = run(code, ROOT, without("textual", tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line == (
        "rpcinspect: browse needs Textual, which is not installed here: "
        f"{sys.executable} -m pip install 'rpcinspect[browse]'; rpcinspect doctor shows what works here"
    )


def test_there_is_a_line_for_each_extra() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = text.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    found = dict(re.findall(r'^(\w+) = \["([\w-]+)', block, re.MULTILINE))
    assert {extra: package for extra, (package, _) in EXTRAS.items()} == {
        extra: package for extra, package in found.items() if extra not in ("dev", "fuzz")
    }


def test_mcp_says_what_to_install(tmp_path: Path) -> None:
    code = f"sys.argv = ['rpcinspect', 'mcp', {str(CHAIN)!r}]\nfrom rpcinspect.cli import main; main()"
    done = run(code, ROOT, without("mcp", tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "rpcinspect: mcp needs the package of that name, which is not installed here: "
        f"{sys.executable} -m pip install 'rpcinspect[mcp]'; rpcinspect doctor shows what works here\n"
    )


def test_an_old_mcp_is_told_from_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_mcp() is None
    monkeypatch.setattr("rpcinspect.cli.requirements.version", lambda name: "1.26.0")
    told = missing_mcp()
    assert told is not None
    assert told.startswith("mcp needs release 2 of the package of that name, and 1.26.0 is here: ")


def test_it_is_of_the_python_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for python in (sys.executable, "/an environment/bin/python"):
        monkeypatch.setattr(sys, "executable", python)
        told = shlex.split(pip_install("'rpcinspect[replay]'"))
        assert told == [python, "-m", "pip", "install", "rpcinspect[replay]"]


@pytest.mark.skipif("+cpu" not in version("torch"), reason="this PyTorch is built with CUDA")
def test_a_gpu_that_no_worker_could_use_is_told_before_anything_is_read(tmp_path: Path) -> None:
    ran = rpcinspect("replay", tmp_path / "none.pcap", "--device", "cuda", "--trust-capture")
    assert ran.code == 2
    assert ran.err == f"rpcinspect: --device cuda: PyTorch {version('torch')} is built without CUDA\n"
