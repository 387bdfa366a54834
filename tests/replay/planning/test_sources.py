"""Which names the user's files define; nothing in them is run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rpcinspect.errors import OutputError
from rpcinspect.replay.planning.sources import Definition, Sources


def defined(tmp_path: Path, source: str) -> Callable[[str], str | None]:
    """How a file defines a name: its kind, and what an alias is."""
    (tmp_path / "job.py").write_text(source)
    sources = Sources(None, [tmp_path])

    def said(name: str) -> str | None:
        found = sources.find("job", name)
        return None if found is None else " ".join((found.kind, found.of)).strip()

    return said


SOURCE = """
import os
from subprocess import Popen
raise SystemExit("this file must not run")
def make(n): ...
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
    **dict.fromkeys(("make", "f", "g", "C.method", "C.D.deep", "under_if", "under_else"), "function"),
    **dict.fromkeys(("tried", "fallback", "under_with"), "function"),
    **dict.fromkeys(("C", "C.D"), "class"),
    **dict.fromkeys(("x", "size", "run", "limit", "last", "C.kind"), "value"),
    **dict.fromkeys(("declared", "inner", "f.inner", "f.__globals__", "absent", "C.absent"), None),
    "os": "alias os",
    "Popen": "alias subprocess.Popen",
    "os.system": "alias os.system",
}


@pytest.mark.parametrize("name", DEFINED)
def test_what_a_file_defines(name: str, tmp_path: Path) -> None:
    assert defined(tmp_path, SOURCE)(name) == DEFINED[name]


def test_modules_are_found_as_python_finds_them(tmp_path: Path) -> None:
    (tmp_path / "pkg" / "sub").mkdir(parents=True)
    (tmp_path / "pkg" / "__init__.py").write_text("def top(): ...")
    (tmp_path / "pkg" / "sub" / "leaf.py").write_text("def low(): ...")
    (tmp_path / "alone.py").write_text("def here(): ...")
    sources = Sources(None, [tmp_path])
    assert sources.defines("pkg", "top")
    assert sources.defines("pkg.sub.leaf", "low")
    assert sources.defines("alone", "here")
    assert not sources.defines("alone", "there")
    assert not sources.defines("pkg.sub", "low")
    assert not sources.defines("nowhere", "here")


def test_a_single_file_is_one_module(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text("def here(): ...")
    sources = Sources(None, [tmp_path / "alone.py"])
    assert sources.defines("alone", "here")
    assert not sources.defines("other", "here")


def test_the_main_script_is_main_in_both_ways(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def step(): ...")
    sources = Sources(tmp_path / "train.py")
    assert sources.defines("__main__", "step")
    assert sources.defines("__mp_main__", "step")
    assert not sources.defines("train", "step")
    assert not sources.defines("__main__", "other")


def test_nobody_takes_the_place_of_a_standard_module_or_leaves_the_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "os.py").write_text("def system(): ...")
    (tmp_path / "out.py").write_text("def f(): ...")
    sources = Sources(None, [tmp_path / "in"])
    for module in ("os", "..out", "../out", "in.os", "", "."):
        assert not sources.defines(module, "system")
        assert not sources.defines(module, "f")


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("def f(:")
    with pytest.raises(OutputError, match="parsed"):
        Sources(bad)
    with pytest.raises(OutputError, match="read"):
        Sources(tmp_path / "absent.py")
    with pytest.raises(OutputError, match="no such"):
        Sources(None, [tmp_path / "absent"])


def test_imports_are_followed_beside_the_script_and_nothing_there_is_allowed(tmp_path: Path) -> None:
    """`from common import *`, as scripts of small jobs begin."""
    (tmp_path / "common.py").write_text(
        "import torch.distributed.rpc as rpc\nfrom subprocess import run as background\n"
        "class Base:\n def helps(self): ...\ndef decorator(f): return f\n"
    )
    script = tmp_path / "train.py"
    script.write_text(
        "from common import *\n"
        "@rpc.functions.async_execution\ndef step(): ...\n"
        "@background\ndef started(): ...\n"
        "@decorator\ndef decorated(): ...\n"
        "class Net(Base):\n def forward(self): ...\n"
    )
    alone, both = Sources(script), Sources(script, [tmp_path])
    assert both.find("__main__", "step") == alone.find("__main__", "step") == Definition("function")
    started = Definition("alias", "decorated by subprocess.run")
    assert both.find("__main__", "started") == alone.find("__main__", "started") == started
    assert alone.find("__main__", "decorated") == Definition("alias", "decorated by common.decorator")
    assert both.find("__main__", "decorated") == Definition("function")
    assert alone.find("__main__", "Net.helps") == Definition("alias", "inherited from common.Base")
    assert both.find("__main__", "Net.helps") == Definition("function")
    assert alone.find("common", "decorator") is None
    assert both.find("common", "decorator") == Definition("function")
    (tmp_path / "common.py").write_text("def (")
    told = Sources(script).find("__main__", "step")
    assert told == Definition("alias", "decorated by rpc.functions.async_execution")
