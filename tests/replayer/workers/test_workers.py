"""The parent of live workers: what can go wrong at its start, and that nothing outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.membership import PREFIX, TOKEN
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.workers.interpreters import Interpreter
from rpcinspect.replayer.workers.live_group import LiveGroup
from rpcinspect.replayer.workers.workers import WorkerOptions, Workers
from tests.replayer.left_behind import descendants, temporary_folders
from tests.thorough import some

SECONDS = 30.0

PROGRAM = """
import os, sys, tempfile, time
from rpcinspect.replayer.workers.live_group import LiveGroup
from rpcinspect.replayer.peers.membership import PREFIX, TOKEN
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.workers.workers import WorkerOptions, Workers

imports = ("slow",) if sys.argv[2] == "import" else ()
with Workers(WorkerOptions(path=(sys.argv[1],), imports=imports)) as workers:
    with LiveGroup(workers) as group:
        group.start("w0", 0)
        group.start("w1", 1)
        print("started", flush=True)
        time.sleep(1000)
"""


def alive(pids: set[int]) -> set[int]:
    """Those that run, or are dead and not waited for."""
    return {pid for pid in pids if os.path.exists(f"/proc/{pid}")}


def wait_until_gone(pids: set[int]) -> None:
    end = time.monotonic() + SECONDS
    while alive(pids) and time.monotonic() < end:
        time.sleep(0.02)
    assert not alive(pids)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_module", "importing broken: ModuleNotFoundError: No module named 'no_such_module'"),
        ("import os; os._exit(4)", "importing broken ended the process: it ended with code 4"),
        pytest.param(
            "import os; os.kill(os.getpid(), 15)",
            "importing broken ended the process: it was ended by SIGTERM",
            marks=pytest.mark.slow,
        ),
        pytest.param("raise SystemExit(3)", "importing broken exited with 3: guard ", marks=pytest.mark.slow),
        pytest.param("1/0", "importing broken: ZeroDivisionError: division by zero", marks=pytest.mark.slow),
    ],
)
def test_imports_that_fail(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "broken.py").write_text(text, encoding="utf-8")
    with pytest.raises(ReplayError, match=reason):
        Workers(WorkerOptions(path=(str(tmp_path),), imports=("broken",)))


@pytest.mark.usefixtures("nothing_left")
def test_a_module_from_elsewhere_than_what_was_read(tmp_path: Path) -> None:
    """A file called like a module that torch imports is found first; here it changes what is found."""
    for folder in ("own", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text("def f(): ...", encoding="utf-8")
    (tmp_path / "own" / "first.py").write_text(f"import sys\nsys.path.insert(0, {str(tmp_path / 'other')!r})")
    read = (("mine", str(tmp_path / "own" / "mine.py")),)
    with pytest.raises(ReplayError, match=r"import: ImportError: mine is imported from .*/other/mine\.py"):
        Workers(
            WorkerOptions(path=(str(tmp_path / "own"),), imports=("first",), files=read, names=("mine.f",))
        )


@pytest.mark.usefixtures("nothing_left")
def test_an_import_that_never_ends(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time; time.sleep(1000)", encoding="utf-8")
    start = time.monotonic()
    place = r"was not ready within 1 s \(it imports [\w.]+\):\nFatal Python error: Aborted\n(?s:.)* File "
    with pytest.raises(ReplayError, match=place):
        Workers(WorkerOptions(path=(str(tmp_path),), imports=("slow",), import_timeout_s=1))
    assert time.monotonic() - start < 8


@pytest.mark.usefixtures("nothing_left")
def test_a_module_that_closes_and_replaces_what_is_written_to(tmp_path: Path) -> None:
    text = "import os, sys\nos.close(1)\nos.close(2)\nsys.stdout = sys.stderr = None\n"
    (tmp_path / "quiet.py").write_text(text, encoding="utf-8")
    options = WorkerOptions(path=(str(tmp_path),), imports=("quiet",))
    with Workers(options) as made, LiveGroup(made) as group:
        group.start("w0", 0)
        assert group.ended() == ()


def test_a_worker_that_never_gets_ready(workers: Workers, nothing_left: None) -> None:
    options = workers.options
    workers.options = WorkerOptions(start_timeout_s=0.3)
    try:
        with LiveGroup(workers) as group:
            with StoreClient("127.0.0.1", group.port, prefix=PREFIX) as store:
                store.set(TOKEN, b"Token_for_ghost_join")
            with pytest.raises(ReplayError, match=r"w was not ready within 0\.3 s"):
                group.start("w", 0)
    finally:
        workers.options = options


@pytest.mark.usefixtures("nothing_left")
def test_an_interpreter_that_is_not_there() -> None:
    gone = Interpreter(program="/no/such/python", python="3.11.7", torch="2.13.0", path=())
    with pytest.raises(FileNotFoundError):
        Workers(WorkerOptions(interpreter=gone))


def test_this_process_never_imports_torch() -> None:
    names = "rpcinspect.replayer.workers.live_group, rpcinspect.replayer.peers.membership"
    code = f"import sys, {names}; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_parent_has_one_thread(workers: Workers) -> None:
    with LiveGroup(workers) as group:
        group.start("w", 0)
        parent = int(Path(f"/proc/{group.workers['w'].child.pid}/stat").read_text().split()[3])
        assert len(os.listdir(f"/proc/{parent}/task")) == 1


@pytest.mark.usefixtures("nothing_left")
def test_closing_while_workers_run() -> None:
    pytest.importorskip("torch")
    before = descendants(os.getpid())
    workers = Workers()
    group = LiveGroup(workers)
    worker = group.start("w", 0)
    ours = descendants(os.getpid()) - before
    assert len(ours) == 3
    start = time.monotonic()
    workers.close()
    workers.close()
    assert time.monotonic() - start < 5
    assert not alive(ours)
    assert worker.child.wait() is None  # nobody was left to tell
    group.close()
    with pytest.raises(ReplayError):
        group.start("x", 1)


@pytest.mark.usefixtures("nothing_left")
def test_a_parent_that_is_killed_takes_its_workers_along() -> None:
    pytest.importorskip("torch")
    before = descendants(os.getpid())
    with Workers() as workers:
        group = LiveGroup(workers)
        worker = group.start("w", 0)
        ours = descendants(os.getpid()) - before
        parent = int(Path(f"/proc/{worker.child.pid}/stat").read_text().split()[3])
        os.kill(parent, signal.SIGKILL)
        wait_until_gone(ours - {parent})
        with pytest.raises(ReplayError):
            group.start("x", 1)
        told = [one.text for one in group.ended()]
        assert told == [f"{who} is gone: its parent process was ended by SIGKILL" for who in WHO]
    assert not alive(ours)


WHO = ("the store of the live group", "the live worker w")
DEADLY = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("when", "number"), some(list(product(("import", "run"), DEADLY)), 2))
@pytest.mark.slow
def test_nothing_outlives_this_process(tmp_path: Path, repo: Path, number: int, when: str) -> None:
    """Quick, each signal and each time in one at least."""
    pytest.importorskip("torch")
    (tmp_path / "slow.py").write_text(
        f"open({str(tmp_path / 'begun')!r}, 'w').close()\nimport time\ntime.sleep(1000)\n", encoding="utf-8"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), when],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=repo,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        assert process.stdout is not None
        if when == "run":
            assert process.stdout.readline() == b"started\n"
        else:
            end = time.monotonic() + SECONDS
            while not (tmp_path / "begun").exists() and time.monotonic() < end:
                time.sleep(0.05)
        below = descendants(process.pid)
        assert len(below) == (4 if when == "run" else 1)
        assert len(temporary_folders(str(tmp_path), process.pid)) == 1
        process.send_signal(number)
        process.wait(SECONDS)
        wait_until_gone(below)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    end = time.monotonic() + 5
    while temporary_folders(str(tmp_path), process.pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert temporary_folders(str(tmp_path), process.pid) == set()
    assert alive(below) == set()


POISON = """
import os, torch
print(os.environ["CUBLAS_WORKSPACE_CONFIG"], "imported by", os.getpid(), flush=True)
torch.set_num_threads(2)
torch.cuda.is_available()
torch.ones(600, 600) @ torch.ones(600, 600)

