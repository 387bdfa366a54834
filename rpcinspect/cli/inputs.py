"""The captures that a command names, and passes over them: records into views, a session, a run.

In: the options of a command. Out: decodings, and what a pass has found. Standard input and pipes are copied
where more than one pass is needed.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from rpcinspect.capture.source import STDIN_NAME
from rpcinspect.cli.collector import imports_are_over
from rpcinspect.cli.interrupt import Interrupt, ends_reading
from rpcinspect.cli.options import STDIN, CaptureOptions, ShownOptions
from rpcinspect.cli.output import say, say_if_empty
from rpcinspect.cli.progress import reading_bar
from rpcinspect.errors import CaptureError
from rpcinspect.files.temporary import Temporary
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session

if TYPE_CHECKING:
    from rpcinspect.filter.matches import Shown
    from rpcinspect.filter.selection import Filter
    from rpcinspect.run.run import RunModel

Feed: TypeAlias = Callable[[Sequence[RpcRecord | None]], None]
"""Takes records as they become complete; None stands for one that is not shown."""

EACH_BYTES = 1500
"""Of a record in memory, beside its bytes."""
KEPT_BYTES = 1 << 26
"""Of records that are kept rather than read again."""


class Inputs:
    """What a command reads, as often as it needs to."""

    def __init__(
        self, options: CaptureOptions, stack: ExitStack, *, twice: bool = False, quiet: bool = False
    ) -> None:
        """`twice`: several decodings are needed; `quiet`: messages are shown meanwhile, so no bar is."""
        imports_are_over()
        self._options = options
        self._bar = None if quiet else stack.enter_context(reading_bar())
        names = [name for name in options.files if twice and (name == STDIN or _is_pipe(name))]
        self._copies = {name: _copied(name, stack) for name in names}

    def decoding(self, **how: Any) -> Decoding:
        """Opens everything, for a pass with these `Options` beside those of the command."""
        sources = [
            self._copies.get(one, one) if isinstance(one, str) else one for one in self._options.sources()
        ]
        options = self._options.decoding_options(progress=self._bar, **how)
        try:
            return Decoding(sources, options)
        except CaptureError as error:
            text = str(error)
            for name, path in self._copies.items():
                text = text.replace(f"{path}:", f"{STDIN_NAME if name == STDIN else name}:", 1)
            raise CaptureError(text) from error

    def ends_by_key(self, decoding: Decoding) -> AbstractContextManager[Interrupt]:
        """Returns a context in which Ctrl-C ends the reading of a growing input."""
        live = self._options.live and not self._copies
        return ends_reading(decoding) if live else nullcontext(Interrupt())

    def session(self, chosen: Filter | None) -> tuple[Session, Shown | None]:
        """Makes a first pass, for the session and for what the filter picks."""
        with self.decoding() as decoding:
            shown = take_chosen(decoding, None, chosen)
            return self.named(decoding.session), shown

    def session_then_records(
        self, chosen: Filter | None, stack: ExitStack
    ) -> tuple[Session, Shown | None, Decoding, Iterator[RpcRecord]]:
        """Makes a pass, for the session and for what the filter picks; then gives every record once more, and
        the decoding that they are of. That is the same where a run is small, else another pass."""
        decoding = stack.enter_context(self.decoding())
        selection = None
        if chosen is not None:
            from rpcinspect.filter.selection import Selection

            selection = Selection(chosen, decoding.bytes)
        kept: list[RpcRecord] = []
        size = 0
        for records in decoding.blocks():
            size += sum([record.tp.length + EACH_BYTES for record in records])
            if size <= KEPT_BYTES:
                kept += records
            if selection is not None:
                for record in records:
                    selection.feed(record)
        shown = None if selection is None else selection.finish(decoding.session)
        session = self.named(decoding.session)
        if size <= KEPT_BYTES:
            return session, shown, decoding, iter(kept)
        kept.clear()
        again = stack.enter_context(self.decoding())
        return session, shown, again, again.records()

    def named(self, session: Session) -> Session:
        """Returns the session with copied inputs called by their own names."""
        names = {path: name for name, path in self._copies.items()}
        captures = (replace(one, path=names.get(one.path, one.path)) for one in session.captures)
        return replace(session, captures=tuple(captures))


@contextmanager
def two_passes(asked: ShownOptions) -> Iterator[tuple[Session, Shown | None, Decoding]]:
    """Makes a first pass; gives the session, what the filter picks, and a decoding for a second pass. Says
    after that what could not be read."""
    chosen = asked.chosen()
    with ExitStack() as stack:
        inputs = Inputs(asked, stack, twice=True)
        session, shown = inputs.session(chosen)
        with inputs.decoding() as decoding:
            yield session, shown, decoding
            say_what_is_unread(decoding)
        say_if_empty(session)


def _is_pipe(name: str) -> bool:
    """Returns whether the input is a pipe, also one that shells make of `<(command)`."""
    try:
        return stat.S_ISFIFO(os.stat(name).st_mode)
    except (OSError, ValueError):
        return False  # who opens it reports it better


def _copied(name: str, stack: ExitStack) -> str:
    """Returns the path of a copy that is deleted already."""
    try:
        source = sys.stdin.buffer if name == STDIN else stack.enter_context(open(name, "rb"))  # noqa: SIM115
        copy = stack.enter_context(Temporary())
        shutil.copyfileobj(source, copy)
    except OSError as error:
        raise CaptureError(f"{name}: {error.strerror}") from error
    copy.seek(0)
    return f"/dev/fd/{copy.fileno()}"


def say_what_is_unread(decoding: Decoding) -> None:
    """Says what no view can show: captures of which there is more than was read, and packets of link types
    that the native reader lacks, which look like none at all."""
    for line in decoding.notices:
        say(line)
    unread = decoding.unread_link_types
    if unread:
        say(f"no packet could be read: {', '.join(unread)}; try --reader tshark")


def take_chosen(
    decoding: Decoding, feed: Feed | None, chosen: Filter | None, *, of_calls: bool = False
) -> Shown | None:
    """Feeds what the filter may pick to a view, if there is one; returns what it has picked. `of_calls`: a
    call matches by what its request and its answer say together."""
    selection = None
    if chosen is not None:
        from rpcinspect.filter.selection import CallSelection, Selection

        selection = (CallSelection if of_calls else Selection)(chosen, decoding.bytes)
    for records in decoding.blocks():
        shown = records if selection is None else [r if selection.feed(r) else None for r in records]
        if feed is not None:
            feed(shown)
    return None if selection is None else selection.finish(decoding.session)


def read_run(decoding: Decoding, chosen: Filter | None = None) -> tuple[RunModel, Shown | None]:
    """Reads everything into memory, for answers that need any two messages. Answers are of the whole run; the
    view chooses what is shown."""
    from rpcinspect.run.run import RunModel

    if chosen is None:
        return RunModel.of(decoding, list(decoding.records())), None
    from rpcinspect.filter.selection import Selection

    selection = Selection(chosen, decoding.bytes)
    records: list[RpcRecord] = []
    for record in decoding.records():
        records.append(record)
        selection.feed(record)
    return RunModel.of(decoding, records), selection.finish(decoding.session)
