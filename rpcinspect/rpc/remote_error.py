r"""The error that an answer reports: on which workers it came by, and what it was in the first place.

In: a record. Out: type and text of a pickled RemoteException or of an EXCEPTION; of the text, ids of workers,
outermost first, and one line. Each worker that passes an error on puts itself in front of the text: `On
WorkerInfo(id=1, name=…):` for Python functions (torch/distributed/rpc/internal.py), `Error on Node 1: ` for
backward passes (request_callback_impl.cpp). Inside of another Python error the text stands once as a
`repr`, with `\n` for line breaks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from rpcinspect.late_pattern import late
from rpcinspect.pickles.semantic import remote_exception
from rpcinspect.rpc.command import ExceptionResponse
from rpcinspect.rpc.record import RpcRecord

TORCHSCRIPT_FAILED = "The following operation failed in the TorchScript interpreter"

NODE = late(r"On WorkerInfo\(id=(\d{1,5}), name=[^)\n]*\):|[Ee]rror on [Nn]ode (\d{1,5}):", re.ASCII)
_BREAK = late(r"\n|\\+n")
_ESCAPED = late(r"\\([ntr\\'\"])")
"""Escapes of other characters, as of control codes (`\\x1b`), stay as they are."""
_UNESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_LET_THROUGH = late(r"(?:[\w.]+: |[\w.]+\(|[\s'\"\\])*")
"""What stands before another worker's error where no words were added: `RuntimeError('KeyError: 'On …`."""
_CALL = late(r"[A-Za-z_][\w.]*\(.*\)", re.DOTALL)


class RemoteError(Struct, frozen=True):
    """A failure that an answer reports."""

    type: str | None
    """`builtins.ValueError`; None where only the text tells."""
    text: str


def error_of(record: RpcRecord) -> RemoteError | None:
    """Returns the failure that an answer reports; None for other messages."""
    if record.pattern is not None:  # no message that fails becomes one
        return None
    command, pickle = record.rpc.command, record.facts.pickle
    if isinstance(command, ExceptionResponse):
        return RemoteError(None, command.text.decode("utf-8", "backslashreplace"))
    failure = remote_exception(pickle.root) if record.facts.failed and pickle is not None else None
    if failure is None:
        return None
    return RemoteError(
        None if failure.exception_type is None else str(failure.exception_type), failure.message
    )


class Origin(Struct, frozen=True):
    """Where an error came from, as far as the text names it."""

    nodes: tuple[int, ...]
    """Ids of the workers that it came by, the one where it was raised last."""
    cause: str
    """What it was there, in one line."""
    beside: tuple[int, ...] = ()
    """Those whose errors stand beside that one, as where a function puts several into one text."""


def origin(text: str) -> Origin:
    """The origin of an error."""
    nodes: dict[int, int] = {}
    for found in NODE.finditer(text):
        nodes.setdefault(int(found[1] or found[2]), found.end())
    inner = text[next(reversed(nodes.values())) :] if nodes else text
    if len(nodes) > 1:
        escaped = _BREAK.search(inner)
        for _ in range(0 if escaped is None else (len(escaped[0]) - 1).bit_length()):
            inner = _unescaped(inner)  # a `repr` in a `repr` has twice the backslashes, and one
    cause = cause_line([part for part in inner.split("\n") if part.strip()])
    return Origin(tuple(nodes), cause, _beside(text, nodes))


def _beside(text: str, nodes: Mapping[int, int]) -> tuple[int, ...]:
    """Returns those behind the first one that are escaped as often as the last one: what quotes is less."""
    breaks = {node: _BREAK.match(text, end) for node, end in nodes.items()}
    depths = {node: len(found[0]) for node, found in breaks.items() if found is not None}
    *others, last = nodes or (-1,)
    return tuple(node for node in others[1:] if node in depths and depths[node] == depths.get(last))


def quoting(text: str) -> Origin | None:
    """Returns an error in whose words that of another worker is quoted; None where there are no words."""
    first, second = [*NODE.finditer(text), None, None][:2]
    if first is None or second is None or _LET_THROUGH.fullmatch(text, first.end(), second.start()):
        return None
    lines = [line for line in text[first.end() :].split("\n") if line.strip()]
    return Origin((int(first[1] or first[2]),), cause_line(lines))


def readable(cause: str) -> str:
    """A cause as people read it: breaks and indents in a `repr` become spaces, nothing is escaped."""
    return " ".join((_unescaped(cause) if _CALL.fullmatch(cause) else cause).split())


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: _UNESCAPED.get(found[1], found[1]), text)


def cause_line(lines: Sequence[str]) -> str:
    """Returns the line that names the failure: the first that is not blank, in TorchScript the last."""
    if len(lines) > 1 and lines[0].startswith(TORCHSCRIPT_FAILED):
        return lines[-1].strip()
    return lines[0].strip() if lines else ""
