"""Which names the user's files define; nothing in them is run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rpcinspect.errors import OutputError
from rpcinspect.replayer.planning.sources import NO_ITEMS, Sources


def defines(sources: Sources, module: str, name: str) -> bool:
    """Whether a file of the user's defines a name, so that only code of these files is its own."""
    found = sources.find(module, name)
    return found is not None and found.kind != "alias"


def defined(tmp_path: Path, source: str) -> Callable[[str], str | None]:
    """How a file defines a name: its kind, and what an alias is."""
    (tmp_path / "job.py").write_text(source)
    sources = Sources(None, [tmp_path])

    return lambda name: meaning(sources, "job", name)


def meaning(sources: Sources, module: str, name: str) -> str | None:
    """How the files define a name: its kind, and what an alias is."""
    found = sources.find(module, name)
    return None if found is None else " ".join((found.kind, found.of)).strip()


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
    assert defines(sources, "pkg", "top")
    assert defines(sources, "pkg.sub.leaf", "low")
    assert defines(sources, "alone", "here")
    assert not defines(sources, "alone", "there")
    assert not defines(sources, "pkg.sub", "low")
    assert not defines(sources, "nowhere", "here")


def test_a_single_file_is_one_module(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text("def here(): ...")
    sources = Sources(None, [tmp_path / "alone.py"])
    assert defines(sources, "alone", "here")
    assert not defines(sources, "other", "here")


def test_the_main_script_is_main_in_both_ways(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def step(): ...")
    sources = Sources(tmp_path / "train.py")
    assert defines(sources, "__main__", "step")
    assert defines(sources, "__mp_main__", "step")
    assert not defines(sources, "train", "step")
    assert not defines(sources, "__main__", "other")


def test_nobody_takes_the_place_of_a_standard_module_or_leaves_the_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "os.py").write_text("def system(): ...")
    (tmp_path / "out.py").write_text("def f(): ...")
    sources = Sources(None, [tmp_path / "in"])
    for module in ("os", "..out", "../out", "in.os", "", "."):
        assert not defines(sources, module, "system")
        assert not defines(sources, module, "f")


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
    assert meaning(both, "__main__", "step") == meaning(alone, "__main__", "step") == "function"
    started = "alias decorated by subprocess.run"
    assert meaning(both, "__main__", "started") == meaning(alone, "__main__", "started") == started
    assert meaning(alone, "__main__", "decorated") == "alias decorated by common.decorator"
    assert meaning(both, "__main__", "decorated") == "function"
    assert meaning(alone, "__main__", "Net.helps") == "alias inherited from common.Base"
    assert meaning(both, "__main__", "Net.helps") == "function"
    assert alone.find("common", "decorator") is None
    assert meaning(both, "common", "decorator") == "function"
    (tmp_path / "common.py").write_text("def (")
    told = meaning(Sources(script), "__main__", "step")
    assert told == "alias decorated by rpc.functions.async_execution"


# --- what objects of classes run ----------------------------------------------------------------------------

CLASSES = """
import abc, collections, dataclasses, enum, json, subprocess, typing, torch
from torch import nn
class Plain:
    def __init__(self, x): ...
    def __call__(self): ...
class Child(Plain): ...
class Foreign(subprocess.Popen):
    def __init__(self): ...
    def __call__(self): ...
class Grandchild(Plain, Foreign): ...
class Net(nn.Module):
    def forward(self, x): ...
class Idle(nn.Module): ...
class Stack(nn.Sequential): ...
class Scale(torch.autograd.Function): ...
class Slow(torch.optim.Optimizer):
    def step(self): ...
class Bag(list): ...
class Index(dict):
    append = json.loads
class Own:
    def append(self, x): ...
class Failure(Exception): ...
class Color(enum.Enum):
    RED = 1
class Site(typing.NamedTuple):
    x: int
@dataclasses.dataclass
class Options(abc.ABC):
    x: int = 1
class Restored:
    __setstate__ = json.loads
    __call__ = json.loads
class Made:
    def __init__(self): self.__setstate__ = json.loads
    __init__ = json.loads
class Late: ...
Late.__hash__ = json.loads
class Both(Plain): ...
if Plain:
    class Both(Foreign): ...
Point = collections.namedtuple("Point", "x y")
Renamed = Plain
"""
POPEN = "it inherits from subprocess.Popen"
NO_CALL = "it defines no __call__"
TORCHS = "torch makes its objects"
FACTS = {
    # name → constructing, restoring, calling, items
    **dict.fromkeys(("Plain", "Child", "Renamed"), ("", "", "", NO_ITEMS)),
    **dict.fromkeys(("Foreign", "Grandchild"), (POPEN, POPEN, "", POPEN)),
    "Both": (POPEN, POPEN, "", NO_ITEMS),
    **dict.fromkeys(("Net", "Stack"), ("", "", "", NO_ITEMS)),
    "Idle": ("", "", "its __call__ is inherited from torch.nn.Module", NO_ITEMS),
    "Scale": (TORCHS, TORCHS, NO_CALL, NO_ITEMS),
    "Slow": ("", "its __setstate__ calls methods of the state", NO_CALL, NO_ITEMS),
    "Bag": ("", "", NO_CALL, ""),
    "Index": ("", "", NO_CALL, "its append is json.loads"),
    "Own": ("", "", NO_CALL, ""),
    **dict.fromkeys(("Failure", "Color", "Site", "Options", "Point"), ("", "", NO_CALL, NO_ITEMS)),
    "Restored": ("", "its __setstate__ is json.loads", "its __call__ is json.loads", NO_ITEMS),
    "Made": ("its __init__ is json.loads", "", NO_CALL, NO_ITEMS),
    "Late": ("", "its __hash__ is json.loads", NO_CALL, NO_ITEMS),
}


@pytest.mark.parametrize("name", FACTS)
def test_facts_of_classes(name: str, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(CLASSES)
    facts = Sources(None, [tmp_path]).class_standing("job", name)
    assert facts is not None
    assert (facts.constructing, facts.restoring, facts.calling, facts.items) == FACTS[name]


def test_there_are_facts_of_classes_only(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import subprocess\nclass C(subprocess.Popen, dict): ...\nf = C\nx = 1")
    sources = Sources(None, [tmp_path])
    facts = sources.class_standing("job", "C")
    assert facts is not None
    assert facts.constructing == POPEN
    assert sources.class_standing("job", "f") == facts
    for module, name in (("job", "x"), ("job", "absent"), ("job", "subprocess"), ("subprocess", "Popen")):
        assert sources.class_standing(module, name) is None


# --- files of the user's that attacks were tried with -------------------------------------------------------


def test_sources_of_the_hostile_captures(tmp_path: Path) -> None:
    """What reports/hostile/src defines, and what inherited_method and method_of_other call."""
    (tmp_path / "tools.py").write_text(
        "import os, subprocess, pathlib, torch\n"
        "class RunDir(type(pathlib.Path())):\n def log(self): return str(self)\n"
        "class Net(torch.nn.Module):\n def forward(self, x): return x\n"
        "sh = subprocess.getoutput\nload = torch.load\ndef step(x): return x\n"
    )
    sources = Sources(None, [tmp_path])
    for name in ("RunDir", "RunDir.log", "Net", "Net.forward", "step"):
        assert defines(sources, "tools", name)
    aliases = {
        "RunDir.write_text": "inherited from type(pathlib.Path())",
        "sh": "subprocess.getoutput",
        "load": "torch.load",
        "os.system": "os.system",
        "Net.apply": "inherited from torch.nn.Module",
    }
    for name, of in aliases.items():
        assert meaning(sources, "tools", name) == f"alias {of}"
        assert not defines(sources, "tools", name)
    facts = sources.class_standing("tools", "RunDir")
    assert facts is not None
    assert facts.restoring == facts.constructing == "it inherits from type(pathlib.Path())"


# --- files --------------------------------------------------------------------------------------------------


def test_what_is_compiled_or_a_submodule_is_an_alias(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text(
        "def train(): ...\ndef other(): ...\nfrom .train import work"
    )
    (tmp_path / "pkg" / "train.py").write_text("from subprocess import run\ndef work(): ...")
    (tmp_path / "fast.py").write_text("def f(): ...")
    (tmp_path / "fast.cpython-399-x.so").write_bytes(b"")
    sources = Sources(None, [tmp_path])
    assert meaning(sources, "pkg", "train") == "alias the module pkg.train"
    assert meaning(sources, "pkg", "train.run") == "alias the module pkg.train"
    assert meaning(sources, "pkg", "work") == "alias pkg.train.work"
    assert defines(sources, "pkg", "other")
    assert meaning(sources, "fast", "f") == "alias in fast.cpython-399-x.so, which is compiled"
    assert sources.files() == {"pkg": str(tmp_path / "pkg" / "__init__.py")}


def test_main_is_the_script_alone(tmp_path: Path) -> None:
    """Without one, `__main__` of a live worker is our program."""
    (tmp_path / "__main__.py").write_text("def main(): ...")
    assert Sources(None, [tmp_path]).find("__main__", "main") is None


@pytest.mark.parametrize("text", ["x = " + "-" * 20_000 + "1", "def f(:", "x = 0\0", "# coding: nothing"])
def test_files_that_can_not_be_parsed(text: str, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(text)
    with pytest.raises(OutputError, match="can't be parsed as Python"):
        Sources(None, [tmp_path]).find("job", "f")


def test_long_expressions(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "x = " + "+".join(["1"] * 900) + "\ny = " + "x." * 400 + "x\ndef f(): ..."
    )
    sources = Sources(None, [tmp_path])
    assert defines(sources, "job", "x")
    assert defines(sources, "job", "f")
    assert not defines(sources, "job", "y")
