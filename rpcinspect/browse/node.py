"""The lines of a tree of which only what is open is made.

In: labels, ranges of bytes, and what makes the nodes below. Out: nodes; a long list is pages, each of which
makes its own items. Labels are printable and short: nothing else of what was captured gets to the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from rpcinspect.browse.lines import LineLook
from rpcinspect.browse.message_bytes import ByteRange
from rpcinspect.fields.phrases import counted, printable, shorten

MAX_LABEL = 200
PAGE = 200
"""Children of a node, at most."""
LINE = 160
"""Characters of a long text that stand in a line."""
MAX_TEXT = 1 << 20
"""Characters of a text that are shown."""
Ranges: TypeAlias = tuple[ByteRange, ...]


class Node:
    """A line of the tree."""

    __slots__ = ("_children", "_make", "label", "look", "ranges", "tensor")

    def __init__(
        self,
        label: str,
        ranges: Ranges = (),
        children: Callable[[], Sequence[Node]] | None = None,
        *,
        look: LineLook = "",
        tensor: int | None = None,
    ) -> None:
        self.label = clean(label)
        self.ranges = ranges
        """The bytes that it stands for, or those that it is among; the narrowest first."""
        self.look = look
        """As lines have it."""
        self.tensor = tensor
        """The number of the tensor that the node is, or refers to."""
        self._make = children
        self._children: Sequence[Node] | None = None

    def holds(self, part: int, at: int) -> bool:
        """Returns whether a byte is among its own."""
        return any(one.holds(part, at) for one in self.ranges)

    @property
    def has_children(self) -> bool:
        """Returns whether there is anything below."""
        return self._make is not None

    @property
    def children(self) -> Sequence[Node]:
        """Returns what is below, made at the first time."""
        if self._children is None:
            self._children = () if self._make is None else self._make()
        return self._children


def clean(text: str) -> str:
    """Returns a text of any length as a label."""
    return shorten(printable(text[: MAX_LABEL + 1]), MAX_LABEL)


def pages(
    count: int,
    make: Callable[[int], Node],
    ranges: Ranges,
    noun: str = "items",
    within: Callable[[int, int], Ranges] | None = None,
) -> Callable[[], Sequence[Node]]:
    """Returns what makes the nodes of a list: of a long one its pages, each of which makes its own. `ranges`:
    of each page, unless `within(start, end)` tells it."""
    told = within or (lambda start, end: ranges)
    return lambda: _paged(0, count, make, told, noun)


def _page_size(count: int) -> int:
    """How many items each child stands for."""
    size = 1
    while count > size * PAGE:
        size *= PAGE
    return size


def _paged(
    start: int, end: int, make: Callable[[int], Node], within: Callable[[int, int], Ranges], noun: str
) -> Sequence[Node]:
    size = _page_size(end - start)
    if size == 1:
        return [make(number) for number in range(start, end)]

    def page(low: int) -> Node:
        high = min(low + size, end)
        label = f"{noun} {low:,}…{high - 1:,}"
        return Node(label, within(low, high), lambda: _paged(low, high, make, within, noun), look="dim")

    return [page(low) for low in range(start, end, size)]


def way_down(node: Node, place: int, count: int) -> Iterator[Node]:
    """Yields the pages in which an item of a node with so many lies, then the item."""
    while True:
        size = _page_size(count)
        number, place = divmod(place, size)
        node = node.children[number]
        yield node
        if size == 1:
            return
        count = min(size, count - number * size)


def text_node(label: str, text: str, ranges: Ranges) -> Node:
    """A text that may have many lines, or a long one: they stand below."""
    if len(label) + len(text) <= MAX_LABEL and "\n" not in text:
        return Node(label, ranges)

    def make() -> Sequence[Node]:
        lines = [
            line[at : at + LINE]
            for line in text[:MAX_TEXT].split("\n")
            for at in range(0, len(line) or 1, LINE)
        ]
        if len(text) > MAX_TEXT:
            lines.append(f"… {counted(len(text) - MAX_TEXT, 'more character')}")
        return pages(len(lines), lambda number: Node(lines[number], ranges), ranges, "lines")()

    return Node(label, ranges, make)
