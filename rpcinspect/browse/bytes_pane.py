"""The bytes of a message in hex and as text; only those on the screen are read.

In: a message's bytes. Out: a widget; a message that says on which byte the cursor is. Frames count in the
stream, storages in the capture file, as `decode --message` has it; the lengths that stand before frames are
left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from rpcinspect.browse.lines import LineSource, LinesView, ListLine
from rpcinspect.browse.message_bytes import ByteListing, ByteSpan, MessageBytes
from rpcinspect.browse.node import Ranges
from rpcinspect.errors import RpcInspectError
from rpcinspect.fields.phrases import counted, printable

PER_LINE = (64, 56, 48, 40, 32, 24, 16, 8, 4)
MIN_DIGITS = 8
GAP = 2
HOLE = "··"


class HexLines(LineSource):
    """The lines of a message's bytes for a width."""

    def __init__(self, message: MessageBytes, width: int) -> None:
        self.message = message
        self._digits = max(MIN_DIGITS, *(len(f"{part.furthest():x}") for part in message.parts), 0)
        self.hex_start = 1 + self._digits + GAP
        self.per_line = next((n for n in PER_LINE if self.text_start(n) + n <= width), PER_LINE[-1])
        self.listing = ByteListing(message.parts, self.per_line)
        self.about = ""
        """Stands above the lines."""

    def text_start(self, per_line: int) -> int:
        """Returns the column of the text of so many bytes."""
        return self.hex_start + 3 * per_line - 1 + GAP

    def __len__(self) -> int:
        return self.listing.count

    def header(self, width: int) -> str:
        """Returns where the cursor is."""
        return f" {self.about}"

    def line(self, at: int, width: int) -> ListLine:
        """Returns a line; of bytes without any look of theirs."""
        span = self.listing.line(at)
        if span.kind != "bytes":
            return ListLine(self.words(span), "title" if span.kind == "title" else "dim")
        return ListLine(self.text(span, self.cells(span)))

    def text(self, span: ByteSpan, cells: Sequence[tuple[str, str]]) -> str:
        """Returns bytes in hex and as signs, behind the place of the first."""
        found = " ".join(cell for cell, _ in cells).ljust(3 * self.per_line - 1)
        return f"{self.offset(span)}{' ' * GAP}{found}{' ' * GAP}{''.join(sign for _, sign in cells)}"

    def words(self, span: ByteSpan) -> str:
        """Returns what is said of a part, or of a hole."""
        part = self.message.parts[span.part]
        if span.kind == "title":
            return f"{part.name}: {counted(part.length, 'byte')}, {part.about}"
        return f"{self.offset(span)}{' ' * GAP}{HOLE} {counted(span.end - span.start, 'byte')}: {part.lack}"

    def offset(self, span: ByteSpan) -> str:
        """Returns where the first byte of a line is; dots where nobody knows."""
        part = self.message.parts[span.part]
        line = range(span.start, min(span.end, span.start + self.per_line))
        place = next((place for at in line if (place := part.offset(at)) is not None), None)
        return "·" * self._digits if place is None else f"{place:0{self._digits}x}"

    def cells(self, span: ByteSpan) -> list[tuple[str, str]]:
        """Returns each byte of a line in hex and as a sign."""
        try:
            data = self.message.read(span.part, span.start, span.end)
        except (RpcInspectError, OSError):  # the file has become shorter, or is gone
            return [(HOLE, HOLE[0])] * (span.end - span.start)
        cells = [(f"{byte:02x}", chr(byte) if 32 <= byte < 127 else ".") for byte in data]
        for low, high in self.message.missing(span.part, span.start, span.end):
            cells[low:high] = [(HOLE, HOLE[0])] * (high - low)
        return cells

    def column(self, x: int) -> int | None:
        """Returns which byte of a line stands in a column of the screen."""
        text = self.text_start(self.per_line)
        if text <= x < text + self.per_line:
            return x - text
        return (x - self.hex_start) // 3 if self.hex_start <= x < text - GAP else None


