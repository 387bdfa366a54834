"""The bytes of a message on the screen, against the file and against what tshark follows."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from textual.pilot import Pilot

from rpcinspect.browse.structure import Structure
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from tests.browse.messages import call
from tests.browse.panes import Panes, drive, screen, styled
from tests.places import content, recorded
from tests.views.opened import CAPTURES, Opened, opened
from tests.views.text.test_detail import followed

ROW = re.compile(r" ([0-9a-f]{8,})  ((?:[0-9a-f]{2} )*[0-9a-f]{2}) +(\S.*)?")


def rows(app: Panes) -> list[tuple[int, bytes]]:
    """Place and bytes of each line of hex."""
    found = []
    for number in range(len(app.bytes_pane.lines)):
        match = ROW.match(" " + app.bytes_pane.lines.line(number, 80).text)
        if match:
            found.append((int(match[1], 16), bytes.fromhex(match[2])))
    return found


@pytest.mark.parametrize("size", [(80, 24), (160, 50), (40, 24)])
def test_frames_are_where_tshark_has_them(size: tuple[int, int]) -> None:
    path = CAPTURES / "basic_chain.pcap"
    data, streams = path.read_bytes(), followed(path)

    async def story(pilot: Pilot[None]) -> None:
        seen = rows(app)
        frames, storages = 0, b""
        for place, shown in seen:
            if whole[place : place + len(shown)] == shown:
                frames += len(shown)
            else:
                assert data[place : place + len(shown)] == shown
                storages += shown
        assert frames == sum(
            part.length for part in app.structure.bytes.parts[: app.structure.bytes.storages]
        )
        assert storages == b"".join(tensor.tobytes() for tensor in app.structure.tensors)
        assert max(len(shown) for _, shown in seen) == {80: 16, 160: 32, 40: 4}[size[0]]

    with opened(path) as capture:
        record = capture.messages[6]
        whole = streams[str(record.tp.flow)]
        app = Panes(Structure(record, capture.bytes, capture.session))
        drive(app, story, size)


def test_the_screen_shows_hex_and_text() -> None:
    async def story(pilot: Pilot[None]) -> None:
        await pilot.press("down", "down", "down", "down", "down", "down")
        assert app.tree_pane.node is not None
        assert app.tree_pane.node.label == "body PYTHON_CALL"
        lines = screen(app.bytes_pane)
        assert lines[0] == " command: byte 0 of 203: 0x00 = 0"
        at = lines.index(" command: 203 bytes, 480..683 of the stream")
        assert lines[at + 2] == (
            " 000001f0  72 63 68 2e 64 69 73 74 72 69 62 75 74 65 64 2e  rch.distributed."
        )

    with opened(Path("basic_chain.pcap")) as capture:
        drive(app := Panes(Structure(capture.messages[6], capture.bytes, capture.session)), story)


def test_nodes_and_bytes_follow_each_other_without_echo() -> None:
    async def story(pilot: Pilot[None]) -> None:
        tree, pane = app.tree_pane, app.bytes_pane
        await pilot.press("down", "down", "down")
        await pilot.pause()
        assert app.heard == [
            "how it travelled",
            "descriptor: 4 payloads, 2 tensors",
            "type: FORWARD_AUTOGRAD_REQ (0x10f)",
        ]
        assert pane.byte == (1, 0)
        app.heard.clear()
        await pilot.press("tab", "right", "right", "right", "right")
        await pilot.pause()
        assert app.heard == ["message type 1", "message type 2", "message type 3", "message id 0"]
        assert tree.node is not None
        assert tree.node.label == "id: 1"
        app.heard.clear()
        await pilot.press("end")
        await pilot.pause()
        assert app.heard == ["storage 1 0"]
        assert tree.node.label == "tensor#1[4] float32 grad"
        await pilot.press("right", "down", "left")
        await pilot.pause()
        assert app.heard[1:] == ["storage 1 1", "storage 1 0"]
        assert tree.node.label == "tensor#1[4] float32 grad"
        app.heard.clear()
        await pilot.press("up", "up")
        await pilot.pause()
        assert app.heard == ["storage 0 32"]

    with opened(Path("basic_chain.pcap")) as capture:
        drive(app := Panes(Structure(capture.messages[6], capture.bytes, capture.session)), story)


def test_what_a_node_is_of_is_marked() -> None:
    async def story(pilot: Pilot[None]) -> None:
        await pilot.press("down", "down", "down")
        lines = screen(app.bytes_pane)
        y = next(at for at, line in enumerate(lines) if "0f 01 00 00" in line)
        plain = app.bytes_pane.rich_style.bgcolor
        pieces = styled(app.bytes_pane, y)
        marked = "".join(text for text, style in pieces if style.bgcolor != plain).strip()
        assert marked == "0f 01 00 00...."
        cursor = [text for text, style in pieces if style.reverse]
        assert cursor == ["0f", "."]

    with opened(Path("basic_chain.pcap")) as capture:
        drive(app := Panes(Structure(capture.messages[6], capture.bytes, capture.session)), story)


def test_a_click_goes_to_the_byte() -> None:
    async def story(pilot: Pilot[None]) -> None:
        lines = screen(app.bytes_pane)
        y = next(at for at, line in enumerate(lines) if re.match(" [0-9a-f]{8} ", line))
        await pilot.click(app.bytes_pane, offset=(lines[y].index("  ") + 2 + 3 * 5, y))
        assert app.bytes_pane.byte == (0, 5)
        await pilot.click(app.bytes_pane, offset=(11 + 3 * 16 + 1 + 7, y))
        assert app.bytes_pane.byte == (0, 7)

    with opened(Path("basic_chain.pcap")) as capture:
        drive(app := Panes(Structure(capture.messages[6], capture.bytes, capture.session)), story)


def check_holes(capture: Opened, record: RpcRecord, data: bytes) -> None:
    frames = b"".join([record.tp.descriptor_body, *record.tp.payloads])

    async def story(pilot: Pilot[None]) -> None:
        lines = [app.bytes_pane.lines.line(number, 80).text for number in range(len(app.bytes_pane.lines))]
        named = [found for line in lines if (found := re.search(r"·· ([\d,]+) bytes?: not captured", line))]
        missing = sum(int(found[1].replace(",", "")) for found in named)
        missing += sum(line.split("  ")[1].count("··") for line in lines if "byte" not in line)
        expected = sum(one.missing_bytes for one in record.tp.tensors)
        assert missing == expected + sum(record.tp.payload_missing or ())
        assert all(row in data[place : place + len(row)] or row in frames for place, row in rows(app))

    app = Panes(Structure(record, capture.bytes, capture.session))
    drive(app, story)


def test_holes_are_dots_and_named() -> None:
    data = content("torch/snap300.pcap")
    with opened(recorded("torch/snap300.pcap")) as capture:
        cut = [one for one in capture.records if any(t.extent and t.extent.missing for t in one.tp.tensors)]
        assert len(cut) >= 3
        for record in cut[:3]:
            check_holes(capture, record, data)


def test_sixty_four_megabytes_are_scrolled_without_being_read() -> None:
    read = 0
    record, source = call(storages=[bytes(1 << 20) * 64])
    inner = source._pread

    def pread(capture: int, offset: int, length: int) -> bytes:
        nonlocal read
        read += length
        return inner(capture, offset, length)

    source._pread = pread

    async def story(pilot: Pilot[None]) -> None:
        app.bytes_pane.focus()
        await pilot.press("end", "pageup", "pageup", "home", "pagedown", "end")
        assert app.bytes_pane.byte[1] == (64 << 20) - 16
        assert screen(app.bytes_pane)[-1].startswith(f" {(64 << 20) - 16:08x}  00 00")
        assert len(app.bytes_pane.lines) > 4_000_000

    app = Panes(Structure(record, source))
    drive(app, story)
    assert read < 1 << 17


def test_no_message() -> None:
    async def story(pilot: Pilot[None]) -> None:
        app.bytes_pane.focus()
        await pilot.press("right", "down", "end", "left")
        assert not any(screen(app.bytes_pane))

    app = Panes()
    drive(app, story)


def test_a_file_that_has_become_shorter(tmp_path: Path) -> None:
    async def story(pilot: Pilot[None]) -> None:
        app.bytes_pane.focus()
        await pilot.press("end")
        lines = screen(app.bytes_pane)
        assert "shorter" in lines[0]
        assert "·· ·· ·· ··" in lines[-1]

    path = tmp_path / "run.pcap"
    path.write_bytes((CAPTURES / "basic_chain.pcap").read_bytes())
    with Decoding([str(path)]) as decoding:
        record = list(decoding.records())[8]
        assert record.tp.tensors
        os.truncate(path, 30_000)
        app = Panes(Structure(record, decoding.bytes_beside(), decoding.session))
        drive(app, story, (240, 24))
