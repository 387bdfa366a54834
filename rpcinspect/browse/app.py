"""The program of `rpcinspect browse`: panes, views, moves, filters, and the keys for them.

In: a capture that is being read. Out: a Textual app. What the panes show comes from the modules beside this
one, which ask the run; here is which is shown when.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.timer import Timer
from textual.widgets import Footer, Static

from rpcinspect.browse import moves
from rpcinspect.browse.export_flow import ExportFlow
from rpcinspect.browse.filter_line import FilterLine
from rpcinspect.browse.goto import PLACES, place_in_words
from rpcinspect.browse.growing_run import LIVE, GrowingRun
from rpcinspect.browse.lines import LineSource, LinesView, ListLine, NoLines
from rpcinspect.browse.list_app import ListApp
from rpcinspect.browse.listing import Listing, RowList
from rpcinspect.browse.mark_list import NO_MARKS, mark_chooser, marked_numbers
from rpcinspect.browse.marks import Marks
from rpcinspect.browse.message_pane import MessagePane
from rpcinspect.browse.note_line import NoteLine
from rpcinspect.browse.output_lines import OutputLines, OutputScreen
from rpcinspect.browse.parts import Destination, PartLines
from rpcinspect.browse.screens import Chooser, HelpScreen, TextPrompt
from rpcinspect.browse.timeline import Timeline
from rpcinspect.browse.values import values_of
from rpcinspect.browse.view_bar import ViewBar
from rpcinspect.browse.views import BY_NAME, VIEWS, BrowseView, answer_lines, opened_lines
from rpcinspect.fields.phrases import captures_title, counted, printable
from rpcinspect.unexpected import fault

if TYPE_CHECKING:
    from rpcinspect.browse.export_scopes import ExportScope
    from rpcinspect.filter.selection import Filter

TICK_S = 0.1
PAUSE_S = 0.05
"""So long the cursor rests on a line before its message is shown: a key that is held down need not wait."""
MAX_HISTORY = 1000
LAYOUTS = ("above", "beside", "alone")
"""Of the list and the message: one above the other, beside each other, the list alone."""
RowLines: TypeAlias = RowList | Timeline


class ViewPlace(Struct, frozen=True):
    """Where one was."""

    view: str
    opened: int | None
    """The row of the view that was opened."""
    cursor: int
    row: int | None
    """The row of the message that was shown."""


class Browser(ListApp):
    """A capture in the terminal."""

    TITLE = "rpcinspect"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "pop", "back"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("f", "find", "find"),
        Binding("n", "again(1)", "next found", show=False),
        Binding("N", "again(-1)", "previous found", show=False),
        Binding("number_sign", "go", "go to", key_display="#"),
        Binding("m", "mark", "mark"),
        Binding("e", "export", "export"),
        Binding("colon", "command_palette", "commands", key_display=":"),
        *(Binding(one.key, f"move('{one.name}')", one.name) for one in moves.MOVES),
        Binding("left_square_bracket", "travel_back", "back", show=False, key_display="["),
        Binding("right_square_bracket", "travel_forward", "forward", show=False, key_display="]"),
        Binding("a", "every", "housekeeping", show=False),
        Binding("M", "next_mark", "next mark", show=False),
        Binding("c", "comment", "note", show=False),
        Binding("apostrophe", "marks", "marks and notes", show=False, key_display="'"),
        Binding("vertical_line", "layout", "layout", show=False, key_display="|"),
        Binding("backslash", "maximise", "maximise", show=False, key_display="\\"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("o", "output", "output of the command", show=False),
        Binding("t", "theme", "light or dark", show=False),
        Binding("ctrl+z", "suspend_process", "to the shell", show=False, priority=True),
        Binding("Q", "quit", "quit", show=False),
        Binding("ctrl+c", "interrupt", "end a live capture, then quit", show=False, priority=True),
        *(
            Binding(str((n + 1) % 10), f"view('{one.name}')", one.name, show=False)
            for n, one in enumerate(VIEWS)
        ),
    ]

    output: OutputLines | None = None
    """Of the command that is being recorded."""

    def __init__(self, reading: GrowingRun, marks: Marks) -> None:
        super().__init__()
        self.reading = reading
        self.marks = marks
        self.export = ExportFlow(self, reading, marks, self._scopes)
        self.title_line = Static(id="title", markup=False)
        self.view_bar = ViewBar([view.name for view in VIEWS], id="views")
        self.panes = Container(id="panes", classes=LAYOUTS[0])
        self.message = MessagePane(reading, id="message")
        """The panes of one message."""
        self.note_line = NoteLine()
        self.filter_line = FilterLine(values_of(reading), id="filter")
        self.view = VIEWS[0]
        self.opened: int | None = None
        self.listed = Listing()
        self.row: int | None = None
        """The row of the message that is shown."""
        self._rows: RowLines | None = None
        """Of a view that lists messages."""
        self._shape = 0
        self._before: list[ViewPlace] = []
        self._after: list[ViewPlace] = []
        self._said = False
        """What is to be said at the end of the reading was said."""
        self._titled = ""
        """What the title says."""
        self._seen = 0
        """Messages of which the lines have taken notice."""
        self._waits = True
        """What is shown is not all yet."""
        self._soon: Timer | None = None

    # -- what is on the screen

    def compose(self) -> ComposeResult:
        """Makes the panes."""
        yield self.title_line
        yield self.view_bar
        with self.panes:
            yield self.lines_view
            yield self.message
        yield self.note_line
        yield self.filter_line
        yield Footer()

    def on_mount(self) -> None:
        """Begins to read."""
        self.lines_view.following = self.reading.follows
        self.show_view(self.view)
        self.lines_view.focus()
        self.reading.start()
        self.set_interval(TICK_S, self._tick)

    def _tick(self) -> None:
        """Takes notice of what has come."""
        self._title()
        if self.marks.find(self.reading) or self.marks.has_news:
            self._marked()
        matching = self.listed.matching
        if matching is not None and matching.why:
            self.notify(f"the filter was given up: {printable(matching.why)}", severity="error", markup=False)
            self._use(None)
        if self.reading.state == "failed" and not self._said:
            self._said = True
            self.notify(printable(self.reading.why), severity="error", timeout=60, markup=False)
        if self.reading.state == "done" and not self._said:
            self._said = True
            for line in self.reading.notices:
                self.notify(printable(line), timeout=15, markup=False)
        rows = self._rows.rows if isinstance(self._rows, Timeline) else self._rows
        finished = self.reading.run is not None and (matching is None or matching.finished)
        if finished and self._waits:
            self._waits = False
            if rows is None or not rows.final:
                self.show_view(self.view, self.opened, row=self.row)
        elif rows is not None and not rows.final and (rows.update() or self._seen != self.reading.count):
            self._waits = True
            self._seen = self.reading.count
            self.lines_view.grown()  # lines that were there may be others now: answers came, names
            if self.row is None:
                self._select(self.lines_view.cursor)

    @property
    def settled(self) -> bool:
        """Whether the list shows all there is to show."""
        return self.reading.state != "reading" and not self._waits

    def _title(self) -> None:
        reading = self.reading
        told = [captures_title(reading.paths), counted(reading.count, "message")]
        told.append(self._state_words())
        matching = self.listed.matching
        if matching is not None:
            picked = matching.shown.count if matching.shown else sum(matching.rows)
            told.append(f"{picked:,} match {printable(matching.filter.text)}")
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
        """Shows a view: at a line, or where a row's message is."""
        self.view, self.opened = view, opened
        self.view_bar.chosen = view.name
        reading = self.reading
        if view.parts is not None:
            self._rows = None
            if reading.run is None:
                self._waits = True
                self.lines_view.show(NoLines(f"this view is there {reading.when_known}"))
            else:
                self.lines_view.show(NoLines("working it out …"))
                self._work_out(view, opened, cursor)
            return
        what = self.listed.what if view.name == "timeline" else view.name
        rows = RowList(
            reading, replace(self.listed, what="calls" if what == "calls" else "messages"), self.marks
        )
        if view.name == "timeline":
            if reading.run is None:
                self._rows, self._waits = None, True
                self.lines_view.show(NoLines(f"this view is there {reading.when_known}"))
                return
            messages = RowList(reading, replace(self.listed, what="messages"), self.marks)
            self._rows = Timeline(messages, reading.run.session)
        else:
            self._rows = rows
        at = cursor if cursor is not None else None if row is None else self._rows.place_of(row)
        if not len(self._rows) and rows.final:
            self.lines_view.show(NoLines(self._why_empty()))
            return
        self.lines_view.show(self._rows, at or 0)

    def _why_empty(self) -> str:
        matching = self.listed.matching
        if matching is not None and matching.shown is not None:
            return "; ".join(("nothing matches", *matching.shown.hints))
        if self.reading.count:
            return "no calls but housekeeping, which a shows"
        return "no RPC messages in this capture"

    @work(thread=True, exclusive=True, group="answer", exit_on_error=False)
    def _work_out(self, view: BrowseView, opened: int | None, cursor: int | None) -> None:
        """Works an answer out, beside the keys."""
        run, matching = self.reading.run, self.listed.matching
        assert run is not None
        if matching is not None and matching.shown is not None:
            run = run.narrowed(matching.shown.rows, matching.shown.touched)
        lines: LineSource | None
        try:
            lines = answer_lines(view, run) if opened is None else opened_lines(view, run, opened)
        except Exception as error:
            lines = NoLines(printable(fault(error)))
        if lines is not None:
            self.call_from_thread(self._answered, view, opened, lines, cursor)

    def _answered(self, view: BrowseView, opened: int | None, lines: LineSource, cursor: int | None) -> None:
        if (view.name, opened) == (self.view.name, self.opened):
            self.lines_view.show(lines, cursor or 0)

    def action_view(self, name: str) -> None:
        """Shows another view, at the message that was looked at."""
        self._leave()
        self.show_view(BY_NAME[name], row=self.row)
        self.lines_view.focus()

    @on(ViewBar.Chosen)
    def _view_chosen(self, event: ViewBar.Chosen) -> None:
        self.action_view(event.name)

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
        """Shows the message of a line; an answer that is shown belongs to the line of its request."""
        rows = self._rows
        if rows is not None and at < len(rows):
            row = rows.row(at)
            if self.row is None or self.row not in (row, self.reading.columns.partner[row]):
                self.row = row
            if self._soon is not None:
                self._soon.stop()
            self._soon = self.set_timer(PAUSE_S, self._show_soon)

    def _show_soon(self) -> None:
        if self.row is not None and self.is_running:  # not while the panes are taken down
            self.show_row(self.row)

    def show_row(self, row: int) -> None:
        """Shows a message in its panes."""
        self.row = row
        self.message.show(row)
        self.note_line.show(row, self.marks, self.reading)

    @on(LinesView.Chosen, "#list")
    def _chosen(self, event: LinesView.Chosen) -> None:
        """Opens what the line is about."""
        lines = self.lines_view.lines
        if not isinstance(lines, PartLines):
            self.message.focus_first()
            return
        item = lines.item(event.at)
        if self.view.opens is not None and item is not None and self.opened is None:
            self._leave()
            self.show_view(self.view, item)
            return
        self._go_to_one(lines.targets(event.at), "go to", "this line names no message")

    # -- moves

    def _leave(self) -> None:
        """Keeps where one is, for the way back."""
        self._before.append(self._here())
        del self._before[:-MAX_HISTORY]
        self._after.clear()

    def _here(self) -> ViewPlace:
        return ViewPlace(self.view.name, self.opened, self.lines_view.cursor, self.row)

    def action_travel_back(self) -> None:
        """Goes to where one was before."""
        self._travel(self._before, self._after)

    def action_travel_forward(self) -> None:
        """Goes on to where one came back from."""
        self._travel(self._after, self._before)

    def _travel(self, where: list[ViewPlace], other: list[ViewPlace]) -> None:
        if not where:
            self.bell()
            return
        other.append(self._here())
        place = where.pop()
        self.show_view(BY_NAME[place.view], place.opened, cursor=place.cursor, row=place.row)
        if place.row is not None:
            self.show_row(place.row)

    def action_pop(self) -> None:
        """Leaves what was opened last; where nothing is, ends the program."""
        if self.screen.maximized is not None:
            self.screen.minimize()
        elif self.opened is not None:
            self.action_travel_back()
        elif self.message.has_focus_within and not self.lines_view.has_focus:
            self.lines_view.focus()
        else:
            self.exit(0)

    def action_interrupt(self) -> None:
        """Ends the reading of what is still being captured; where nothing is, the program."""
        done = self.reading.end()
        if done:
            self.notify(done, markup=False)
        else:
            self.exit(130)

    def action_output(self) -> None:
        """Shows what the command that is being recorded has written."""
        if self.output is None:
            self.notify("no command runs here: record --browse shows what one writes", markup=False)
        else:
            self.push_screen(OutputScreen(self.output))

    def action_move(self, name: str) -> None:
        """Goes from the message that is shown to others."""
        move = next(one for one in moves.MOVES if one.name == name)
        run = self.reading.run
        if run is None or self.row is None:
            self.notify(f"this is known {self.reading.when_known}", markup=False)
            return
        index = self.reading.number(self.row)
        self._go_to_one(moves.targets(move, run, index), f"#{index}: {move.about}", move.none(run, index))

    def _go_to_one(self, targets: Sequence[Destination], title: str, none: str) -> None:
        """Goes to the only target, or asks which."""
        if not targets:
            self.notify(printable(none), markup=False)
        elif len(targets) == 1:
            self.go_to(targets[0].message)
            if "ambiguous" in targets[0].text:
                self.notify(targets[0].text, markup=False)
        else:
            lines = [ListLine(f"{one.text}: {self._told(one.message)}") for one in targets]

            def chosen(at: int | None) -> None:
                if at is not None:
                    self.go_to(targets[at].message)

            self.push_screen(Chooser(title, lines), chosen)

    def _told(self, number: int) -> str:
        row = self.reading.row_of(number)
        if row is None:
            return ""
        source, destination = self.reading.ends(row)
        return f"#{number} {source} → {destination}  {self.reading.texts([row])[0]}"

    def go_to(self, number: int) -> None:
        """Shows the message of this number, in the list where that has it."""
        row = self.reading.row_of(number)
        if row is None:
            self.notify(f"there is no message {number}", markup=False)
            return
        self._leave()
        at = None if self._rows is None else self._rows.place_of(row)
        if at is None:
            self._find_view_with(row)
        else:
            self.lines_view.move_to(at, middle=True)
        self.show_row(row)

    def _find_view_with(self, row: int) -> None:
        """Shows a view whose list has the message: housekeeping too, without the filter if need be."""
        for listed in (self.listed, replace(self.listed, every=True), Listing(every=True)):
            self.listed = listed
            for name in ("calls", "messages"):
                self.show_view(BY_NAME[name], row=row)
                if self._rows is not None and self._rows.place_of(row) is not None:
                    return

    def action_go(self) -> None:
        """Asks for a number, a time or a packet, and goes there."""

        def answered(text: str | None) -> None:
            if text:
                row, why = place_in_words(text, self.reading)
                if row is None:
                    self.notify(printable(why), severity="warning", markup=False)
                else:
                    self.go_to(self.reading.number(row))

        self.push_screen(TextPrompt(PLACES), answered)

    # -- finding

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

    # -- marks

    def action_mark(self) -> None:
        """Marks the message, or takes its mark and note away."""
        if self.row is not None:
            self.marks.toggle(self.reading.record(self.row))
            self._marked()

    def _marked(self) -> None:
        """Shows marks as they are now."""
        for told in self.marks.news():
            self.notify(printable(told), severity="warning", timeout=10, markup=False)
        self.note_line.show(self.row, self.marks, self.reading)
        self.lines_view.refresh()

    def action_next_mark(self) -> None:
        """Goes to the next message with a mark."""
        numbers = marked_numbers(self.reading, self.marks)
        here = -1 if self.row is None else self.reading.number(self.row)
        if numbers:
            self.go_to(next((one for one in numbers if one > here), numbers[0]))
        else:
            self.notify(NO_MARKS, markup=False)

    def action_comment(self) -> None:
        """Asks for a note on the message, which marks it."""
        row = self.row
        if row is None:
            return

        def answered(text: str | None) -> None:
            if text is not None:
                self.marks.note(self.reading.record(row), text)
                self._marked()

        title = f"note on message {self.reading.number(row)}"
        self.push_screen(TextPrompt(title, printable(self.marks.get(row, ""))), answered)

    def action_marks(self) -> None:
        """Shows which messages are marked, with their notes, and goes to one of them."""
        numbers = marked_numbers(self.reading, self.marks)
        if not numbers:
            self.notify(NO_MARKS, markup=False)
            return

        def chosen(at: int | None) -> None:
            if at is not None:
                self.go_to(numbers[at])

        self.push_screen(mark_chooser(self.reading, self.marks, numbers), chosen)

    def action_export(self) -> None:
        """Writes messages to a file, or shows the command that does so."""
        self.export.ask()

    def _scopes(self) -> list[ExportScope]:
        from rpcinspect.browse.export_scopes import scopes_of

        return scopes_of(self.reading, self.row, self.marks, self.listed.matching)

    def on_unmount(self) -> None:
        """Stops what is still being written."""
        self.export.stop()

    # -- how it looks

    def action_layout(self) -> None:
        """Puts the panes beside each other, above each other, or shows the list alone."""
        self._shape = (self._shape + 1) % len(LAYOUTS)
        self.panes.set_classes(LAYOUTS[self._shape])

    def action_help(self) -> None:
        """Shows which keys there are."""
        from rpcinspect.browse.help import help_text

        self.push_screen(HelpScreen(help_text(self.screen)))
