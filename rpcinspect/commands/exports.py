"""`rpcinspect decode --format …` for files that tell of a whole run and that other programs open.

In: what the command line asked for. Out: the file, and the exit code where there is nothing to write.

To add a format: a member of `cli.decode.DecodeFormat`; its name in `decode_request.EXPORTS`, by which
`mistake` refuses what makes no sense with it; and a function in the table at the foot, which writes a run
that is in memory. One that needs no such run gets a line of its own in `commands.decode.run`, and no
entry here.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from rpcinspect.commands.decode_request import Request
from rpcinspect.commands.output import open_output, say
from rpcinspect.commands.progress import writing_bar
from rpcinspect.commands.whole_run import read_run
from rpcinspect.pipeline import Decoding
from rpcinspect.run.run import Run
from rpcinspect.views.empty import empty_line
from rpcinspect.views.phrases import printable_json

if TYPE_CHECKING:
    from rpcinspect.filter.selection import Filter
    from rpcinspect.views.shown import Shown


class Export(Protocol):
    """One way to write a run."""

    def __call__(self, run: Run, shown: Shown | None, request: Request, stack: ExitStack) -> int | None:
        """Writes what is shown of it; returns an exit code only where that failed."""


def export(request: Request, decoding: Decoding, chosen: Filter | None, stack: ExitStack) -> int | None:
    """Reads everything and writes it; the exit code only where nothing could be written."""
    run, shown = read_run(decoding, chosen)
    reason = empty_line(run.session)
    if reason is not None:
        say(reason)
    return WRITERS[request.format](run, shown, request, stack)


def _perfetto(run: Run, shown: Shown | None, request: Request, stack: ExitStack) -> int | None:
    from rpcinspect.views.perfetto.trace import perfetto_pieces

    _write(map(printable_json, perfetto_pieces(run, shown)), request, stack)
    return None


def _html(run: Run, shown: Shown | None, request: Request, stack: ExitStack) -> int | None:
    from rpcinspect.views.page.html_page import trace_html

    _write(trace_html(run, shown), request, stack)
    return None


def _write(pieces: Iterable[bytes], request: Request, stack: ExitStack) -> None:
    output = stack.enter_context(open_output(request.output))
    written = 0
    with writing_bar(request.output) as progress:
        for piece in pieces:
            written += output.write(piece)
            progress(written, None)


WRITERS: dict[str, Export] = {
    "html": _html,
    "perfetto": _perfetto,
}
"""By the name of the format."""
