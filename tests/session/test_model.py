"""Columns of messages, and the order of time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rpcinspect.rpc.command import ScriptCall
from rpcinspect.session.model import MessageColumns, Session, WorkerLogs
from tests.session.records import Talk, tp_message

CALL = ScriptCall(args=(), schema=None, qualified_name="__torch__.f")


def session(*times: int) -> Session:
    talk = Talk()
    for number, time_ns in enumerate(times):
        talk.say(CALL, id=number, from_client=number % 2 == 0, time_ns=time_ns)
    return talk.finish()


def test_the_order_is_that_of_time() -> None:
    one = session(30, 10, 20)
    assert one.order.tolist() == [1, 2, 0]
    assert one.index.tolist() == [2, 0, 1]
    assert one.indexes([0, 1]) == (0, 2)


@pytest.mark.parametrize("field", ["capture", "packet", "offset"])
def test_ties_are_broken_by_the_place_in_the_capture(field: str) -> None:
    talk = Talk()
    payloads = [b"\x02\x01\0\0", bytes(8), b"", b""]
    for value in (2, 1, 3):
        tp = tp_message(talk.pipes[0], payloads)
        tp.packet = 1
        setattr(tp, field, value)
        talk.feed(tp)
    assert talk.finish().order.tolist() == [1, 0, 2]


def test_ends_of_messages() -> None:
    one = session(1, 2)
    assert (one.source(0), one.destination(0)) == ("10.0.0.1:1000", "10.0.0.2:5000")
    assert (one.source(1), one.destination(1)) == ("10.0.0.2:5000", "10.0.0.1:1000")


def test_no_messages() -> None:
    assert len(MessageColumns()) == 0
    assert MessageColumns().order().tolist() == []
    assert session().indexes([]) == ()


def test_a_session_without_logs() -> None:
    session = Talk().finish()
    assert session.worker_logs is None
    session = replace(session, worker_logs=WorkerLogs(files=(), events=()))
    assert session.worker_logs.events == ()
