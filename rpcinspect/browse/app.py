"""The program of `rpcinspect browse`: its keys, and the moves from message to message, there and back.

In: a capture that is being read. Out: a Textual app. Where a move leads is said by `moves`; what the panes
show, by `run_app`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from msgspec.structs import replace
from textual import on
from textual.binding import Binding, BindingType

from rpcinspect.browse import moves
from rpcinspect.browse.goto import PLACES, place_in_words
from rpcinspect.browse.lines import LinesView, ListLine, NoLines
from rpcinspect.browse.listing import Listing
from rpcinspect.browse.mark_list import NO_MARKS, mark_chooser, marked_numbers
from rpcinspect.browse.parts import Destination, PartLines
from rpcinspect.browse.run_app import RunApp
from rpcinspect.browse.screens import Chooser, HelpScreen, TextPrompt
from rpcinspect.browse.views import BY_NAME, VIEWS
from rpcinspect.fields.phrases import printable

if TYPE_CHECKING:
    from rpcinspect.filter.selection import Filter


class ViewPlace(Struct, frozen=True):
    """A place in the history: the view, its line and the message that were shown."""

    view: str
    filter: Filter | None
    opened: int | None
    """The row of the view that was opened, of what that filter left."""
    cursor: int
    row: int | None
    """The row of the message that was shown."""


class Browser(RunApp):
    """A capture in the terminal."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "pop", "back"),
        Binding("/", "filter", "filter"),
        Binding("f", "find", "find"),
        Binding("n", "again(1)", "next line with the text", show=False),
        Binding("N", "again(-1)", "line before with the text", show=False),
        Binding("#", "go", "go to"),
        Binding("m", "mark", "mark"),
        Binding("e", "export", "export"),
        Binding(":", "command_palette", "commands"),
        *(Binding(one.key, f"move('{one.name}')", one.name) for one in moves.MOVES),
        Binding("[", "travel(-1)", "back", show=False, tooltip="Goes to where one was before"),
        Binding("]", "travel(1)", "forward", show=False, tooltip="Goes on to where one came back from"),
        Binding("a", "every", "housekeeping", show=False),
        Binding("M", "next_mark", "next mark", show=False),
        Binding("c", "comment", "note", show=False),
        Binding("'", "marks", "marks and notes", show=False),
        Binding("|", "layout", "layout", show=False),
        Binding("\\", "maximise", "maximise", show=False),
        Binding("?", "help", "help"),
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

    def action_view(self, name: str) -> None:
        """Shows another view, at the message that was looked at."""
        self.leave()
        self.show_view(BY_NAME[name], row=self.row)
        self.lines_view.focus()

    @on(LinesView.Chosen, "#list")
    def _chosen(self, event: LinesView.Chosen) -> None:
        """Opens what the line is about."""
        lines = self.lines_view.lines
        if isinstance(lines, NoLines) and lines.view:
            self.agreed.add(lines.view)
            self.show_view(BY_NAME[lines.view])
            return
        if not isinstance(lines, PartLines):
            self.message.focus_first()
            return
        item = lines.item(event.at)
        if self.view.opens is not None and item is not None and self.opened is None:
            self.leave()
            self.show_view(self.view, item)
            return
        self._go_to_one(lines.targets(event.at), "go to", "this line names no message")

    # -- moves

    def here(self) -> ViewPlace:
        return ViewPlace(self.view.name, self._filter, self.opened, self.lines_view.cursor, self.row)

    @property
    def _filter(self) -> Filter | None:
        return None if self.listed.matching is None else self.listed.matching.filter

    def put(self, place: ViewPlace) -> None:
        is_same = place.filter is self._filter
        opened, cursor = (place.opened, place.cursor) if is_same else (None, None)
        self.show_view(BY_NAME[place.view], opened, cursor=cursor, row=place.row)
        if place.row is not None:
            self.show_row(place.row)

    def action_pop(self) -> None:
        """Leaves what was opened last; where nothing is, ends the program."""
        if self.screen.maximized is not None:
            self.screen.minimize()
        elif self.opened is not None:
            self.action_travel(-1)
        elif self.message.has_focus_within and not self.lines_view.has_focus:
            self.lines_view.focus()
        else:
            self.exit(0)

    def action_move(self, name: str) -> None:
        """Goes from the message that is shown to others."""
        move = next(one for one in moves.MOVES if one.name == name)
        run = self.reading.run
        if run is None or self.row is None:
            self.say(f"this is known {self.reading.when_known}")
            return
        index = self.reading.number(self.row)
        self._go_to_one(moves.targets(move, run, index), f"#{index}: {move.about}", move.none(run, index))

    def _go_to_one(self, targets: Sequence[Destination], title: str, none: str) -> None:
        """Goes to the only target, or asks which."""
        if not targets:
            self.say(none)
        elif len(targets) == 1:
            self.go_to(targets[0].message)
            if "ambiguous" in targets[0].text:
                self.say(targets[0].text)
        else:
            told = [(one.text, self._told(one.message)) for one in targets]
            lines = [ListLine(": ".join(filter(None, words))) for words in told]
            self.ask(Chooser(title, lines), lambda at: self.go_to(targets[at].message))

    def _told(self, number: int) -> str:
        row = self.reading.row_of(number)
        return "" if row is None else f"#{number} {self.reading.told(row)}"

    def go_to(self, number: int) -> None:
        """Shows the message of this number, in the list where that has it."""
        row = self.reading.row_of(number)
        if row is None:
            self.say(f"there is no message {number}")
            return
        self.leave()
        at = None if self._rows is None else self._rows.place_of(row)
        if at is None:
            self._find_view_with(row)
        else:
            self.lines_view.move_to(at, middle=True)
        self.show_row(row)

    def _find_view_with(self, row: int) -> None:
        """Shows a view whose list has the message: housekeeping too, without the filter if need be."""
        filtered = self.listed.matching
        for listed in (self.listed, replace(self.listed, every=True), Listing(every=True)):
            if filtered is not None and listed.matching is None:
                self.say(f"the filter hides #{self.reading.number(row)}: it is off now")
            self.listed = listed
            for name in ("calls", "messages"):
                self.show_view(BY_NAME[name], row=row)
                if self._rows is not None and self._rows.place_of(row) is not None:
                    return

    def action_go(self) -> None:
        """Asks for a number, a time or a packet, and goes there."""

        def answered(text: str) -> None:
            row, why = place_in_words(text, self.reading) if text else (None, "")
            if row is not None:
                self.go_to(self.reading.number(row))
            elif why:
                self.say(why, "warning")

        self.ask(TextPrompt(PLACES), answered)

    # -- marks

    def action_mark(self) -> None:
        """Marks the message, or takes its mark and note away."""
        if self.row is not None:
            self.marks.toggle(self.reading.record(self.row))
            self._marked()

    def action_next_mark(self) -> None:
        """Goes to the next message with a mark."""
        numbers = marked_numbers(self.reading, self.marks)
        here = -1 if self.row is None else self.reading.number(self.row)
        if numbers:
            self.go_to(next((one for one in numbers if one > here), numbers[0]))
        else:
            self.say(NO_MARKS)

    def action_comment(self) -> None:
        """Asks for a note on the message, which marks it."""
        row = self.row
        if row is None:
            return

        def answered(text: str) -> None:
            self.marks.note(self.reading.record(row), text)
            self._marked()

        title = f"note on message {self.reading.number(row)}"
        self.ask(TextPrompt(title, printable(self.marks.get(row, ""))), answered)

    def action_marks(self) -> None:
        """Shows which messages are marked, with their notes, and goes to one of them."""
        numbers = marked_numbers(self.reading, self.marks)
        if numbers:
            self.ask(mark_chooser(self.reading, self.marks, numbers), lambda at: self.go_to(numbers[at]))
        else:
            self.say(NO_MARKS)

    def action_help(self) -> None:
        """Shows which keys there are."""
        from rpcinspect.browse.keys import help_text

        self.push_screen(HelpScreen(help_text(self.screen)))
