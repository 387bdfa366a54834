"""A list of lines with a cursor, as long as one likes: only lines on the screen are made.

In: a source of lines, which may grow. Out: a widget, and messages that say where the cursor is. Textual's own
table takes seconds for a hundred thousand rows; this one holds none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

LineLook: TypeAlias = Literal["", "bad", "odd", "dim", "title", "changed"]
MAX_LINE = 4000
"""Characters of a line that are looked at: longer ones are cut before anything measures or styles them."""


class ListLine(Struct, frozen=True):
    """A line on the screen."""

    text: str
    """Printable."""
    look: LineLook = ""
    mark: str = ""
    """A character that stands before it."""


class LineSource(ABC):
    """Lines that a list shows, each made when it comes onto the screen."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def line(self, at: int, width: int) -> ListLine:
        """Makes the line at a place, for a list so many cells wide."""

    def header(self, width: int) -> str:
        """Makes the line above them; empty: there is none."""
        return ""

    def texts(self, ats: Sequence[int]) -> list[str]:
        """Returns what is searched of some lines."""
        return [self.line(at, MAX_LINE).text for at in ats]


class FixedLines(LineSource):
    """Lines that are there already."""

    def __init__(self, lines: Sequence[ListLine] = ()) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, at: int, width: int) -> ListLine:
        return self._lines[at]


class NoLines(FixedLines):
    """An empty list, with words for why."""

    def __init__(self, why: str = "", view: str = "") -> None:
        """`view`: enter shows that one."""
        super().__init__([ListLine(why, "dim")] if why else [])
        self.view = view


