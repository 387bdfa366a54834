"""Recording from within a program, with the processes that it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.errors import RecordError
from rpcinspect.recorder.family import FamilyRecording
from tests.decoded import decode
from tests.recorder.agents import Parent, need_agent


def test_a_recorded_process_is_not_recorded_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RPCINSPECT_RECORD", "{}")
    with pytest.raises(RecordError, match="recorded already"):
        FamilyRecording(tmp_path / "x.rpclog")


BODY = """
import signal
from pathlib import Path
from rpcinspect.errors import RecordError
from rpcinspect.recorder.family import FamilyRecording

def call(name):
    rpc.init_rpc(name, rank=0, world_size=1, rpc_backend_options=options())
    rpc.rpc_sync(name, torch.add, args=(torch.ones(2), 1))

def work(rank):
    before = dict(os.environ), rpc.TensorPipeAgent, rpc.api._init_rpc_states
    with FamilyRecording(Path("x.rpclog")) as recording:
        assert not recording.goes_on
        told, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            call("child")
            os.write(tell, b"1")
            time.sleep(60)
        os.read(told, 1)
        assert recording.goes_on
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert not recording.goes_on
        call("own")
        assert recording.goes_on
        rpc.shutdown()
        assert recording.finish() == ()
    assert (dict(os.environ), rpc.TensorPipeAgent, rpc.api._init_rpc_states) == before
    call("later")
    try:
        FamilyRecording(Path("y.rpclog"))
    except RecordError as error:
        print(error)
    assert (dict(os.environ), rpc.TensorPipeAgent, rpc.api._init_rpc_states) == before
    rpc.shutdown()
    with FamilyRecording(Path("z.rpclog")) as nothing:
        print(nothing.finish())
"""


@pytest.mark.slow
def test_this_process_and_one_that_is_killed(parent: Parent, tmp_path: Path) -> None:
    need_agent()
    (done,) = parent.run_workers(tmp_path, BODY, world=1)
    assert done.returncode == 0, done.stderr
    refused, nothing = done.stdout.splitlines()
    assert refused == "RPC has been started before: recording begins before init_rpc"
    assert "no process called init_rpc" in nothing
    output = decode(tmp_path / "x.rpclog")
    assert output.problems() == []
    assert [(m["src"], m["body"]["function"]) for m in output.messages if m["type"] == "SCRIPT_CALL"] == [
        ("child", "aten::add.Scalar"),
        ("own", "aten::add.Scalar"),
    ]
    assert all(output.answer(m) is not None for m in output.messages if m["request"])
