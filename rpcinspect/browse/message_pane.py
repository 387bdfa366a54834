"""The panes of one message.

In: the row of a message of a capture that is being read. Out: its parts as lines.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container

from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.browse.lines import LinesView, NoLines
from rpcinspect.browse.parts import PartLines
from rpcinspect.views.text.detail import detail


class MessagePane(Container):
    """What is known of one message."""

    DEFAULT_CSS = "MessagePane { layout: horizontal; }"

    def __init__(self, reading: GrowingRun, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._reading = reading

    def compose(self) -> ComposeResult:
        """Makes the panes."""
        yield LinesView(NoLines("no message is chosen"), id="detail")

    def show(self, row: int) -> None:
        """Shows a message."""
        view = self.query_one("#detail", LinesView)
        run = self._reading.run
        if run is None:
            view.show(NoLines(f"details are there {self._reading.when_known}"))
            return
        record = self._reading.records[row]
        view.show(PartLines(detail(record, run.session, self._reading.decoding.bytes), len(run.messages)))

    def focus_first(self) -> None:
        """Goes to the first pane."""
        self.query_one("#detail").focus()
