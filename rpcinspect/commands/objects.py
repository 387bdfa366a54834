"""Objects for scripts: `--format jsonl`, one on each line, and `--format json`, all in one document.

In: what is to be told, and where to. Out: bytes in which nothing moves a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO

from rpcinspect.commands.decode_request import Request
from rpcinspect.session.model import Session
from rpcinspect.views.contract.document import answer_pieces, message_pieces, session_pieces
from rpcinspect.views.contract.jsonl import JsonLines, lines
from rpcinspect.views.phrases import printable_json
from rpcinspect.views.shown import Shown

Json = dict[str, Any]


def write_session(
    view: JsonLines, session: Session, shown: Shown | None, request: Request, output: BinaryIO
) -> None:
    """A session with the messages that the view was fed."""
    document = request.format == "json"
    _write(session_pieces(view, session, shown) if document else view.finish(session, shown), output)


def write_messages(messages: Iterable[bytes], request: Request, output: BinaryIO) -> None:
    """Lines of messages alone."""
    _write(message_pieces(messages) if request.format == "json" else messages, output)


def write_answer(objects: Iterable[Json], request: Request, output: BinaryIO) -> None:
    """The answer to the question that was asked."""
    (question,) = request.questions
    document = request.format == "json"
    _write(answer_pieces(question, objects) if document else (lines(iter(objects)),), output)


def _write(pieces: Iterable[bytes], output: BinaryIO) -> None:
    for piece in pieces:
        output.write(printable_json(piece))
