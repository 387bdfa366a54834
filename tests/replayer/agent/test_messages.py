"""Messages of a played worker behind which torch stands, taken apart and put together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.agent.messages import (
    ExpectedQuestions,
    OwnRRefs,
    autograd_envelope,
    is_async_call,
    made,
    read_message,
    retained,
)
from rpcinspect.replayer.playing.translate import LiveRecords
from rpcinspect.rpc.command import PropagateGradientsReq, PropagateGradientsResp, PythonCall, PythonResp
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.message import MessageType, RpcMessage
from tests.replayer.captured import captured
from tests.replayer.talks import Workers, udf
from tests.truth import capture_of


def test_what_is_put_together_is_what_torch_wrote() -> None:
    """Every Python call and answer of a job, from its parts."""
    count = 0
    with captured(str(capture_of("basic_chain"))) as messages:
        for one in messages:
            command, context, edge = read_message(one.message)
            if not isinstance(command, (PythonCall, PythonResp)) or context is None or edge is None:
                continue
            answer = isinstance(command, PythonResp)
            envelope = autograd_envelope(context, edge, int(answer), command, answer=answer)
            message = made(command, [envelope], one.message.tensor_table)
            assert (message.type, message.payload) == (one.message.type, one.message.payload)
            count += 1
    assert count == 2


def test_without_an_envelope() -> None:
    message = made(PythonResp(b"\x80\x02N."))
    assert message.type == MessageType.PYTHON_RET
    assert read_message(message) == (PythonResp(b"\x80\x02N."), None, None)


def test_what_can_not_be_read() -> None:
    with pytest.raises(ReplayError, match="FORWARD_AUTOGRAD_REQ"):
        read_message(RpcMessage(int(MessageType.FORWARD_AUTOGRAD_REQ), 0, b"x", b""))


def test_who_asks() -> None:
    talk = Workers(3)
    talk.call(1, 0, 0, 5, "app.f")
    talk.call(2, 0, 10, 15, "app.g")
    talk.call(2, 0, 20, 25, "app.f")
    expected = ExpectedQuestions(talk.calls())

    def taken(name: str, sender: str | None = None) -> int | None:
        found, _ = expected.take(udf(name), sender)
        return None if found is None else found.begin_ns

    assert taken("app.g") == 10
    assert taken("app.f", "w2") == 20
    assert taken("app.else") == 0
    assert taken("app.f") is None


def test_which_of_three_workers_asks_is_doubtful_where_they_ask_the_same() -> None:
    talk = Workers(4)
    for caller in (1, 2, 3):
        talk.call(caller, 0, 10 * caller, 10 * caller + 5, "app.f")
    talk.call(2, 0, 50, 55, "app.g")
    expected = ExpectedQuestions(talk.calls())
    assert expected.take(udf("app.f"), "w2")[1] is False
    assert expected.take(udf("app.g"), None)[1] is False
    assert [expected.take(udf("app.f"), None)[1] for _ in range(3)] == [True, False, False]


def test_marks_of_a_question() -> None:
    talk = Workers(2)
    talk.call(1, 0, 0, 5, PythonCall(udf("app.f"), True))
    talk.call(1, 0, 10, 15, "app.f")
    assert [is_async_call(call) for call in talk.calls()] == [True, False]


def test_what_is_retained() -> None:
    talk = Workers(2)
    edge = AutogradMetadata(0, 7)
    for begin, retain in ((0, True), (10, False)):
        talk.call(1, 0, begin, begin + 5, PropagateGradientsReq(edge, (), retain), PropagateGradientsResp())
    found = [retained(talk.calls(), edge, number) for number in range(3)]
    assert found == [True, False, False]
    assert not retained(talk.calls(), AutogradMetadata(0, 8), 0)


def messages_with_rrefs(kind: type) -> list[object]:
    with captured(str(capture_of("ps_race_lock"))) as messages:
        return [m for m in messages if m.record.facts.forks and isinstance(m.record.rpc.command, kind)]


def test_an_argument_gets_the_ids_that_torch_gave() -> None:
    message = messages_with_rrefs(PythonCall)[0]
    (fork,) = message.record.facts.forks  # type: ignore[attr-defined]
    rrefs = OwnRRefs()
    rrefs.made(fork.rref_id, (1, 70))
    asked: list[Sequence[int]] = []

    def new_fork(rref: Sequence[int]) -> tuple[int, int]:
        asked.append(rref)
        return 1, 99

    changed = rrefs.with_own_ids(message.message, message.tensors, new_fork)  # type: ignore[attr-defined]
    (now,) = LiveRecords().decode(changed, message.tensors).record.facts.forks  # type: ignore[attr-defined]
    assert (now.rref_id, now.fork_id, now.owner_id, now.parent) == (
        (1, 70),
        (1, 99),
        fork.owner_id,
        fork.parent,
    )
    assert asked == [(1, 70)]


def test_one_that_was_not_made_can_not_be_handed_on() -> None:
    message = messages_with_rrefs(PythonCall)[0]
    with pytest.raises(ReplayError, match="was not made here"):
        OwnRRefs().with_own_ids(message.message, message.tensors, lambda rref: (0, 0))  # type: ignore[attr-defined]


def test_what_an_answer_brings_can_be_used() -> None:
    message = messages_with_rrefs(PythonResp)[0]
    (fork,) = message.record.facts.forks  # type: ignore[attr-defined]
    rrefs = OwnRRefs()
    brought = rrefs.brought(message.record.rpc.command.serialized_py_obj)  # type: ignore[attr-defined]
    assert brought == [[fork.owner_id, *fork.rref_id, *fork.fork_id, fork.parent, fork.type_str]]
    assert rrefs.real(fork.rref_id) == fork.rref_id
    assert rrefs.brought(b"N.") == []
