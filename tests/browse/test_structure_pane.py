"""The structure of a message, driven by keys."""

from __future__ import annotations

from pathlib import Path

from textual.pilot import Pilot

from rpcinspect.browse.structure import Structure
from tests.browse.messages import answer, call
from tests.browse.panes import Panes, drive, screen
from tests.views.opened import opened


def test_folding_and_moving() -> None:
    async def story(pilot: Pilot[None]) -> None:
        pane = app.tree_pane
        lines = [line.strip() for line in screen(pane)]
        assert lines[0] == "▾ message 6: FORWARD_AUTOGRAD_REQ, worker0 → worker1"
        assert "▾ body PYTHON_CALL" in lines
        await pilot.press("down", "right")
        assert screen(pane)[2].strip().startswith("answered by: message 7")
        await pilot.press("right")
        assert pane.node is not None
        assert pane.node.label.startswith("answered by")
        await pilot.press("left")
        assert pane.node.label == "how it travelled"
        await pilot.press("left")
        assert screen(pane)[2].strip().startswith("▸ descriptor")
        await pilot.press("left")
        assert pane.node is app.structure.root
        await pilot.press("enter")
        assert [line for line in screen(pane) if line] == [
            " ▸ message 6: FORWARD_AUTOGRAD_REQ, worker0 → worker1"
        ]
        await pilot.press("enter")
        assert [line.strip() for line in screen(pane)] == lines

    with opened(Path("basic_chain.pcap")) as capture:
        app = Panes(Structure(capture.messages[6], capture.bytes, capture.session))
        drive(app, story)


def test_enter_on_a_tensor_opens_it() -> None:
    async def story(pilot: Pilot[None]) -> None:
        await pilot.press("G", "enter", "home", "enter")
        assert app.opened == [1]

    with opened(Path("basic_chain.pcap")) as capture:
        app = Panes(Structure(capture.messages[6], capture.bytes, capture.session))
        drive(app, story)


def test_a_hundred_thousand_items_fold_and_unfold() -> None:
    async def story(pilot: Pilot[None]) -> None:
        pane = app.tree_pane
        while pane.node is None or not pane.node.label.startswith("args"):
            await pilot.press("down")
        await pilot.press("right", "right", "right", "right", "right", "right", "right")
        assert pane.node.label == "items 0…199"
        await pilot.press("right", "end")
        assert len(pane.lines) < 1000
        await pilot.press("home", "G", "g")
        assert pane.node is app.structure.root

    app = Panes(Structure(*call(list(range(100_000)))))
    drive(app, story)


def test_captured_markup_and_escapes_are_shown_as_they_are() -> None:
    text = b"[bold red]\x1b]0;x\x07[/]\xe2\x80\xae" + b"z" * 1_000_000
    pickle = b"\x80\x02X" + len(text).to_bytes(4, "little") + text + b"."

    async def story(pilot: Pilot[None]) -> None:
        lines = screen(app.tree_pane)
        (value,) = [line for line in lines if "value: " in line]
        assert "'[bold red]\\x1b]0;x\\x07[/]\\u202ezzz" in value
        assert all(line.isprintable() for line in lines)
        assert "\x1b]0" not in app.export_screenshot()

    app = Panes(Structure(*answer(pickle)))
    drive(app, story)


def test_nothing_to_show() -> None:
    async def story(pilot: Pilot[None]) -> None:
        await pilot.press("down", "left", "right", "enter", "end")
        assert screen(app.tree_pane)[0] == " no message is chosen"
        assert app.tree_pane.select_byte(0, 0) is None

    app = Panes()
    drive(app, story)
