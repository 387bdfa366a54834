"""The panes of one message: its structure and its bytes, each of which leads to the other.

In: the row of a message of a capture that is being read. Out: the panes, and a screen for a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator

from textual import events
from textual.app import ComposeResult
from textual.containers import Container

from rpcinspect.browse.bytes_pane import BytesPane
from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.browse.structure import Structure
from rpcinspect.browse.structure_pane import StructurePane
from rpcinspect.browse.tensor_view import TensorScreen
from rpcinspect.rpc.message import type_name

NARROW = 100
"""Cells: with fewer there is room for four bytes in a line, and for eight with more."""


class MessagePane(Container):
    """Structure and bytes of one message."""

    DEFAULT_CSS = """
    MessagePane { layout: horizontal; }
    MessagePane StructurePane { width: 1fr; }
    MessagePane BytesPane { width: 1fr; border-left: solid $primary; }
    MessagePane.narrow StructurePane { width: 3fr; }
    MessagePane.narrow BytesPane { width: 2fr; }
    """

    def __init__(self, reading: GrowingRun) -> None:
        super().__init__(id="message")
        self._reading = reading
        self._source = reading.decoding.bytes_beside()
        self.structure_pane = StructurePane()
        self.bytes_pane = BytesPane()
        self.structure: Structure | None = None

    def compose(self) -> ComposeResult:
        """Yields the pane of the structure and that of the bytes."""
        yield self.structure_pane
        yield self.bytes_pane

    def on_resize(self, event: events.Resize) -> None:
        """Gives the structure more room than the bytes where there is little."""
        self.set_class(event.size.width < NARROW, "narrow")

    def show(self, row: int) -> None:
        """Shows the message of this row in both panes."""
        reading = self._reading
        record = reading.record(row)
        source, destination = reading.ends(row)
        title = (
            f"message {reading.number(row)}: {type_name(record.like.message.type)}, {source} → {destination}"
        )
        session = None if reading.run is None else reading.run.session
        self.structure = Structure(record, self._source, session, title, tuple(self._told(row)))
        self.structure_pane.show_structure(self.structure)
        self.bytes_pane.show_bytes(self.structure.bytes)

    def _told(self, row: int) -> Iterator[str]:
        """Yields what the run tells of a message that its own bytes do not: what it was sent for."""
        reading, run = self._reading, self._reading.run
        number = reading.number(row)
        if run is None or not reading.causes_are_known:
            return
        columns = run.session.messages
        if columns.from_client[row] and not columns.control[row]:
            from rpcinspect.views.text.detail import cause_words

            yield f"sent: {cause_words(run.causes, number)}"

    def focus_first(self) -> None:
        """Goes to the first pane."""
        self.structure_pane.focus()

    def on_structure_pane_node_selected(self, message: StructurePane.NodeSelected) -> None:
        """Marks the bytes of a node."""
        self.bytes_pane.select(message.node.ranges)

    def on_structure_pane_tensor_chosen(self, message: StructurePane.TensorChosen) -> None:
        """Opens the screen with the values of the tensor that was chosen."""
        if self.structure is not None and message.node.tensor is not None:
            source = self._reading.decoding.bytes_beside()
            self.app.push_screen(TensorScreen(self.structure.record, source, message.node.tensor))

    def on_bytes_pane_byte_selected(self, message: BytesPane.ByteSelected) -> None:
        """Goes to the node that a byte is of."""
        node = self.structure_pane.select_byte(message.part, message.at)
        self.bytes_pane.select(() if node is None else node.ranges, scroll=False)
