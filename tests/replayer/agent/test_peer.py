"""A played worker whose process says what a test says."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.equality.rules import Rules
from rpcinspect.errors import ReplayError
from rpcinspect.replayer.agent.passes import RolePasses
from rpcinspect.replayer.agent.peer import AgentPeer, RoleInputs
from rpcinspect.replayer.peers.loop import (
    Loop,
    NotSent,
    PeerEvent,
    PipeLost,
    RequestArrived,
    ResponseArrived,
    Unanswered,
)
from rpcinspect.replayer.playing.inputs import SessionInputs
from rpcinspect.replayer.workers.worker_protocol import ControlSocket
from rpcinspect.rpc.command import PythonCall, PythonResp, ScriptCall
from rpcinspect.rpc.envelope import AutogradMetadata, RpcWithAutograd, peel
from rpcinspect.rpc.message import MessageType
from tests.replayer.scripted import message_of

NOTHING = {"pickle": 0, "tensors": [], "storages": []}
CALL = PythonCall(b"\x80\x02N.", False)
FORWARD = RpcWithAutograd(
    message_type=int(MessageType.FORWARD_AUTOGRAD_REQ),
    autograd_metadata=AutogradMetadata(5, 1),
    from_worker_id=0,
    device_map={},
    wrapped_message_type=int(MessageType.PYTHON_CALL),
)


class Ends(Struct):
    """Both sides of a played worker."""

    loop: Loop
    peer: AgentPeer
    process: ControlSocket
    brought: list[tuple[str, int]]
    """Contexts that were brought to the process."""

    def told(self) -> dict[str, Any]:
        heard = self.process.receive(5)
        assert heard is not None
        return heard[0]

    def event(self) -> PeerEvent:
        end = time.monotonic() + 5
        while time.monotonic() < end:
            for event in self.loop.wait(0.1):
                return event
        raise AssertionError("nothing happened")


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = ControlSocket.pair()
    part = RoleInputs(
        role="w0",
        inputs=SessionInputs(
            planned=None,  # type: ignore[arg-type]
            calls={},
            read=lambda extent: b"",
            rules=Rules(),
            worker_ids={"w0": 0, "w1": 1},
            ids_in_group={},
        ),
        asked=(),
        passes=RolePasses({}, {}, frozenset()),
        place=lambda device: "cpu",
        contexts=(5,),
    )
    brought: list[tuple[str, int]] = []
    with Loop() as loop:
        peer = AgentPeer(loop, part, ours, {}, lambda *what: brought.append(what))
        found = Ends(loop, peer, theirs, brought)
        assert found.told() == {"do": "begin", "contexts": [5]}
        yield found
    ours.close()
    theirs.close()


def test_it_waits_until_the_process_plays(ends: Ends) -> None:
    waiting = threading.Thread(target=ends.peer.begin)
    waiting.start()
    ends.process.send({"said": "failed", "do": "call", "n": 7, "error": "something else"})
    waiting.join(0.2)
    assert waiting.is_alive()
    ends.process.send({"said": "begun"})
    waiting.join(5)
    assert not waiting.is_alive()


def test_a_process_that_ends_before_it_plays(ends: Ends) -> None:
    ends.process.close()
    with pytest.raises(ReplayError, match="the process that plays w0 has ended"):
        ends.peer.begin()


def test_a_call_and_its_answer(ends: Ends) -> None:
    n = ends.peer.send("w1", message_of(CALL, FORWARD), timeout_s=5)
    told = ends.told()
    assert (told["do"], told["to"], told["kind"], told["context"]) == ("call", "w1", "python", 5)
    ends.process.send(
        {"said": "answer", "n": n, "edge": (1 << 48) + 4, **NOTHING, "pickle": 4}, b"\x80\x02N."
    )
    event = ends.event()
    assert isinstance(event, ResponseArrived)
    assert (event.to, event.message.id, event.message.type) == ("w1", n, MessageType.FORWARD_AUTOGRAD_RESP)
    envelopes, kind, payload = peel(event.message.type, event.message.payload)
    assert (kind, payload) == (MessageType.PYTHON_RET, b"\x80\x02N.")
    assert isinstance(envelopes[0], RpcWithAutograd)
    assert envelopes[0].autograd_metadata == AutogradMetadata(5, (1 << 48) + 4)


def test_an_error_is_an_answer_and_a_broken_pipe_is_none(ends: Ends) -> None:
    first, second = (ends.peer.send("w1", message_of(CALL), timeout_s=5) for _ in range(2))
    ends.process.send({"said": "answer", "n": first, "error": "no such thing"})
    event = ends.event()
    assert isinstance(event, ResponseArrived)
    assert (event.message.type, event.message.payload) == (MessageType.EXCEPTION, b"no such thing")
    lost = "eof (this error originated at tensorpipe/transport/uv/connection_impl.cc:302)"
    ends.process.send({"said": "answer", "n": second, "error": lost})
    event = ends.event()
    assert isinstance(event, PipeLost)
    assert event.unanswered == (second,)


def test_no_answer_in_time(ends: Ends) -> None:
    n = ends.peer.send("w1", message_of(CALL), timeout_s=0.05)
    event = ends.event()
    assert isinstance(event, Unanswered)
    assert event.message_id == n


def test_a_question_is_answered_with_captured_bytes(ends: Ends) -> None:
    ends.process.send(
        {"said": "asked", "n": 4, "context": 5, "edge": (1 << 48) + 1, **NOTHING, "pickle": 4}, b"call"
    )
    event = ends.event()
    assert isinstance(event, RequestArrived)
    assert event.sender == "w1"
    assert ends.peer.answer(event, message_of(PythonResp(b"\x80\x02N.")))
    told = ends.told()
    assert (told["do"], told["n"], told["pickle"]) == ("answer", 4, 4)


def test_the_end_of_the_process_loses_what_is_open(ends: Ends) -> None:
    n = ends.peer.send("w1", message_of(CALL), timeout_s=5)
    ends.told()
    ends.process.close()
    event = ends.event()
    assert isinstance(event, PipeLost)
    assert event.unanswered == (n,)
    assert "has ended" in event.reason


@pytest.mark.parametrize(
    "what", [{}, {"said": "answer"}, {"said": "pass", "context": "x", "error": None}], ids=str
)
def test_nonsense(ends: Ends, what: dict[str, Any]) -> None:
    ends.process.send(what)
    with pytest.raises(ReplayError, match="sent an unreadable line"):
        ends.event()


def test_what_the_process_could_not_send(ends: Ends) -> None:
    n = ends.peer.send("w1", message_of(CALL), timeout_s=5)
    ends.process.send({"said": "failed", "do": "call", "n": n, "error": "RuntimeError: no"})
    event = ends.event()
    assert isinstance(event, NotSent)
    assert (event.to, event.message_id) == ("w1", n)
    assert "RuntimeError: no" in event.reason


def test_an_argument_that_can_not_be_given(ends: Ends) -> None:
    from rpcinspect.pickles.tree import Global, PickleCall

    bad = ScriptCall(args=(PickleCall(Global("a", "B"), ()),), schema=None, qualified_name="__torch__.f")
    with pytest.raises(ReplayError, match="an object"):
        ends.peer.send("w1", message_of(bad), timeout_s=5)


def test_a_context_of_another_worker_is_brought_first(ends: Ends) -> None:
    metadata = AutogradMetadata((1 << 48) + 3, 1)
    foreign = replace(FORWARD, autograd_metadata=metadata)
    for _ in range(2):
        ends.peer.send("w1", message_of(CALL, foreign), timeout_s=5)
    ends.peer.send("w1", message_of(CALL, FORWARD), timeout_s=5)
    assert ends.brought == [("w0", (1 << 48) + 3)]