class BytesPane(LinesView):
    """Shows a message's bytes in hex and as text, with a cursor on one of them."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"bytes--range", "bytes--byte", "bytes--offset"}
    DEFAULT_CSS = """
    BytesPane .bytes--range { background: $primary-background; color: $text; text-style: bold; }
    BytesPane .bytes--byte { text-style: reverse bold; }
    BytesPane .bytes--offset { color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "step(-1)", "left", show=False),
        Binding("right,l", "step(1)", "right", show=False),
    ]

    class ByteSelected(Message):
        """The cursor was moved to a byte."""

        def __init__(self, part: int, at: int) -> None:
            super().__init__()
            self.part = part
            """Of the message's bytes."""
            self.at = at

    def __init__(self) -> None:
        super().__init__()
        self._hex: HexLines | None = None
        self._bytes: MessageBytes | None = None
        self._ranges: Ranges = ()
        self._column = 0
        """Where in a line the cursor goes when it moves up or down."""
        self.byte = (0, 0)
        """The part, and which byte of it the cursor is on."""

    def show_bytes(self, message: MessageBytes) -> None:
        """Shows the bytes of a message."""
        self._bytes = message
        self._ranges = ()
        self.byte, self._column = (0, 0), 0
        self._lay()

    def on_resize(self) -> None:
        """Puts as many bytes in a line as there is room for."""
        if self._bytes is not None and self._inner_width:
            self._lay()
        super().on_resize()

    def _lay(self) -> None:
        assert self._bytes is not None
        self._hex = HexLines(self._bytes, self._inner_width)
        with self.prevent(self.ByteSelected):
            self.show(self._hex)
            self._go(*self.byte)

    def select(self, ranges: Ranges, *, scroll: bool = True) -> None:
        """Marks bytes, and puts the cursor on the first of them; nothing is told of that."""
        if ranges != self._ranges:
            self._ranges = ranges
            self.refresh()
        if scroll and ranges and self._hex is not None:
            with self.prevent(self.ByteSelected):
                self._go(ranges[0].part, ranges[0].start)

    def _go(self, part: int, at: int) -> None:
        """Puts the cursor on a byte."""
        if self._hex is None or part >= len(self._hex.message.parts):
            return
        one = self._hex.message.parts[part]
        at = max(0, min(at, one.length - 1))
        line = self._hex.listing.line_of(part, at)
        self._column = at % self._hex.per_line
        super().move_to(line, middle=True)
        self._note(part, at)

    def _note(self, part: int, at: int) -> None:
        """Takes notice of the byte that the cursor is on, and tells of it."""
        moved = (part, at) != self.byte
        self.byte = (part, at)
        if self._hex is not None:
            self._hex.about = self._about(part, at)
        self.refresh()
        if moved:
            self.post_message(self.ByteSelected(part, at))

    def _about(self, part: int, at: int) -> str:
        assert self._bytes is not None
        one = self._bytes.parts[part]
        if not one.length:
            return f"{one.name}: empty"
        missing = self._bytes.missing(part, at, at + 1)
        try:
            value = self._bytes.read(part, at, at + 1)[0]
            told = one.lack if missing else f"{value:#04x} = {value}"
        except (RpcInspectError, OSError) as error:
            told = printable(str(error))
        return f"{one.name}: byte {at:,} of {one.length:,}: {told}"

    def move_to(self, at: int, *, middle: bool = False) -> None:
        """Puts the cursor on a line."""
        super().move_to(at, middle=middle)
        if self._hex is not None and len(self._hex):
            span = self._hex.listing.line(self.cursor)
            wanted = span.start + (self._column if span.kind == "bytes" else 0)
            self._note(span.part, max(span.start, min(wanted, span.end - 1)))

    def action_step(self, by: int) -> None:
        """Moves the cursor by a byte, over the ends of lines and parts; over a hole at once."""
        if self._hex is None or self._bytes is None:
            return
        part, at = self.byte
        span = self._hex.listing.line(self._hex.listing.line_of(part, at))
        at = at + by if span.kind == "bytes" else span.end if by > 0 else span.start - 1
        while 0 <= part < len(self._bytes.parts):
            length = self._bytes.parts[part].length
            if 0 <= at < length:
                self._go(part, at)
                return
            part += by
            at = 0 if by > 0 else self._bytes.parts[part].length - 1 if part >= 0 else 0

    def on_click(self, event: events.Click) -> None:
        """Moves the cursor to the byte there."""
        column = None if self._hex is None else self._hex.column(event.x)
        if column is not None:
            self._column = column
        super().on_click(event)

    def render_line(self, y: int) -> Strip:
        """Makes one line of the screen."""
        at = y + int(self.scroll_offset.y) - self._header
        if self._hex is None or y < self._header or not 0 <= at < len(self._hex):
            return super().render_line(y)
        span = self._hex.listing.line(at)
        if span.kind != "bytes":
            return super().render_line(y)
        cells = self._hex.cells(span)
        line = Text(f" {self._hex.text(span, cells)}", self.rich_style, end="")
        line.stylize(self._look("offset"), 0, self._hex.hex_start)
        for start, end, style in self._marked(span, cells):
            text = self._hex.text_start(self._hex.per_line)
            line.stylize(style, self._hex.hex_start + 3 * start, self._hex.hex_start + 3 * end - 1)
            line.stylize(style, text + start, text + end)
        return Strip(line.render(self.app.console)).adjust_cell_length(self.size.width, self.rich_style)

    def _marked(self, span: ByteSpan, cells: Sequence[tuple[str, str]]) -> Iterator[tuple[int, int, Style]]:
        """Yields which bytes of a line look otherwise; what comes later lies above what came before."""
        for at, (cell, _) in enumerate(cells):
            if cell == HOLE:
                yield at, at + 1, self._style("dim")
        for one in self._ranges:
            start, end = max(one.start, span.start), min(one.end, span.end)
            if one.part == span.part and start < end:
                yield start - span.start, end - span.start, self._look("range")
        part, at = self.byte
        if part == span.part and span.start <= at < span.end:
            yield at - span.start, at - span.start + 1, self._look("byte")

    def _look(self, name: str) -> Style:
        return self.get_component_rich_style(f"bytes--{name}", partial=name != "offset")
