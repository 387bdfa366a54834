"""The program of `rpcinspect browse --diff`: two runs in the terminal, message by message.

In: two captures that are being read and compared. Out: a Textual app. Which message is which, what differs
and why is what `diff` says; here is what of it is shown when.
"""

from __future__ import annotations

import asyncio
import re
from typing import ClassVar

import numpy as np
from rich.console import Group
from rich.text import Text
from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Static

from rpcinspect.browse.key_line import KeyLine
from rpcinspect.browse.keys import help_text
from rpcinspect.browse.lines import LinesView, NoLines
from rpcinspect.browse.list_app import ListApp
from rpcinspect.browse.pair_details import DetailKind, PairDetails
from rpcinspect.browse.pair_lines import BESIDE_FROM, LEGEND, PairLines
from rpcinspect.browse.pair_reading import SIDES, ComparedRuns, PairReading
from rpcinspect.browse.parts import PartLines
from rpcinspect.browse.screens import HelpScreen, TextPrompt
from rpcinspect.fields.phrases import printable
from rpcinspect.views.diff.words import run_name, verdict_line
from rpcinspect.views.text.detail import detail

TICK_S = 0.1
PAUSE_S = 0.05
DETAILS: tuple[DetailKind, ...] = ("beside", "a", "b")
NUMBER = re.compile(r"\s*([ab]?)#?(\d{1,18})\s*")