def product():
    return float((torch.ones(600, 600) @ torch.ones(600, 600)).sum())
"""
"""What can't be forked once it is imported: it has started threads, and looked for GPUs."""


@pytest.mark.usefixtures("nothing_left")
def test_workers_that_may_use_gpus_import_for_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    (tmp_path / "poison.py").write_text(POISON)
    names = ("poison.product", "poison.nothing", "nowhere.f")
    options = WorkerOptions(path=(str(tmp_path),), imports=("poison",), names=names, cuda=True)
    with Workers(options) as workers:
        assert workers.missing == {
            "poison.nothing": "poison has no nothing",
            "nowhere.f": "no module nowhere is found; --path FOLDER lets live workers find modules",
        }
        assert workers.torch_version.startswith("2.")
        with LiveGroup(workers) as group:
            child = group.start("w0", 0).child
            end = time.monotonic() + SECONDS
            while f":4096:8 imported by {child.pid}" not in child.output.tail() and time.monotonic() < end:
                time.sleep(0.02)
            assert f":4096:8 imported by {child.pid}" in child.output.tail()


@pytest.mark.usefixtures("nothing_left")
def test_an_import_that_fails_where_each_imports_for_itself(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "broken.py").write_text("1/0")
    with pytest.raises(ReplayError, match=r"importing broken: ZeroDivisionError: .*:\nTraceback"):
        Workers(WorkerOptions(path=(str(tmp_path),), imports=("broken",), cuda=True))


def test_where_a_worker_hangs_is_told(workers: Workers, nothing_left: None) -> None:
    """Somebody else joins the group, and never comes to an end: torch waits for that in `init_rpc`."""
    options = workers.options
    workers.options = WorkerOptions(start_timeout_s=2.0)
    told: list[str] = []
    workers._waiting, before = lambda what, seconds: told.append(what), workers._waiting
    try:
        with LiveGroup(workers) as group:
            with StoreClient("127.0.0.1", group.port, prefix=PREFIX) as store:
                store.set(TOKEN, b"Token_for_ghost_join")
            with pytest.raises(ReplayError, match=r"w was not ready within 2 s:\n(.*\n)*.* in init_rpc"):
                group.start("w", 0)
    finally:
        workers.options, workers._waiting = options, before
    assert set(told) == {"the live worker w to begin"}
