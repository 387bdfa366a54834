"""One tensor in full, as a screen.

In: a record, the captures' bytes, the number of a tensor. Out: a screen that is left with escape. What all
elements come to is worked out in a thread of its own, so that no size of a tensor keeps anybody waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.worker import get_current_worker

from rpcinspect.browse.key_line import KeyLine
from rpcinspect.browse.lines import LinesView
from rpcinspect.browse.screens import AskScreen
from rpcinspect.browse.tensor_lines import BINS, TensorLines, Worked
from rpcinspect.errors import DecodeError, RpcInspectError
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.message import Tensor, tensors_of
from rpcinspect.run.tensors import LastRead
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.unexpected import fault

HASHED_BYTES = 1 << 28
"""Larger tensors are not hashed: that takes all of their bytes at once."""
EXPANDED_BYTES = 1 << 28
"""How much of a tensor that repeats bytes of its storage, or shares them, is looked at."""


class TensorPane(LinesView):
    """Shows one tensor: what it is, what all of its elements come to, and each element. Begins with what the
    message says of it; the rest is added as it becomes known."""

    def __init__(self, record: RpcRecord, source: CaptureBytes, number: int) -> None:
        """`source`: nobody else may be moving its window while it is used here."""
        super().__init__()
        self._record = record
        self._source = source
        self._number = number
        self._tensors = tensors_of(record, LastRead(source))
        self.worked = Worked(note="is being worked out")

    @property
    def tensor(self) -> Tensor:
        """Returns the tensor that is shown."""
        return self._tensors[self._number]

    def on_mount(self) -> None:
        """Begins to work out what takes time."""
        self._work_out()

    def on_resize(self) -> None:
        """Puts as many elements in a line as there is room for."""
        self._lay()
        super().on_resize()

    def _lay(self) -> None:
        if self._inner_width:
            lines = TensorLines(self._record, self._tensors, self._number, self.worked, self._inner_width)
            self.show(lines, self.cursor)

    @work(thread=True, exclusive=True)
    def _work_out(self) -> None:
        worker, source = get_current_worker(), self._source

        def pread(capture: int, offset: int, length: int) -> bytes:
            if worker.is_cancelled:
                raise DecodeError("tensor", "nobody waits for it any more")
            return source.read(capture, offset, length)

        own = CaptureBytes(pread, EXPANDED_BYTES)
        for worked in work_out(tensors_of(self._record, LastRead(own))[self._number]):
            self.call_later(self._know, worked)

    def _know(self, worked: Worked) -> None:
        self.worked = worked
        self._lay()


class TensorScreen(AskScreen[None]):
    """The screen: keys that are for the message below do nothing here."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape,backspace", "dismiss", "back"),
        Binding("?", "app.help", "help"),
    ]

    def __init__(self, record: RpcRecord, source: CaptureBytes, number: int) -> None:
        super().__init__()
        self._pane = TensorPane(record, source, number)

    def compose(self) -> ComposeResult:
        """Makes the pane, and the line that says how to leave it."""
        yield self._pane
        yield KeyLine()


def work_out(tensor: Tensor) -> Iterator[Worked]:
    """Yields what all elements come to, more each time; or why it can't be told."""
    if tensor.meta.storage is None:
        yield Worked(note="are those of its parts")
        return
    if tensor.complete and not tensor.affordable:
        yield Worked(note="are left out: the tensor repeats the same bytes too often")
        return
    try:
        told = tensor.statistics()
        yield Worked(told, note="histogram and hash are being worked out")
        bins = tensor.histogram(told, BINS)
        hashed = tensor.nbytes <= HASHED_BYTES
        yield Worked(told, bins, note="the hash is being worked out" if hashed else "")
        yield Worked(told, bins, tensor.sha256 if hashed else None)
    except (RpcInspectError, OSError) as error:
        yield Worked(note=f"can't be told: {error}")
    except Exception as error:
        yield Worked(note=f"can't be told: {fault(error)}")