class PairBrowser(ListApp):
    """Two captures in the terminal."""

    TITLE = "rpcinspect"
    CSS_PATH = "pair_app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "pop", "back"),
        Binding(">", "difference(1)", "next", tooltip="Goes to the next difference"),
        Binding("<", "difference(-1)", "previous", tooltip="Goes to the difference before"),
        Binding("=", "first", "first difference", show=False),
        Binding("d", "differing", "only these"),
        Binding("s", "summary", "summary"),
        Binding("v", "details", "in full"),
        Binding("u", "cause", "cause"),
        Binding("p", "partner", "request ⇄ answer", show=False),
        Binding("#", "go", "go to"),
        Binding("f", "find", "find"),
        Binding("n", "again(1)", "next line with the text", show=False),
        Binding("N", "again(-1)", "line before with the text", show=False),
        Binding("[", "travel(-1)", "back where one was", show=False),
        Binding("]", "travel(1)", "forward again", show=False),
        Binding("a", "every", "housekeeping", show=False),
        Binding("|", "layout", "beside or below each other", show=False),
        Binding("\\", "maximise", "maximise", show=False),
        Binding(":", "command_palette", "commands", show=False),
        Binding("?", "help", "help"),
        Binding("t", "theme", "light or dark", show=False),
        Binding("ctrl+z", "suspend_process", "to the shell", show=False, priority=True),
        Binding("Q", "quit", "quit", show=False),
        Binding("ctrl+c", "interrupt", "quit", show=False, priority=True),
    ]

    def __init__(self, reading: PairReading) -> None:
        super().__init__()
        self.reading = reading
        self.title_line = Static(id="title", markup=False)
        self.details_view = LinesView(id="details")
        """What is said of one of them."""
        self.place: int | None = None
        """Of the message that is shown below; None: the summary is."""
        self._lines: PairLines | None = None
        self._every = self._differing = False
        self._beside: bool | None = None
        """Whether two messages stand beside each other; None: where they have room."""
        self._details: DetailKind = "beside"

    # -- what is on the screen

    def compose(self) -> ComposeResult:
        """Makes the title, the list of both runs above what is said of one message, and the keys."""
        yield self.title_line
        with Container(id="panes"):
            yield self.lines_view
            yield self.details_view
        yield KeyLine()

    def on_mount(self) -> None:
        """Begins to read both captures; how far that is, is looked at until they are compared."""
        self.lines_view.focus()
        self.reading.start()
        self._ticks = self.set_interval(TICK_S, self._tick)
        self._tick()

    @property
    def compared(self) -> ComparedRuns | None:
        """Returns both runs with what comparing them came to; None until all is read and compared."""
        return self.reading.compared

    def _tick(self) -> None:
        """Takes notice of how far reading and comparing are."""
        if self.reading.failure is not None:
            self._ticks.stop()
            self.exit(None)
        elif self.compared is not None:
            self._ticks.stop()
            self.place = self.compared.first
            self._list()
            self._show_details()
        else:
            self._title()
            with self.prevent(LinesView.Moved):
                self.lines_view.show(NoLines(printable(self.reading.state_words)))

    def _title(self) -> None:
        compared, names, told = self.compared, self.reading.names, [self.reading.state_words]
        if compared is not None:
            names = run_name(compared.comparison.a), run_name(compared.comparison.b)
            places = compared.different
            if self.place is not None and self.place in places:
                at = int(np.searchsorted(places, self.place)) + 1
                told.append(f"difference {at:,} of {len(places):,}")
            else:
                told.append(verdict_line(compared.comparison))
        told = [*(f"{side} {name}" for side, name in zip(SIDES, names, strict=True)), *told]
        text = " · ".join(filter(None, told))
        line = Text(printable(text), no_wrap=True, overflow="ellipsis")
        self.title_line.update(line, layout=False)

    def _list(self) -> None:
        """Shows the list at the message that is shown below."""
        compared = self.compared
        if compared is None:
            return
        beside = self.size.width >= BESIDE_FROM if self._beside is None else self._beside
        lines = PairLines(compared, beside=beside, every=self._every, differing=self._differing)
        self._lines = lines
        self._title()
        why = "nothing differs" if self._differing else "no calls but housekeeping, which a shows"
        with self.prevent(LinesView.Moved):
            if len(lines):
                self.lines_view.show(lines, lines.line_of(self.place or 0))
            else:
                self.lines_view.show(NoLines(why))

    def _show_details(self) -> None:
        """Shows what is known of a message of both runs, or of all."""
        compared, view = self.compared, self.details_view
        if compared is None or not self.is_running:  # as while the panes are taken down
            return
        with self.prevent(LinesView.Moved):
            if self._details != "beside" and self.place is not None:
                view.show(self._in_full(compared, self.place))
            else:
                view.show(PairDetails(compared, self.place, view.size.width - 1))
        self._title()

    def _in_full(self, compared: ComparedRuns, place: int) -> PartLines | NoLines:
        side = "a" if self._details == "a" else "b"
        run = compared.runs[SIDES.index(side)]
        index = getattr(compared.comparison.messages[place], side)
        if index is None:
            return NoLines(f"{side} lacks this message")
        return PartLines(detail(run.messages[index], run.session, run.bytes), len(run.messages))

    def on_resize(self, event: events.Resize) -> None:
        """Lays lines out for another width."""
        if self.compared is not None:
            self.call_after_refresh(self._list)
            self.call_after_refresh(self._show_details)

    # -- moves

    @on(LinesView.Moved, "#list")
    def _moved(self, event: LinesView.Moved) -> None:
        if event.is_so and self._lines is not None and event.at < len(self._lines):
            self._show(self._lines.place(event.at))

    def _show(self, place: int) -> None:
        if place != self.place:
            self.place = place
            self._show_soon()

    @work(exclusive=True)
    async def _show_soon(self) -> None:
        """Shows what is known of a message, if the cursor rests on its line: a key that is held down need not
        wait."""
        await asyncio.sleep(PAUSE_S)
        self._show_details()

    @on(LinesView.Chosen, "#list")
    def _chosen(self) -> None:
        self.details_view.focus()

    @on(LinesView.Chosen, "#details")
    def _detail_chosen(self, event: LinesView.Chosen) -> None:
        lines = self.details_view.lines
        target = lines.target(event.at) if isinstance(lines, PairDetails) else None
        if target is not None:
            self.go_to(target)

    def go_to(self, place: int | None) -> None:
        """Shows a message, with housekeeping and what is the same if need be; keeps the way back."""
        if place is None or self.compared is None:
            self.bell()
            return
        self.leave()
        self.put(place)

    def here(self) -> int | None:
        return self.place

    def put(self, place: int) -> None:
        lines = self._lines
        if lines is None or not lines.shows(place):
            compared = self.compared
            assert compared is not None
            self._differing = self._differing and place in compared.different
            self._every = self._every or bool(compared.housekeeping[place])
            self.place = place
            self._list()
        else:
            with self.prevent(LinesView.Moved):
                self.lines_view.move_to(lines.line_of(place), middle=True)
        self.place = place
        self._show_details()

    def action_difference(self, by: int) -> None:
        """Goes to the next message in which something differs that counts, or to the one before."""
        if self.compared is None:
            return
        places = self.compared.different
        here = -1 if self.place is None else self.place
        at = int(np.searchsorted(places, here, "right")) if by > 0 else int(np.searchsorted(places, here)) - 1
        if 0 <= at < len(places):
            self.go_to(int(places[at]))
        else:
            self.say(f"no difference {'below' if by > 0 else 'above'}")

    def action_first(self) -> None:
        """Goes to the message at which the runs part first."""
        self.go_to(None if self.compared is None else self.compared.first)

    def action_cause(self) -> None:
        """Goes to the different message from which this one follows."""
        compared = self.compared
        if compared is None or self.place is None:
            return
        its = compared.found.get(self.place, ())
        causes = [one.follows for one in its if one.counts and one.follows is not None]
        if causes:
            self.go_to(causes[0])
        else:
            self.say("it follows from no other difference")

    def action_partner(self) -> None:
        """Goes from an answer to its request, and back."""
        if self.compared is None or self.place is None:
            return
        messages = self.compared.comparison.messages
        place = messages[self.place].answers
        if place is None:
            place = next((at for at, one in enumerate(messages) if one.answers == self.place), None)
        self.go_to(place)

    def action_go(self) -> None:
        """Asks for the number of a message and goes there."""

        def answered(text: str) -> None:
            found = NUMBER.fullmatch(text)
            if found is None or self.compared is None:
                return
            sides, number = found[1] or SIDES, int(found[2])
            for side in sides:
                for place, message in enumerate(self.compared.comparison.messages):
                    if getattr(message, side) == number:
                        self.go_to(place)
                        return
            self.say(f"there is no message {text}", "warning")

        self.ask(TextPrompt("go to a message by its number: 77, a77, b79"), answered)

    # -- what is shown

    def action_summary(self) -> None:
        """Shows what `diff` says of both runs."""
        self.place, self._details = None, "beside"
        self._show_details()

    def action_details(self) -> None:
        """Shows both messages beside each other, or one of them in full."""
        self._details = DETAILS[(DETAILS.index(self._details) + 1) % len(DETAILS)]
        self._show_details()

    def action_differing(self) -> None:
        """Shows only messages in which something differs that counts, or all."""
        self._differing = not self._differing
        self._list()

    def action_every(self) -> None:
        """Shows housekeeping that is the same, too, or hides it."""
        self._every = not self._every
        self._list()

    def action_layout(self) -> None:
        """Puts two messages beside each other, or one below the other."""
        beside = self.size.width >= BESIDE_FROM if self._beside is None else self._beside
        self._beside = not beside
        self._list()

    def action_again(self, by: int) -> None:
        """Goes to the next line with the text that was searched, or to the one before; to a difference where
        none was."""
        if self._wanted:
            super().action_again(by)
        else:
            self.action_difference(by)

    # -- the end

    def action_pop(self) -> None:
        """Leaves what was opened last; where nothing is, ends the program."""
        if self.screen.maximized is not None:
            self.screen.minimize()
        elif self.details_view.has_focus:
            self.lines_view.focus()
        else:
            self.exit(0)

    def action_interrupt(self) -> None:
        """Ends the program, as Ctrl-C does."""
        self.exit(130)

    def action_help(self) -> None:
        """Shows which keys there are, and what the marks mean."""
        self.push_screen(HelpScreen(Group(Text(f"{LEGEND}\n"), help_text(self.screen))))
