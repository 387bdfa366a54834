"""The parent of live workers before it is told what to import: it looks into no folder of the user's, finds
theirs first afterwards, and ends with whoever has begun it.

Torch is a small package in its place here, so that a new Python has imported it at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.workers.interpreters import Interpreter, own_path
from rpcinspect.replayer.workers.parent_process import ParentProcess, worker_environment
from rpcinspect.replayer.workers.worker_imports import shadowed
from rpcinspect.replayer.workers.workers import WorkerOptions, Workers
from tests.replayer.left_behind import temporary_folders

SECONDS = 30.0
SET = {
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "CUDA_LAUNCH_BLOCKING": "1",
    "CUDA_VISIBLE_DEVICES": "1",
    "NVIDIA_TF32_OVERRIDE": "0",
    "PYTHONPATH": "/elsewhere",
    "MASTER_ADDR": "10.0.0.1",
}
PROGRAM = """
import os, sys, time
from rpcinspect.replayer.workers.parent_process import ParentProcess

parent = ParentProcess(threads=1)
print(parent._process.pid, flush=True)
time.sleep(1000)
"""


@pytest.fixture(autouse=True)
def a_new_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """In other tests it is a fork that has torch already."""
    monkeypatch.setattr(ParentProcess, "start_process", subprocess.Popen)


@pytest.fixture
def torch(tmp_path: Path) -> Callable[..., Interpreter]:
    """Makes a Python whose torch is these texts, which write into the file `seen` beside it."""

    def made(init: str = "", cuda: str = "def is_initialized(): return False\n") -> Interpreter:
        folder = tmp_path / "packages"
        files = {
            "torch/__init__.py": f"__version__ = '2.13.0'\nimport other\n{init}",
            "torch/cuda.py": cuda,
            "torch/distributed/__init__.py": "",
            "torch/distributed/autograd.py": "",
            "torch/distributed/rpc.py": noting(tmp_path, "torch"),
            "other.py": noting(tmp_path, "theirs"),
        }
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        path = (str(folder), *own_path())
        return Interpreter(program=sys.executable, python="3.11.7", torch="2.13.0", path=path)

    return made


def noting(folder: Path, word: str) -> str:
    """A module that writes this word."""
    return f"with open({str(folder / 'seen')!r}, 'a') as file: file.write({word + ' '!r})\n"


def seen(folder: Path, count: int) -> list[str]:
    """What modules have written, once it is that much."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        words = (folder / "seen").read_text().split() if (folder / "seen").exists() else []
        if len(words) >= count:
            break
        time.sleep(0.02)
    return words


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder of the user's, with a module that torch imports too."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "other.py").write_text(noting(tmp_path, "ours"), encoding="utf-8")
    return tmp_path / "src"


@pytest.mark.usefixtures("nothing_left")
def test_nothing_of_the_users_is_imported_before_it_is_told(
    tmp_path: Path, source: Path, torch: Callable[..., Interpreter]
) -> None:
    with ParentProcess(threads=1, interpreter=torch()):
        assert seen(tmp_path, 2) == ["theirs", "torch"]
    assert seen(tmp_path, 2) == ["theirs", "torch"]


@pytest.mark.usefixtures("nothing_left")
def test_a_module_of_the_users_comes_before_one_of_its_name_that_torch_has_imported(
    tmp_path: Path, source: Path, torch: Callable[..., Interpreter]
) -> None:
    options = WorkerOptions(path=(str(source),), imports=("other",), interpreter=torch())
    with Workers(options) as workers:
        assert workers.torch_version == "2.13.0"
        assert len(os.listdir(f"/proc/{workers._parent._process.pid}/task")) == 1
    assert seen(tmp_path, 4) == ["theirs", "torch", "ours", "torch"]


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("name", ["cmd", "code", "traceback"])
def test_a_module_of_the_users_takes_no_place_of_what_we_need(
    tmp_path: Path, source: Path, torch: Callable[..., Interpreter], name: str
) -> None:
    """Python's own of that name is ours alone: the user's job gets the user's."""
    (source / f"{name}.py").write_text(noting(tmp_path, name), encoding="utf-8")
    options = WorkerOptions(path=(str(source),), imports=(name,), interpreter=torch())
    with Workers(options) as workers:
        assert workers.torch_version == "2.13.0"
    assert seen(tmp_path, 5) == ["theirs", "torch", "ours", "torch", name]


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("name", ["pdb", "resource"])
def test_what_is_needed_again_later_stays_pythons_own(
    tmp_path: Path, torch: Callable[..., Interpreter], name: str
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / f"{name}.py").write_text("1/0", encoding="utf-8")
    options = WorkerOptions(path=(str(tmp_path / "src"),), imports=(name,), interpreter=torch())
    with Workers(options) as workers:
        assert workers.torch_version == "2.13.0"
    assert seen(tmp_path, 2) == ["theirs", "torch"]


