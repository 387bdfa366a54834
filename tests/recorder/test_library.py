"""Which interpreter a command runs in, and what is said where the agent can't be built."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from rpcinspect.errors import RecordError
from rpcinspect.recorder.library import build_agent, interpreter_of
from tests.recorder.agents import need_agent


def script(folder: Path, name: str, first: str) -> str:
    path = folder / name
    path.write_text(first + "\nrest\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_interpreter_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = script(tmp_path, "python3.99", "")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert interpreter_of([python, "x.py"]) == python
    assert interpreter_of(["python3.99", "x.py"]) == python
    assert interpreter_of([script(tmp_path, "torchrun", f"#!{python} -s"), "x.py"]) == python
    assert interpreter_of([script(tmp_path, "by_env", "#!/usr/bin/env python3.99")]) == python
    assert interpreter_of([script(tmp_path, "by_env_s", "#!/usr/bin/env -S python3.99 -u")]) == python


@pytest.mark.parametrize("first", ["#!/bin/sh", "#!/nowhere/python3", "#!", '#!"', "\x7fELF", ""])
def test_what_is_no_python_script_runs_in_ours(tmp_path: Path, first: str) -> None:
    assert interpreter_of([script(tmp_path, "it", first), "x.py"]) == sys.executable
    assert interpreter_of(["/no/such/program"]) == sys.executable


def test_an_interpreter_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="can't be run: No such file"):
        build_agent(str(tmp_path / "nothing"))
    with pytest.raises(RecordError, match="is not a Python: it answers 'hello'"):
        build_agent(script(tmp_path, "python", "#!/bin/sh\necho hello"))
    with pytest.raises(RecordError, match="could not build the agent: oh no"):
        build_agent(script(tmp_path, "python", "#!/bin/sh\necho oh no >&2\nexit 1"))


def test_what_is_built_is_for_the_torch_that_is_there() -> None:
    torch = pytest.importorskip("torch")
    library = need_agent()
    assert library.torch == torch.__version__
    assert Path(library.path).is_file()
