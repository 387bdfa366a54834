"""What stops a session, message by message; live workers are played by what they would tell."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from rpcinspect.equality.rules import Rules
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.playing.debugging import Debugging, DebugOptions, SessionDebugger, digest_of
from rpcinspect.replayer.playing.inputs import SessionInputs
from rpcinspect.replayer.playing.stops import Stops
from rpcinspect.replayer.workers.worker_protocol import Object
from rpcinspect.rpc.command import PythonCall
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import RunModel, open_run
from tests import forks
from tests.places import recorded
from tests.replayer import nan_job

NESTED = recorded("reports/replay/nested.pcap")


@pytest.fixture
def run() -> Iterator[RunModel]:
    with open_run(str(nan_job.CAPTURE)) as opened:
        yield opened


class Session:
    """A session whose requests are sent one by one."""

    def __init__(self, run: RunModel, *stop_at: str, watch: bool = False, live: tuple[str, ...] = ()) -> None:
        self.said: list[str] = []
        (self.planned,) = plan(run, PlanOptions(trust=True, live=live)).sessions
        self.calls = dict(run.calls)
        ids = {"worker0": 0, "worker1": 1, "worker2": 2, "store": 0, "mid": 1, "client": 2}
        self.inputs = SessionInputs(
            planned=self.planned,
            calls=self.calls,
            read=run.read,
            rules=Rules(),
            worker_ids=ids,
            ids_in_group=ids,
        )
        options = DebugOptions(stop_at=stop_at, watch=watch)
        self.all = Debugging(options, Stops.read(stop_at, self.calls), self.said.append)
        self.debugger = SessionDebugger(self.all, self.inputs, {})

    def send(self, index: int) -> None:
        """A request is sent, as it was captured."""
        (step,) = (one for one in self.planned.steps if one.message == index)
        call = self.calls[index]
        storages = self.inputs.storages(call.request)
        assert self.debugger.before(step, call, call.request.rpc.message, storages)(0.0)

    def got(self, index: int, worker: str) -> Object:
        """What a live worker is told that got it."""
        return self.debugger.got(worker, {**heard(self, self.calls[index]), "nonfinite": None})


def heard(session: Session, call: Exchange) -> Object:
    command = call.request.rpc.command
    assert isinstance(command, PythonCall)
    storages = session.inputs.storages(call.request)
    digest = digest_of(command.serialized_py_obj, call.request.rpc.tensors, storages)
    return {"digest": digest, "names": [call.function]}


def test_a_message_holds_from_when_it_is_sent_until_its_worker_goes_on(run: RunModel) -> None:
    session = Session(run, "102")
    session.send(92)
    assert not session.debugger.is_to_hold
    assert session.got(92, "worker1")["stops"] is False
    session.send(102)
    assert (session.debugger.holds, session.debugger.is_to_hold) == (False, True)  # no time passes yet
    assert session.all.missed == set()
    told = session.got(102, "worker2")
    assert (told["message"], told["sender"], told["stops"]) == (102, "worker0", True)
    assert session.debugger.holds
    session.debugger.go_on("worker2", "#102", "stop")
    assert not session.debugger.is_to_hold


def test_an_answer_ends_a_hold(run: RunModel) -> None:
    """A function whose call fails before it begins never stops."""
    session = Session(run, "102")
    session.send(102)
    session.debugger.over(session.calls[102])
    assert not session.debugger.is_to_hold


def test_the_next_message(run: RunModel) -> None:
    session = Session(run, "92")
    session.send(92)
    session.got(92, "worker1")
    session.debugger.go_on("worker1", "#92", "message")
    session.send(102)
    assert session.got(102, "worker2")["stops"] is True
    session.debugger.go_on("worker2", "#102", "stop")
    session.send(122)
    assert session.got(122, "worker1")["stops"] is False


def test_functions_by_their_own_names(run: RunModel) -> None:
    session = Session(run, "Stage1.forward")
    session.send(92)
    assert session.got(92, "worker1")["stops"] is True
    session.send(102)
    assert session.got(102, "worker2")["stops"] is False


def test_calls_that_nobody_announced(run: RunModel) -> None:
    session = Session(run, "forward2")
    told = session.debugger.got("worker1", {"digest": "?", "names": ["m.f", "m.forward2"], "nonfinite": None})
    assert (told["message"], told["stops"]) == (None, True)
    told = session.debugger.got("worker1", {"digest": "?", "names": ["m.f"], "nonfinite": None})
    assert told["stops"] is False


def test_calls_between_live_workers_have_their_numbers() -> None:
    with open_run(str(NESTED)) as run:
        session = Session(run, "27", live=("mid", "store"))
        assert session.got(27, "store")["stops"] is True
        told = session.got(27, "store")  # the second time it is another one
        assert (told["message"], told["stops"]) == (None, False)


def test_what_carries_nan_is_told_once(run: RunModel) -> None:
    session = Session(run, watch=True)
    session.send(106)
    assert session.said == []
    session.send(109)
    session.send(139)
    assert session.said == [
        "nonfinite: worker1 gets NaN in #109, BACKWARD_AUTOGRAD_REQ (from worker0, context 0:2)"
    ]


def test_the_end(run: RunModel) -> None:
    session = Session(run, "102")
    session.debugger.quit()
    with pytest.raises(KeyboardInterrupt):
        _ = session.debugger.holds


SAME_DIGEST = """
import json, torch
from rpcinspect.replayer.agent.tensors import tell
from rpcinspect.replayer.workers.live_debugger import digest_of
base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
tensors = [base[1:, ::2], base, torch.tensor([1 + 2j, 3 + 0j]).conj(), torch.eye(2).to_sparse(),
           torch.quantize_per_tensor(base, 0.5, 1, torch.qint8), torch.empty(0)]
rows, storages = tell(tensors)
print(json.dumps([digest_of(b"pickle", tensors), rows, [data.hex() for data in storages]]))
"""


def test_live_workers_count_the_same_bytes() -> None:
    pytest.importorskip("torch")
    from msgspec import convert

    ran = forks.run([sys.executable, "-c", SAME_DIGEST], timeout=60, check=True)
    digest, rows, storages = json.loads(ran.stdout)
    metas = convert(rows, list[TensorMeta])
    assert digest_of(b"pickle", metas, [bytes.fromhex(data) for data in storages]) == digest
