"""An app with the panes of one message, wired as `rpcinspect browse` wires them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widget import Widget

from rpcinspect.browse.bytes_pane import BytesPane
from rpcinspect.browse.structure import Structure
from rpcinspect.browse.structure_pane import StructurePane

Story = Callable[["Panes", Pilot[None]], Coroutine[Any, Any, None]]


class Panes(App[None]):
    """Structure above bytes, half of the screen each; without one as before a message is chosen."""

    CSS = "StructurePane, BytesPane { height: 1fr; }"

    def __init__(self, structure: Structure | None = None) -> None:
        super().__init__()
        self.tree_pane, self.bytes_pane = StructurePane(), BytesPane()
        self.structure = structure
        self.heard: list[str] = []
        self.opened: list[int | None] = []

    def compose(self) -> ComposeResult:
        yield self.tree_pane
        yield self.bytes_pane

    def on_mount(self) -> None:
        if self.structure is not None:
            self.tree_pane.show_structure(self.structure)
            self.bytes_pane.show_bytes(self.structure.bytes)
        self.tree_pane.focus()

    def on_structure_pane_node_selected(self, message: StructurePane.NodeSelected) -> None:
        self.heard.append(message.node.label)
        self.bytes_pane.select(message.node.ranges)

    def on_structure_pane_tensor_chosen(self, message: StructurePane.TensorChosen) -> None:
        self.opened.append(message.node.tensor)

    def on_bytes_pane_byte_selected(self, message: BytesPane.ByteSelected) -> None:
        self.heard.append(f"{self.structure.bytes.parts[message.part].name} {message.at}")
        node = self.tree_pane.select_byte(message.part, message.at)
        self.bytes_pane.select(() if node is None else node.ranges, scroll=False)


def drive(
    app: App[None], story: Callable[[Pilot[None]], Awaitable[None]], size: tuple[int, int] = (80, 24)
) -> None:
    """Runs an app while a story presses its keys."""

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await story(pilot)

    asyncio.run(run())


def screen(widget: Widget) -> list[str]:
    """The lines that a widget shows."""
    return [
        "".join(segment.text for segment in widget.render_line(y)).rstrip() for y in range(widget.size.height)
    ]


def styled(widget: Widget, y: int) -> list[tuple[str, Any]]:
    """The pieces of one line with their styles."""
    return [(segment.text, segment.style) for segment in widget.render_line(y)]
