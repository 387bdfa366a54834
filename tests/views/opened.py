"""Captures decoded for the tests of views: records, session and bytes at once."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from rpcinspect.pipeline import Decoding, Options
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import Session
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.views.text.columns import Part, show_lines

CAPTURES = Path(__file__).resolve().parent.parent.parent / "captures"


@dataclass(frozen=True)
class Opened:
    """A decoded capture whose file is still open."""

    records: list[RpcRecord]
    """By row."""
    session: Session
    bytes: CaptureBytes

    @property
    def messages(self) -> list[RpcRecord]:
        """By index."""
        return [self.records[row] for row in self.session.order.tolist()]


@contextmanager
def opened(*paths: Path, options: Options | None = None) -> Iterator[Opened]:
    """Decodes captures, by path or by name in captures/."""
    with Decoding([str(CAPTURES / path) for path in paths], options) as decoding:
        records = list(decoding.records())
        yield Opened(records, decoding.session, decoding.bytes)


def told(parts: Iterable[Part]) -> list[str]:
    """The lines that parts of an answer become in a file."""
    console, out = file_console()
    show_lines(parts, console)
    return out.getvalue().splitlines()


def altered(run: RunModel, **answers: object) -> RunModel:
    """The same run with other answers than are worked out."""
    other = copy(run)
    vars(other).update(answers)
    return other


def file_console() -> tuple[Console, io.StringIO]:
    """As when output goes to a file."""
    out = io.StringIO()
    return Console(file=out, soft_wrap=True, highlight=False, markup=False), out


def terminal_console(width: int) -> tuple[Console, io.StringIO]:
    """As on a terminal of that width."""
    out = io.StringIO()
    console = Console(
        file=out,
        soft_wrap=True,
        highlight=False,
        markup=False,
        force_terminal=True,
        width=width,
        color_system="standard",
    )
    return console, out
