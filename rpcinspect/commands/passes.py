"""Passes over the captures of a request: records into views, and the session with what a filter picks of it.

In: what the command line asked for. Out: what a pass has found. Standard input and pipes are copied where
more than one pass is needed.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO, Protocol

from msgspec.structs import replace

from rpcinspect.commands.decode_request import STDIN, Request
from rpcinspect.errors import CaptureError
from rpcinspect.files.temporary import Temporary
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session

if TYPE_CHECKING:
    from rpcinspect.filter.selection import Filter
    from rpcinspect.filter.shown import Shown
    from rpcinspect.run.run import Run


class View(Protocol):
    """What takes records as they become complete."""

    def feed(self, records: Sequence[RpcRecord | None]) -> None:
        """Takes the next ones; None stands for one that is not to be shown."""


def readable_twice(request: Request, stack: ExitStack) -> Request:
    """The request with standard input and pipes copied to deleted temporary files that open again."""
    copies = {name: _copied(name, stack) for name in request.files if name == STDIN or _is_pipe(name)}
    if not copies:
        return request
    files = tuple(copies.get(name, name) for name in request.files)
    return replace(request, files=files, copies=tuple((path, name) for name, path in copies.items()))


def _is_pipe(name: str) -> bool:
    """Also what shells make of `<(command)`."""
    try:
        return stat.S_ISFIFO(os.stat(name).st_mode)
    except (OSError, ValueError):
        return False  # who opens it reports it better


def _copied(name: str, stack: ExitStack) -> str:
    """The path of a copy."""
    try:
        source = sys.stdin.buffer if name == STDIN else stack.enter_context(open(name, "rb"))  # noqa: SIM115
        copy = stack.enter_context(Temporary())
        shutil.copyfileobj(source, copy)
    except OSError as error:
        raise CaptureError(f"{name}: {error.strerror}") from error
    copy.seek(0)
    return f"/dev/fd/{copy.fileno()}"


def spool(stack: ExitStack) -> BinaryIO:
    """A temporary file without a name: nothing is left of it, however we end."""
    return stack.enter_context(Temporary())


def take(decoding: Decoding, views: list[View], wanted: Callable[[RpcRecord], bool] | None = None) -> None:
    """Feeds every record that is wanted to views that keep what they make in temporary files."""
    for records in decoding.blocks():
        shown = records if wanted is None else [r if wanted(r) else None for r in records]
        for view in views:
            view.feed(shown)


def take_chosen(decoding: Decoding, views: list[View], chosen: Filter | None) -> Shown | None:
    """Feeds what the filter may pick; gives what it has picked."""
    if chosen is None:
        take(decoding, views)
        return None
    from rpcinspect.filter.selection import Selection

    selection = Selection(chosen, decoding.bytes)
    take(decoding, views, selection.feed)
    return selection.finish(decoding.session)


def take_at_once(
    decoding: Decoding, show: Callable[[RpcRecord], None], chosen: Filter | None
) -> Shown | None:
    """The same for views that print as messages come."""
    if chosen is None:
        for record in decoding.records():
            show(record)
        return None
    from rpcinspect.filter.selection import StreamSelection

    selection = StreamSelection(chosen, decoding)
    for record in decoding.records():
        if selection.feed(record):
            show(record)
    return selection.finish(decoding.session)


def read(request: Request, chosen: Filter | None) -> tuple[Session, Shown | None]:
    """A first pass, for the session and for what the filter picks."""
    with request.decoding() as decoding:
        shown = take_chosen(decoding, [], chosen)
        return named(decoding.session, request), shown


def named(session: Session, request: Request) -> Session:
    """The session with copied inputs called by their own names."""
    captures = (replace(capture, path=request.named(capture.path)) for capture in session.captures)
    return replace(session, captures=tuple(captures))


def read_run(decoding: Decoding, chosen: Filter | None = None) -> tuple[Run, Shown | None]:
    """Reads everything into memory, for whatever tells of more than single messages: an answer may need any
    two of them. Answers are of the whole run; which of them are shown is up to the view."""
    from rpcinspect.run.run import Run

    if chosen is None:
        return Run.of(decoding, list(decoding.records())), None
    from rpcinspect.filter.selection import Selection

    selection = Selection(chosen, decoding.bytes)
    records: list[RpcRecord] = []
    for record in decoding.records():
        records.append(record)
        selection.feed(record)
    return Run.of(decoding, records), selection.finish(decoding.session)
