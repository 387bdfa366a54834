"""What is known while messages come, and what at the end."""

from __future__ import annotations

from msgspec import UNSET

from rpcinspect.fields.session import AtTheEnd, SoFar
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.session.model import NONE
from tests.decoded import decode, stream
from tests.truth import CAPTURES

BOOM = CAPTURES / "bwd_boom.pcap.gz"


def test_at_the_end_everything_is_known() -> None:
    with Decoding([str(BOOM)]) as decoding:
        for _ in decoding.records():
            pass
        session = decoding.session
        known = AtTheEnd(session)
        for message in decode(BOOM).messages:
            row = int(session.order[message["index"]])
            known.at([row])
            for name in ("src", "dst", "index", "control", "call", "latency_ns", "answered_by"):
                assert known.column(name) == [message[name]]
            assert sorted(known.worker[0]) == sorted((message["src"], message["dst"]))


def test_only_a_request_with_an_answer_has_a_latency() -> None:
    with Decoding([str(BOOM)]) as decoding:
        for _ in decoding.records():
            pass
        session = decoding.session
    columns = session.messages
    took = AtTheEnd(session).at(range(len(columns))).column("latency_ns")
    partners = zip(columns.partner, columns.from_client, strict=True)
    answered = [bool(forth) and partner != NONE for partner, forth in partners]
    assert [latency is not None for latency in took] == answered
    assert {True, False} == set(answered)


def test_while_messages_come_their_lines_say_the_same() -> None:
    lines = stream(BOOM).messages
    with Decoding([str(BOOM)], Options(by_completion=True)) as decoding:
        known = SoFar(decoding)
        for record, line in zip(decoding.records(), lines, strict=True):
            known.at(record)
            for name in ("src", "dst", "index", "control", "answers"):
                assert known.column(name) == [line[name]]
            assert known.column("finding") == known.column("answered") == [UNSET]
