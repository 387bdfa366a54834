"""What the capture says where torch's agent says nothing."""

from __future__ import annotations

from rpcinspect.replay.agent.expected import ExpectedQuestions, is_async_call, retained
from rpcinspect.rpc.command import PropagateGradientsReq, PropagateGradientsResp, PythonCall
from rpcinspect.rpc.envelope import AutogradMetadata
from tests.replay.talks import Workers, udf


def test_who_asks() -> None:
    talk = Workers(3)
    talk.call(1, 0, 0, 5, "app.f")
    talk.call(2, 0, 10, 15, "app.g")
    talk.call(2, 0, 20, 25, "app.f")
    expected = ExpectedQuestions(talk.calls())

    def taken(name: str, sender: str | None = None) -> int | None:
        found = expected.take(udf(name), sender)
        return None if found is None else found.begin_ns

    assert taken("app.g") == 10
    assert taken("app.f", "w2") == 20
    assert taken("app.else") == 0
    assert taken("app.f") is None


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
