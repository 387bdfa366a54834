"""The JSON document: valid, and it says what the lines say, no more and no less."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.filter.matches import Shown
from rpcinspect.filter.selection import Selection
from rpcinspect.pipeline import Decoding
from rpcinspect.session.model import Session
from rpcinspect.views.jsonl.document import (
    SINGLE,
    answer_pieces,
    list_name,
    message_pieces,
    session_pieces,
)
from rpcinspect.views.jsonl.lines import JsonLines
from rpcinspect.views.questions.all import QUESTIONS
from tests.filter.from_json import read_filter
from tests.views.opened import CAPTURES

Json = dict[str, Any]

BUNDLED = sorted(path for path in CAPTURES.glob("*.pcap*") if path.is_file())


def flat(document: Json) -> list[Json]:
    """The objects of a document as lines have them, messages where the contract has them."""
    assert document["schema"] == 1
    lines: list[Json] = []
    for key, value in document.items():
        if key != "schema":
            lines += value if isinstance(value, list) else [value]
    return lines


def both(path: Path, expression: str | None = None) -> tuple[list[Json], Json]:
    """A session as lines, and as a document."""
    with tempfile.TemporaryFile() as spool, Decoding((str(path),)) as decoding:
        view = JsonLines(spool, decoding.bytes)
        selection = None if expression is None else Selection(read_filter(expression), decoding.bytes)
        for record in decoding.records():
            if selection is None or selection.feed(record):
                view.feed([record])
            else:
                view.feed([None])
        session: Session = decoding.session
        shown: Shown | None = None if selection is None else selection.finish(session)
        lines = b"".join(view.finish(session, shown)).splitlines()
        document = b"".join(session_pieces(view, session, shown))
    return [json.loads(line) for line in lines], json.loads(document)


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.name)
def test_a_document_says_what_the_lines_say(path: Path) -> None:
    lines, document = both(path)
    assert flat(document) == lines
    assert list(document) == [
        "schema",
        *("captures", "workers", "pipes", "messages", "contexts", "rrefs", "findings"),
        "summary",
    ]
    assert [message["index"] for message in document["messages"]] == list(range(len(document["messages"])))


def test_a_filter_chooses_messages() -> None:
    lines, document = both(CAPTURES / "basic_chain.pcap", "type == BACKWARD_AUTOGRAD_REQ")
    assert flat(document) == lines
    assert len(document["messages"]) == document["summary"]["matched"] > 0
    _, nothing = both(CAPTURES / "basic_chain.pcap", "index < 0")
    assert nothing["messages"] == []


def test_an_object_has_a_line_of_its_own() -> None:
    document = b"".join(message_pieces([b'{"kind":"message"}\n', b'{"kind":"message"}\n']))
    assert document.count(b'\n{"kind":"message"}') == 2
    assert json.loads(document) == {"schema": 1, "messages": [{"kind": "message"}] * 2}
    assert json.loads(b"".join(message_pieces([]))) == {"schema": 1, "messages": []}


def test_answers_have_every_list_also_without_objects() -> None:
    document = json.loads(b"".join(answer_pieces(("context", "segment"), [])))
    assert document == {"schema": 1, "contexts": [], "segments": []}


def test_what_there_is_one_of_stands_by_itself() -> None:
    lines = [{"kind": "departure", "worker": 'a"b\x1b'}, {"kind": "closings", "first": None}]
    document = json.loads(b"".join(answer_pieces(("departure",), lines)))
    assert document == {"schema": 1, "departures": lines[:1], "closings": lines[1]}


def test_every_kind_of_a_question_has_a_list_of_its_own() -> None:
    kinds = {kind for question in QUESTIONS.values() for kind in question.kinds}
    assert not SINGLE & kinds
    assert len({list_name(kind) for kind in kinds} | SINGLE) == len(kinds) + len(SINGLE)
