"""What a replay that is interrupted takes back in the workers of a group that goes on."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcinspect.replayer.playing.releasing import moves_references
from rpcinspect.rpc.command import Command, PythonCall, PythonRemoteCall, RRefForkRequest
from rpcinspect.rpc.types import GloballyUniqueId
from tests.forks import command
from tests.replayer.programs import QUIET, Programs, start_as_fork, until
from tests.replayer.talks import Workers, udf
from tests.truth import CAPTURES

SECONDS = 60.0
ID = GloballyUniqueId(0, 1)
REMOTE = PythonRemoteCall(
    serialized_py_obj=udf("app.f"), ret_rref_id=ID, ret_fork_id=ID, is_async_execution=False, tensors=()
)


@pytest.mark.parametrize(
    ("asked", "moves"),
    [(REMOTE, True), (RRefForkRequest(ID, ID), True), (PythonCall(udf("app.f"), False), False)],
)
def test_what_is_waited_for(asked: Command, moves: bool) -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, asked)
    (call,) = workers.calls()
    assert moves_references(call) == moves


PROGRAM = """
import os, time
import torch

if os.environ["RANK"] == "0":
    open({began!r}, "w").close()
    while not os.path.exists({go!r}):
        time.sleep(0.02)

def make(n: int) -> torch.Tensor: return torch.arange(float(n))
def use(handle, k): return handle.to_here() + k
def hand_on(handle, to): return handle.to_here()
def square_sum(x): return (x * x).sum()
"""
"""What the captured job calls. The first of the group needs long to read its first call, whose argument is a
reference to an object of the second."""


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Programs]:
    """Two members. worker2 says by `began` that its first call came, and reads it once `go` is there."""
    pytest.importorskip("torch")
    source = tmp_path / "src"
    source.mkdir()
    text = PROGRAM.format(began=str(tmp_path / "began"), go=str(tmp_path / "go"))
    (source / "rref_relay.py").write_text(text, encoding="utf-8")
    programs = Programs(("worker2", "worker1", "late"), (*QUIET, "--path", source), start_as_fork)
    programs.start("worker2", "worker1")
    yield programs
    programs.kill()


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
def test_a_reference_that_is_being_handed_on(group: Programs, tmp_path: Path) -> None:
    """Its new user has not asked the owner for it yet. Were ours, the only one, deleted at once, the user
    would wait for an object that is gone, and so would the end of both."""
    replay = ("join", group.store, CAPTURES / "rref_relay.pcap.gz", "--path", tmp_path / "src", "--yes")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with command(*replay, cwd=CAPTURES.parent, **pipes) as process:
        try:
            until(lambda: (tmp_path / "began").exists() or process.poll() is not None, SECONDS)
            assert process.returncode is None, process.communicate()[0].decode()
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
            (tmp_path / "go").touch()
            process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert process.returncode == 130
    group.check_works("late")
    began = time.monotonic()
    group.end_all()
    assert time.monotonic() - began < 20.0