class LinesView(ScrollView, can_focus=True):
    """The widget: arrows, j and k, pages, g and G, mouse; a cursor that follows the end until it is moved."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"lines--{look}" for look in ("cursor", "away", "bad", "odd", "dim", "title", "changed")
    }
    DEFAULT_CSS = """
    LinesView { scrollbar-size-vertical: 1; overflow-x: hidden; overflow-y: scroll; }
    LinesView .lines--cursor { text-style: reverse; }
    LinesView .lines--away { background: $panel; text-style: bold; }
    LinesView .lines--bad { color: $text-error; }
    LinesView .lines--odd { color: $text-warning; }
    LinesView .lines--dim { text-style: dim; }
    LinesView .lines--title { text-style: bold; }
    LinesView .lines--changed { color: $text-warning; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "page up", show=False),
        Binding("pagedown,ctrl+f,space", "page(1)", "page down", show=False),
        Binding("home,g", "edge(-1)", "first", show=False),
        Binding("end,G", "edge(1)", "last", show=False),
        Binding("left,h,ctrl+pageup", "shift(-1)", "shift long lines to the left", show=False),
        Binding("right,l,ctrl+pagedown", "shift(1)", "shift them to the right", show=False),
        Binding("enter", "choose", "open", show=False),
    ]

    class Moved(Message):
        """The cursor is on another line, or that line has changed."""

        def __init__(self, view: LinesView, at: int) -> None:
            super().__init__()
            self._view = view
            self.at = at
            self._lines = view.lines

        @property
        def is_so(self) -> bool:
            """Returns whether the cursor still is there: the list may show other lines by now."""
            return self._view.lines is self._lines and self._view.cursor == self.at

        @property
        def control(self) -> LinesView:
            """Returns the list whose cursor has moved."""
            return self._view

    class Chosen(Moved):
        """Enter was pressed on a line, or the mouse twice."""

    def __init__(self, lines: LineSource | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lines: LineSource = NoLines() if lines is None else lines
        self.cursor = 0
        self.can_follow = False
        """Lines are added at the end."""
        self.following = False
        """The cursor stays at the end while they are."""
        self.shift = 0
        """Cells at the left of lines that are not shown."""
        self._header = 0

    def show(self, lines: LineSource, cursor: int = 0) -> None:
        """Shows the lines of another source, with the cursor on one of them."""
        self.lines = lines
        self.cursor, self.shift = cursor, 0
        self.grown()
        self._reveal(middle=True)
        self.refresh()
        self.post_message(self.Moved(self, self.cursor))

    def grown(self) -> None:
        """Takes notice that there are more lines, or that lines have changed."""
        self._header = 1 if self.lines.header(max(1, self._inner_width)) else 0
        self.cursor = min(self.cursor, max(0, len(self.lines) - 1))
        self.virtual_size = Size(self._inner_width, len(self.lines) + self._header)
        if self.following and len(self.lines):
            self._put(len(self.lines) - 1)
        self.refresh()

    @property
    def _inner_width(self) -> int:
        return max(0, self.size.width - self.styles.scrollbar_size_vertical)

    def on_resize(self) -> None:
        """Takes notice of another width."""
        self.grown()
        self._reveal()

    def render_line(self, y: int) -> Strip:
        """Makes one line of the screen."""
        width = self._inner_width
        if self._header and y == 0:
            return self._strip(shifted(self.lines.header(width), self.shift), width, self._style("title"))
        at = y + int(self.scroll_offset.y) - self._header
        if not 0 <= at < len(self.lines):
            return Strip.blank(self.size.width, self.rich_style)
        line = self.lines.line(at, width)
        style = self._style(line.look)
        if at == self.cursor:
            style += self._style("cursor" if self.has_focus else "away")
        return self._strip(f"{line.mark or ' '}{shifted(line.text, self.shift)}", width, style)

    def _strip(self, text: str, width: int, style: Style) -> Strip:
        return Strip([Segment(fitted(text, width), style)], width).adjust_cell_length(
            self.size.width, self.rich_style
        )

    def _style(self, look: str) -> Style:
        if not look:
            return self.rich_style
        return self.get_component_rich_style(f"lines--{look}", partial=look in ("cursor", "away"))

    def move_to(self, at: int, *, middle: bool = False) -> None:
        """Puts the cursor on a line and shows it; the end is not followed then."""
        self.following = False
        self._put(at, middle=middle)

    def _put(self, at: int, *, middle: bool = False) -> None:
        at = max(0, min(at, len(self.lines) - 1))
        before, top = self.cursor, int(self.scroll_offset.y)
        self.cursor = at
        self._reveal(middle=middle)
        if int(self.scroll_offset.y) != top:
            self.refresh()
        else:  # a whole screen costs ten times as much as two lines
            self.refresh_line_at(before)
            self.refresh_line_at(at)
        if at != before:
            self.post_message(self.Moved(self, at))

    def _reveal(self, *, middle: bool = False) -> None:
        height = max(1, self.size.height - self._header)
        top = int(self.scroll_offset.y)
        if middle and not top <= self.cursor < top + height:
            top = self.cursor - height // 2
        elif self.cursor < top:
            top = self.cursor
        elif self.cursor >= top + height:
            top = self.cursor - height + 1
        self.scroll_to(y=max(0, top), animate=False, force=True, immediate=True)

    def action_move(self, by: int) -> None:
        """Moves the cursor by some lines."""
        self.move_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        """Moves the cursor by some screens."""
        self.action_move(by * max(1, self.size.height - self._header - 1))

    def action_edge(self, to: int) -> None:
        """Moves the cursor to the first or to the last line; the last one is followed."""
        self.move_to(0 if to < 0 else len(self.lines) - 1)
        self.following = self.can_follow and to > 0

    def action_shift(self, by: int) -> None:
        """Shifts lines that are longer than the list is wide, by half of its width."""
        width = self._inner_width
        top = int(self.scroll_offset.y)
        seen = range(top, min(len(self.lines), top + self.size.height))
        longest = max((cell_len(self.lines.line(at, width).text[:MAX_LINE]) for at in seen), default=0)
        step = max(1, width // 2)
        self.shift = max(0, min(self.shift + by * step, longest + 1 - width + step - 1) // step * step)
        self.refresh()

    def action_choose(self) -> None:
        """Opens what the cursor is on."""
        if len(self.lines):
            self.post_message(self.Chosen(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        """Moves the cursor there; the second click opens."""
        at = event.y + int(self.scroll_offset.y) - self._header
        if event.y < self._header or not 0 <= at < len(self.lines):
            return
        self.move_to(at)
        if event.chain > 1:
            self.action_choose()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Moves the cursor with the wheel."""
        event.stop()
        self.action_move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Moves the cursor with the wheel."""
        event.stop()
        self.action_move(-3)

    def refresh_line_at(self, at: int) -> None:
        """Draws one line again."""
        y = at - int(self.scroll_offset.y) + self._header
        self.refresh(Region(0, y, self.size.width, 1))


def shifted(text: str, by: int) -> str:
    """Leaves out so many cells at the left."""
    if not by:
        return text
    text = text[:MAX_LINE]
    if text.isascii():
        return text[by:]
    at = cells = 0
    while at < len(text) and cells < by:
        cells += cell_len(text[at])
        at += 1
    return " " * (cells - by) + text[at:]


def fitted(text: str, width: int) -> str:
    """Cuts a text for a line so many cells wide, with a sign of it, or fills the line up."""
    if len(text) > MAX_LINE:
        text = text[:MAX_LINE]
    if cell_len(text) > width:
        return set_cell_size(text, max(0, width - 1)) + ("…" if width else "")
    return set_cell_size(text, width)
