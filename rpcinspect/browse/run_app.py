"""The panes of `rpcinspect browse` and what they show: a view of the run, one message, a filter.

In: a capture that is being read. Out: an app without moves and keys, which `app` adds. What the panes show
comes from the modules beside this one, which ask the run; here is which is shown when.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from rich.text import Text
from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Static

from rpcinspect.browse.export_flow import ExportFlow
from rpcinspect.browse.filter_line import FilterLine
from rpcinspect.browse.growing_run import LIVE, GrowingRun
from rpcinspect.browse.key_line import KeyLine
from rpcinspect.browse.lines import LineSource, LinesView, NoLines
from rpcinspect.browse.list_app import ListApp
from rpcinspect.browse.listing import Listing, RowList
from rpcinspect.browse.mark_list import NoteLine
from rpcinspect.browse.marks import Marks
from rpcinspect.browse.message_pane import MessagePane
from rpcinspect.browse.output_lines import OutputLines, OutputScreen
from rpcinspect.browse.parts import PartLines
from rpcinspect.browse.timeline import Timeline
from rpcinspect.browse.view_bar import ViewBar
from rpcinspect.browse.views import VIEWS, BrowseView, answer_lines
from rpcinspect.fields.phrases import amount, captures_title, counted, printable
from rpcinspect.unexpected import fault

if TYPE_CHECKING:
    from rpcinspect.browse.export_scopes import ExportScope
    from rpcinspect.browse.filter_run import FilterRun
    from rpcinspect.filter.selection import Filter

TICK_S = 0.1
CALL_BYTES = 2000
"""Memory that a message takes at most where all calls are objects."""
PAUSE_S = 0.05
LAYOUTS = ("above", "beside", "alone")
"""Of the list and the message: one above the other, beside each other, the list alone."""


class RunApp(ListApp):
    """A run in panes."""

    TITLE = "rpcinspect"
    CSS_PATH: ClassVar[str] = "app.tcss"

    output: OutputLines | None = None
    """Of the command that is being recorded."""

    def __init__(self, reading: GrowingRun, marks: Marks) -> None:
        super().__init__()
        self.reading = reading
        self.marks = marks
        self.export = ExportFlow(self, reading, marks, self._scopes)
        self.title_line = Static(id="title", markup=False)
        self.view_bar = ViewBar({view.name: view.short for view in VIEWS})
        self.panes = Container(id="panes", classes=LAYOUTS[0])
        self.message = MessagePane(reading)
        """The panes of one message."""
        self.note_line = NoteLine()
        self.filter_line = FilterLine(reading)
        self.view = VIEWS[0]
        self.opened: int | None = None
        self.listed = Listing()
        self.row: int | None = None
        """The row of the message that is shown."""
        self._rows: RowList | None = None
        """Of a view that lists messages."""
        self._shape = 0
        self._said = False
        """What is to be said at the end of the reading was said."""
        self._titled = ""
        """What the title says."""
        self._seen = 0
        """Messages of which the lines have taken notice."""
        self._waits = True
        """What is shown is not all yet."""
        self.agreed: set[str] = set()
        """Views that may take much memory."""

    # -- what is on the screen

    def compose(self) -> ComposeResult:
        """Makes the title, the names of the views, the list and the panes of one message, and below them its
        note, the line for a filter and the keys."""
        yield self.title_line
        yield self.view_bar
        with self.panes:
            yield self.lines_view
            yield self.message
        yield self.note_line
        yield self.filter_line
        yield KeyLine()

    def on_mount(self) -> None:
        """Begins to read the captures, and looks again and again at what has come."""
        self.lines_view.can_follow, self.lines_view.following = True, self.reading.follows
        self.show_view(self.view)
        self.lines_view.focus()
        self.reading.start()
        self.set_interval(TICK_S, self._tick)

    async def on_event(self, event: events.Event) -> None:
        """Has the reading rest for a moment at keys, clicks and the wheel: they are answered at once."""
        if isinstance(event, events.InputEvent) and not isinstance(event, events.MouseMove):
            self.reading.give_way()
        await super().on_event(event)

    def _tick(self) -> None:
        """Takes notice of what has come."""
        self._title()
        if self.marks.find(self.reading) or self.marks.news:
            self._marked()
        matching = self.listed.matching
        if matching is not None and matching.why:
            self.say(f"the filter was given up: {matching.why}", "error")
            self._use(None)
        if self.reading.state in ("done", "failed") and not self._said:
            self._said = True
            if self.reading.why:
                self.say(self.reading.why, "error", 60)
            for line in self.reading.notices:
                self.say(line, timeout=15)
        rows = self._rows
        finished = self.reading.run is not None and (matching is None or matching.finished)
        if finished and self._waits:
            self._waits = False
            if rows is None or not rows.final:
                if rows is not None and self.lines_view.cursor:
                    self._select(self.lines_view.cursor)  # a key may have moved it only now
                elif rows is not None:
                    self.row = None  # who has not moved yet begins with the first in the order of time
                self.show_view(self.view, self.opened, row=self.row)
        elif rows is not None and not rows.final and (rows.update() or self._seen != self.reading.count):
            self._waits = True
            self._seen = self.reading.count
            self.lines_view.grown()  # lines that were there may be others now: answers came, names
            if self.row is None:
                self._select(self.lines_view.cursor)

    @property
    def settled(self) -> bool:
        """Returns whether the list shows all there is to show: capture and filter are at their end."""
        return self.reading.state != "reading" and not self._waits

    def _title(self) -> None:
        reading = self.reading
        told = [captures_title(reading.paths), counted(reading.count, "message")]
        told.append(self._state_words())
        matching = self.listed.matching
        if matching is not None:
            told.append(matching.words)
        elif not self.listed.every and self.view.parts is None:
            told.append("housekeeping hidden (a shows it)")
        told.append(self.export.follow())
        text = "  ·  ".join(filter(None, told))
        if text != self._titled:  # nothing is drawn while nothing happens
            self._titled = text
            self.title_line.update(Text(text, no_wrap=True, overflow="ellipsis"))

    def _state_words(self) -> str:
        words = self.reading.state_words
        if words == LIVE and self._rows is not None:
            return words if self.lines_view.following else f"{words}, G follows it"
        return words

    # -- views

    def show_view(
        self,
        view: BrowseView,
        opened: int | None = None,
        *,
        cursor: int | None = None,
        row: int | None = None,
    ) -> None:
        """Shows a view at a line, or where the message of a row is; until it is there, words for why.
        `opened`: the row of its table of which more is shown."""
        self.view, self.opened = view, opened
        self.view_bar.chosen = view.name
        reading, matching = self.reading, self.listed.matching
        if reading.run is not None:
            self.lines_view.can_follow = self.lines_view.following = False
        if matching is not None:
            matching = matching.like(of_calls=view.name == "calls")
            self.listed = replace(self.listed, matching=matching)
            self._waits = self._waits or not matching.finished
        self._rows = None
        if reading.run is None and view.whole:
            self._waits = True
            self.lines_view.show(NoLines(f"this view is there {reading.when_known}"))
        elif view.parts is None:
            self._list(view, cursor, row)
        elif matching is not None and not matching.finished:
            self.lines_view.show(NoLines("this view is there once the filter has looked at all messages"))
        else:
            self._ask(view, opened, cursor)

    def _list(self, view: BrowseView, cursor: int | None, row: int | None) -> None:
        """Shows a view that lists messages."""
        listed = replace(self.listed, what="calls" if view.name == "calls" else "messages")
        kind = Timeline if view.name == "timeline" else RowList
        self._rows = rows = kind(self.reading, listed, self.marks)
        at = None if row is None else rows.place_of(row)
        if not len(rows) and rows.final:
            self.lines_view.show(NoLines(self._why_empty()))
        else:
            self.lines_view.show(rows, (cursor or 0) if at is None else at)

    def _ask(self, view: BrowseView, opened: int | None, cursor: int | None) -> None:
        """Has a view worked out; where that takes much memory, only once enter was pressed."""
        reading = self.reading
        if view.exchanges and not reading.in_memory and view.name not in self.agreed:
            needed = amount(reading.count * CALL_BYTES)
            self.lines_view.show(
                NoLines(f"this view needs all calls in memory, about {needed}: enter works it out", view.name)
            )
            return
        self.lines_view.show(NoLines("working it out …"))
        self._work_out(view, opened, cursor, self.listed.matching)

    def _why_empty(self) -> str:
        matching = self.listed.matching
        if matching is not None and matching.shown is not None:
            if self.view.name != "messages" and matching.picked:
                return "no call that matches but housekeeping, which a shows"
            return "; ".join(("nothing matches", *matching.shown.hints))
        if self.reading.count:
            return "no calls but housekeeping, which a shows"
        return "no RPC messages in this capture"

    @work(thread=True, exclusive=True, group="answer", exit_on_error=False)
    def _work_out(
        self, view: BrowseView, opened: int | None, cursor: int | None, matching: FilterRun | None
    ) -> None:
        """Works an answer out, beside the keys."""
        run, shown = self.reading.run, None if matching is None else matching.shown
        assert run is not None
        if shown is not None:
            run = run.narrowed(shown.rows, shown.touched)
        lines: LineSource
        try:
            lines = answer_lines(view, run, shown, opened)
        except Exception as error:
            lines = NoLines(printable(fault(error)))
        self.call_from_thread(self._answered, (view, opened, matching), lines, cursor)

    def _answered(
        self, asked: tuple[BrowseView, int | None, FilterRun | None], lines: LineSource, cursor: int | None
    ) -> None:
        if asked == (self.view, self.opened, self.listed.matching):  # which it may be no longer
            self.lines_view.show(lines, cursor or 0)

    def action_every(self) -> None:
        """Shows housekeeping, too, or hides it."""
        self.listed = replace(self.listed, every=not self.listed.every)
        self.show_view(self.view, self.opened, row=self.row)

    # -- the message that is shown

    @on(LinesView.Moved, "#list")
    def _moved(self, event: LinesView.Moved) -> None:
        if event.is_so:
            self._select(event.at)

    def _select(self, at: int) -> None:
        """Shows the message of a line, or the first that it names; an answer has its request's line."""
        rows, lines = self._rows, self.lines_view.lines
        row: int | None = None
        if rows is not None and at < len(rows):
            row = rows.row(at)
            if self.row is not None and self.row in (row, self.reading.columns.partner[row]):
                row = self.row
        elif isinstance(lines, PartLines) and (self.view.opens is None or self.opened is not None):
            targets = lines.targets(at)
            row = self.reading.row_of(targets[0].message) if targets else None
        if row is not None:
            self.row = row
            self._show_soon()

    @work(exclusive=True)
    async def _show_soon(self) -> None:
        """Shows the message, if the cursor rests on its line: a key that is held down need not wait."""
        await asyncio.sleep(PAUSE_S)
        if self.row is not None and self.is_running:  # not while the panes are taken down
            self.show_row(self.row)

    def show_row(self, row: int) -> None:
        """Shows the message of a row: its structure, its bytes and the note on it."""
        self.row = row
        self.message.show(row)
        self.note_line.show(row, self.marks, self.reading)

    # -- filters

    def action_filter(self) -> None:
        """Opens the line for a filter."""
        matching = self.listed.matching
        self.filter_line.open("" if matching is None else matching.filter.text)

    @on(FilterLine.GivenUp)
    def _filter_given_up(self) -> None:
        self.lines_view.focus()

    @on(FilterLine.Chosen)
    def _filter_chosen(self, event: FilterLine.Chosen) -> None:
        self._use(event.chosen)
        self.lines_view.focus()

    def _use(self, chosen: Filter | None) -> None:
        """Shows what a filter picks, or everything."""
        if self.listed.matching is not None:
            self.listed.matching.stop()
        matching = None
        if chosen is not None:
            from rpcinspect.browse.filter_run import FilterRun

            matching = FilterRun(self.reading, chosen, of_calls=self.view.name == "calls")
            matching.start()
        self.listed = replace(self.listed, matching=matching)
        self._waits = True
        self.show_view(self.view, row=self.row)

    # -- marks, export, and how it looks

    def _marked(self) -> None:
        """Shows marks as they are now."""
        for told in self.marks.news:
            self.say(told, "warning", 10)
        self.marks.news.clear()
        self.note_line.show(self.row, self.marks, self.reading)
        self.lines_view.refresh()

    def action_export(self) -> None:
        """Writes messages to a file, or shows the command that does so."""
        self.export.ask()

    def _scopes(self) -> list[ExportScope]:
        from rpcinspect.browse.export_scopes import scopes_of

        return scopes_of(self.reading, self.row, self.marks, self.listed.matching)

    def on_unmount(self) -> None:
        """Stops what is still being written, of which nothing is left then."""
        self.export.stop()

    def action_layout(self) -> None:
        """Puts the panes beside each other, above each other, or shows the list alone."""
        self._shape = (self._shape + 1) % len(LAYOUTS)
        self.panes.set_classes(LAYOUTS[self._shape])

    def action_output(self) -> None:
        """Shows what the command that is being recorded has written."""
        if self.output is None:
            self.say("no command runs here: record --browse shows what one writes")
        else:
            self.push_screen(OutputScreen(self.output))

    def action_interrupt(self) -> None:
        """Ends the reading of what is still being captured; where nothing is, the program."""
        done = self.reading.end()
        if done:
            self.say(done)
        else:
            self.exit(130)
