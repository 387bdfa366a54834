"""Which names the user's files define; nothing in them is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.errors import OutputError
from rpcinspect.replay.planning.sources import Sources, definitions

SOURCE = """
import os
from subprocess import Popen
raise SystemExit("this file must not run")
x, size = 1, 2
run = make(1)
limit: int = 3
declared: int
def f():
    def inner(): ...
async def g(): ...
class C:
    kind = "c"
    def method(self): ...
    class D:
        def deep(self): ...
if True:
    def under_if(): ...
else:
    def under_else(): ...
try:
    def tried(): ...
except ImportError:
    def fallback(): ...
finally:
    last = 1
with open("x") as opened:
    def under_with(): ...
"""
DEFINED = {
    *("run", "limit", "f", "g", "C", "C.kind", "C.method", "C.D", "C.D.deep", "last"),
    *("under_if", "under_else", "tried", "fallback", "under_with"),
}


def test_definitions_are_read_and_imports_are_none(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text(SOURCE)
    assert definitions(file) == DEFINED


def test_modules_are_found_as_python_finds_them(tmp_path: Path) -> None:
    (tmp_path / "pkg" / "sub").mkdir(parents=True)
    (tmp_path / "pkg" / "__init__.py").write_text("def top(): ...")
    (tmp_path / "pkg" / "sub" / "leaf.py").write_text("def low(): ...")
    (tmp_path / "alone.py").write_text("def here(): ...")
    sources = Sources(None, [tmp_path])
    assert sources.define("pkg", "top")
    assert sources.define("pkg.sub.leaf", "low")
    assert sources.define("alone", "here")
    assert not sources.define("alone", "there")
    assert not sources.define("pkg.sub", "low")
    assert not sources.define("nowhere", "here")


def test_a_single_file_is_one_module(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text("def here(): ...")
    sources = Sources(None, [tmp_path / "alone.py"])
    assert sources.define("alone", "here")
    assert not sources.define("other", "here")


def test_the_main_script_is_main_in_both_ways(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def step(): ...")
    sources = Sources(tmp_path / "train.py")
    assert sources.define("__main__", "step")
    assert sources.define("__mp_main__", "step")
    assert not sources.define("train", "step")
    assert not sources.define("__main__", "other")


def test_nobody_takes_the_place_of_a_standard_module_or_leaves_the_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "os.py").write_text("def system(): ...")
    (tmp_path / "out.py").write_text("def f(): ...")
    sources = Sources(None, [tmp_path / "in"])
    for module in ("os", "..out", "../out", "in.os", "", "."):
        assert not sources.define(module, "system")
        assert not sources.define(module, "f")


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("def f(:")
    with pytest.raises(OutputError, match="parsed"):
        Sources(bad)
    with pytest.raises(OutputError, match="read"):
        Sources(tmp_path / "absent.py")
    with pytest.raises(OutputError, match="no such"):
        Sources(None, [tmp_path / "absent"])
