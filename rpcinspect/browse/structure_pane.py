"""The structure of a message as a list that folds.

In: a structure. Out: a widget; messages that say which node is selected, and which tensor is to be opened.
"""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message

from rpcinspect.browse.lines import LineSource, LinesView, ListLine, NoLines
from rpcinspect.browse.node import Node
from rpcinspect.browse.screens import HelpScreen
from rpcinspect.browse.structure import Structure

CLOSED, OPEN, LEAF = "▸", "▾", " "
OPEN_AT_FIRST = ("body ", "tensor table")
"""How the labels of what is open from the beginning start."""


class NodeLines(LineSource):
    """The nodes that are to be seen, each with its depth."""

    def __init__(self, root: Node) -> None:
        self.rows: list[tuple[Node, int]] = [(root, 0)]
        self._open: set[Node] = set()
        self.unfold(0)
        for node in root.children:
            if node.label.startswith(OPEN_AT_FIRST):
                self.unfold(self.place(node, 0))

    def __len__(self) -> int:
        return len(self.rows)

    def line(self, at: int, width: int) -> ListLine:
        node, depth = self.rows[at]
        mark = LEAF if not node.has_children else OPEN if node in self._open else CLOSED
        return ListLine(f"{'  ' * depth}{mark} {node.label}", node.look)

    def is_open(self, at: int) -> bool:
        """Returns whether the children of a line's node are to be seen."""
        return self.rows[at][0] in self._open

    def unfold(self, at: int) -> None:
        """Shows the children of a line's node."""
        node, depth = self.rows[at]
        if node.has_children and node not in self._open:
            self._open.add(node)
            self.rows[at + 1 : at + 1] = list(self._below(node, depth + 1))

    def _below(self, node: Node, depth: int) -> list[tuple[Node, int]]:
        """What of a node is to be seen: what was open below it is so again."""
        found: list[tuple[Node, int]] = []
        stack = [(child, depth) for child in reversed(node.children)]
        while stack:
            one, level = stack.pop()
            found.append((one, level))
            if one in self._open:
                stack += [(child, level + 1) for child in reversed(one.children)]
        return found

    def fold(self, at: int) -> None:
        """Hides them."""
        self._open.discard(self.rows[at][0])
        end = at + 1
        while end < len(self.rows) and self.rows[end][1] > self.rows[at][1]:
            end += 1
        del self.rows[at + 1 : end]

    def parent(self, at: int) -> int:
        """Returns the line of what a node is below; the first line's own."""
        depth = self.rows[at][1]
        while at > 0 and self.rows[at][1] >= depth:
            at -= 1
        return at

    def place(self, node: Node, start: int) -> int:
        """Returns the line of a node that is to be seen, at or below a line."""
        return next(at for at in range(start, len(self.rows)) if self.rows[at][0] is node)


class StructurePane(LinesView):
    """The widget."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "fold", "fold", show=False),
        Binding("right,l", "unfold", "unfold", show=False),
    ]

    class NodeSelected(Message):
        """The cursor was moved to a node."""

        def __init__(self, node: Node) -> None:
            super().__init__()
            self.node = node

    class TensorChosen(NodeSelected):
        """Enter was pressed on a tensor, or on what refers to one: `node.tensor` is its number."""

    def __init__(self) -> None:
        super().__init__(NoLines("no message is chosen"))
        self.structure: Structure | None = None
        self._shown: NodeLines | None = None

    def show_structure(self, structure: Structure) -> None:
        """Shows the tree of a message."""
        self.structure, self._shown = structure, NodeLines(structure.root)
        self.show(self._shown)

    @property
    def node(self) -> Node | None:
        """Returns the node that the cursor is on."""
        return None if self._shown is None else self._shown.rows[self.cursor][0]

    def select_byte(self, part: int, at: int) -> Node | None:
        """Moves the cursor to the innermost node that a byte is of, and returns the node; nothing is told of
        that."""
        if self.structure is None or self._shown is None:
            return None
        way = self.structure.innermost(part, at)
        if way[-1] is self.node:
            return way[-1]
        line, before = 0, len(self._shown)
        for node in way[1:]:
            self._shown.unfold(line)
            line = self._shown.place(node, line)
        if len(self._shown) != before:
            self.grown()
        with self.prevent(self.NodeSelected):
            self.move_to(line, middle=True)
        return way[-1]

    def move_to(self, at: int, *, middle: bool = False) -> None:
        """Puts the cursor on a node, and tells of it."""
        before = self.node
        super().move_to(at, middle=middle)
        node = self.node
        if node is not None and node is not before:
            self.post_message(self.NodeSelected(node))

    def action_fold(self) -> None:
        """Hides what is below, or goes to what the node is below."""
        if self._shown is None:
            return
        if self._shown.is_open(self.cursor):
            self._shown.fold(self.cursor)
            self.grown()
        else:
            self.move_to(self._shown.parent(self.cursor))

    def action_unfold(self) -> None:
        """Shows what is below, or goes there."""
        if self._shown is None:
            return
        if self._shown.is_open(self.cursor):
            self.move_to(self.cursor + 1)
        else:
            self._shown.unfold(self.cursor)
            self.grown()

    def action_choose(self) -> None:
        """Opens a tensor; folds and unfolds what has parts; shows a longer text than there is room for."""
        node = self.node
        if self._shown is None or node is None:
            return
        if node.tensor is not None:
            self.post_message(self.TensorChosen(node))
        elif self._shown.is_open(self.cursor):
            self.action_fold()
        elif node.has_children:
            self.action_unfold()
        elif cell_len(node.label) > self.size.width - 2 * self._shown.rows[self.cursor][1] - 4:
            self.app.push_screen(HelpScreen(Text(node.label)))