@pytest.mark.usefixtures("nothing_left")
def test_what_torch_writes_before_anybody_listens_is_shown(torch: Callable[..., Interpreter]) -> None:
    lines: list[tuple[str, str]] = []
    options = WorkerOptions(interpreter=torch("print('as torch is imported', flush=True)"))
    parent = ParentProcess(threads=1, interpreter=options.interpreter)
    with Workers(options, lambda *line: lines.append(line), parent=parent):
        pass
    assert lines == [("import", "as torch is imported")]


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("init", "cuda", "why"),
    [
        ("1/0", "", r"importing torch\.distributed\.rpc: ZeroDivisionError: division by zero"),
        ("", "def is_initialized(): return True\n", "has initialised CUDA when it was imported"),
    ],
)
def test_a_torch_that_can_not_be_used(
    torch: Callable[..., Interpreter], init: str, cuda: str, why: str
) -> None:
    with pytest.raises(ReplayError, match=why):
        Workers(WorkerOptions(interpreter=torch(init, cuda)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_whoever_began_it(tmp_path: Path, repo: Path, number: int) -> None:
    pytest.importorskip("torch")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        cwd=repo,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        assert process.stdout is not None
        parent = int(process.stdout.readline())
        time.sleep(0.2)  # it imports
        process.send_signal(number)
        process.wait(SECONDS)
        end = time.monotonic() + SECONDS
        while (os.path.exists(f"/proc/{parent}") or os.listdir(tmp_path)) and time.monotonic() < end:
            time.sleep(0.02)
        assert not os.path.exists(f"/proc/{parent}")
        assert temporary_folders(str(tmp_path), process.pid) == set()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_is_shadowed(tmp_path: Path) -> None:
    """A module in a folder that comes first; no package without a file, no submodule, not itself."""
    for name in ("json.py", "decoder.py", "sys.py"):
        (tmp_path / name).touch()
    (tmp_path / "subprocess").mkdir()
    assert shadowed([str(tmp_path)], {"json", "os"}) == ["json"]
    assert not shadowed([str(tmp_path)], {"subprocess", "json.decoder", "sys", "os"})
    assert not shadowed([str(Path(subprocess.__file__).parent)], {"subprocess", "json"})


# --- the environment of workers -----------------------------------------------------------------------------


def test_it_is_a_list_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SET.items():
        monkeypatch.setenv(name, value)
    found = worker_environment(3)
    assert found["OMP_NUM_THREADS"] == "3"
    assert not {"PYTHONPATH", "HOME", "MASTER_ADDR"} & set(found)


@pytest.mark.parametrize("cuda", [False, True])
def test_what_the_user_sets_for_torch_reaches_them(cuda: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --device cuda they see no GPU, whatever is set."""
    for name, value in SET.items():
        monkeypatch.setenv(name, value)
    found = worker_environment(1, cuda=cuda)
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "CUBLAS_WORKSPACE_CONFIG", "CUDA_LAUNCH_BLOCKING"):
        assert found[name] == SET[name]
    assert found["CUDA_VISIBLE_DEVICES"] == ("1" if cuda else "")
    assert ("NVIDIA_TF32_OVERRIDE" in found) == cuda
