"""`rpcinspect decode --calls`: one row for each request with its answer.

In: what the command line asked for, a filter or none. Out: a table, JSON Lines or a document. Messages are
read once; what they say waits in a temporary file until all are known.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from rpcinspect.commands.decode_request import Request
from rpcinspect.commands.output import open_console, open_output, say_if_empty
from rpcinspect.commands.passes import spool
from rpcinspect.fields.phrases import printable_json
from rpcinspect.filter.shown import Shown
from rpcinspect.pipeline import Decoding
from rpcinspect.views.jsonl.calls import Calls, call_lines
from rpcinspect.views.jsonl.document import call_pieces
from rpcinspect.views.text.calls import show_calls

if TYPE_CHECKING:
    from rpcinspect.filter.selection import Filter


def show(request: Request, decoding: Decoding, chosen: Filter | None, stack: ExitStack) -> None:
    """Reads everything and writes its calls."""
    view = Calls(spool(stack))
    shown = _take(decoding, view, chosen)
    session = decoding.session
    say_if_empty(session)
    calls = view.of(session, shown)
    if request.json:
        write = call_pieces if request.format == "json" else call_lines
        output = stack.enter_context(open_output(request.output))
        output.writelines(map(printable_json, write(calls, shown)))
    else:
        console = stack.enter_context(open_console(request.output))
        show_calls(calls, session, console, show_all=request.show_all, shown=shown)


def _take(decoding: Decoding, view: Calls, chosen: Filter | None) -> Shown | None:
    """Feeds every message: a call matches by what its request and its answer say together."""
    if chosen is None:
        for records in decoding.blocks():
            view.feed(records)
        return None
    from rpcinspect.filter.selection import CallSelection

    selection = CallSelection(chosen, decoding.bytes)
    for records in decoding.blocks():
        view.feed(records)
        for record in records:
            selection.feed(record)
    return selection.finish(decoding.session)
