"""What is known while messages come, and what at the end."""

from __future__ import annotations

from rpcinspect.filter.known import AtTheEnd, SoFar
from rpcinspect.pipeline import Decoding, Options
from tests.decoded import decode, stream
from tests.truth import CAPTURES

BOOM = CAPTURES / "bwd_boom.pcap.gz"


def test_at_the_end_everything_is_known() -> None:
    with Decoding([str(BOOM)]) as decoding:
        for _ in decoding.records():
            pass
        known, session = AtTheEnd(decoding.session), decoding.session
        for message in decode(BOOM).messages:
            row = int(session.order[message["index"]])
            assert known.source(row) + known.destination(row) == (message["src"], message["dst"])
            assert sorted(known.ends(row)) == sorted((message["src"], message["dst"]))
            assert known.index(row) == (message["index"],)
            assert known.control(row) == (message["control"],)


def test_while_messages_come_their_lines_say_the_same() -> None:
    lines = stream(BOOM).messages
    with Decoding([str(BOOM)], Options(by_completion=True)) as decoding:
        known = SoFar(decoding)
        for record, line in zip(decoding.records(), lines, strict=True):
            known.at(record)
            row = record.row
            assert known.ends(row) == (line["src"], line["dst"])
            assert known.index(row) == (line["index"],)
            assert known.control(row) == (line["control"],)
            assert known.answers(row) == (() if line["answers"] is None else (line["answers"],))
            assert known.findings(row) == known.answered(row) == ()
