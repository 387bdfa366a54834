"""Which messages of a session a filter picks.

In: records as they become complete, then the session. Out: `feed` says at once whether a message may be
picked, so that a view need not render the others; `finish` says which are. What a message says itself is
asked for only when it comes, and one small number is kept of it; names, numbers, answers and findings are
known at the end.

A message that lacks a field makes every comparison with it false, also `!=`. With several values, one that
fits is enough.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any, TypeAlias

from rpcinspect.fields.field import Field, Seen, Values, several
from rpcinspect.fields.kinds import FLAG, SHAPE, same_shape
from rpcinspect.fields.message import MessageValues, Reader
from rpcinspect.fields.phrases import printable
from rpcinspect.fields.session import AtTheEnd, SoFar
from rpcinspect.filter.expression import And, Compare, Expression, Not, Or, Present
from rpcinspect.filter.matches import Shown
from rpcinspect.filter.regex import compile_search
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.participation import participation_of
from rpcinspect.session.model import NONE, Session
from rpcinspect.tcp.ranges import CaptureBytes

Test: TypeAlias = Callable[[Values], bool]
Truth: TypeAlias = bool | None
"""None: it will be known later."""
Look: TypeAlias = Callable[[int], Truth]
"""The truth of the comparison with that number."""
Predicate: TypeAlias = Callable[[Look], Truth]

ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

HINTED = {
    **dict.fromkeys(("src", "dst", "worker"), "workers are"),
    "call": "calls are of",
    "type": "types are",
    "finding": "findings are",
}
"""Fields of which few values are in a run, and what to call these."""
MAX_HINTS = 8
NO, YES = -2, -1
"""What is kept of a message that is decided already; else a bit for each comparison that is true."""


class Filter:
    """An expression, ready to be asked."""

    def __init__(self, expression: Expression, text: str) -> None:
        """`text`: as the user wrote it."""
        self.text = text
        self.leaves: list[Present | Compare] = []
        """All comparisons, from left to right, repeats included."""
        self.judge = _judge(expression, self.leaves)
        self.fields: tuple[Field, ...] = tuple(leaf.field for leaf in self.leaves)
        self.tests: tuple[Test, ...] = tuple(_test(leaf) for leaf in self.leaves)

    @property
    def late(self) -> tuple[str, ...]:
        """Returns the names of the fields that have no value before the end."""
        return tuple(dict.fromkeys(field.name for field in self.fields if not field.streams))


class Selection:
    """The stage: `feed` every record, then `finish`."""

    def __init__(self, chosen: Filter, source: CaptureBytes) -> None:
        self._filter = chosen
        self._reader = Reader(source)
        self._states: list[int] = []
        self._same: dict[int, int] = {}
        """States that came before: equal ones are one object."""

    def feed(self, record: RpcRecord) -> bool:
        """Takes the next message; returns whether it may match."""
        state = record.told(self._state)
        self._states.append(self._same.setdefault(state, state))
        return state != NO

    def _state(self, record: RpcRecord) -> int:
        """Returns `YES`, `NO`, or which of the tests hold where only the end decides."""
        asked, bits = self._filter, 0
        message = MessageValues(record, self._reader)

        def look(number: int) -> Truth:
            nonlocal bits
            field = asked.fields[number]
            if field.late:
                return None
            truth = asked.tests[number](field.values(message))
            if truth:
                bits |= 1 << number
            return truth

        truth = asked.judge(look)
        return bits if truth is None else YES if truth else NO

    def finish(self, session: Session) -> Shown:
        """Which are picked."""
        rows = bytes(self._picked(session))
        hints = () if any(rows) else tuple(_hints(self._filter, session))
        return Shown(self._filter.text, rows, participation_of(session, rows), hints)

    def _picked(self, session: Session) -> bytearray:
        asked, picked = self._filter, bytearray(state == YES for state in self._states)
        open_ = [row for row, state in enumerate(self._states) if state >= 0]
        if not open_:
            return picked
        known = AtTheEnd(session).at(open_)
        late = [field.column(known) if field.late else None for field in asked.fields]
        for at, row in enumerate(open_):

            def look(number: int, at: int = at, state: int = self._states[row]) -> Truth:
                column = late[number]
                if column is None:
                    return bool(state >> number & 1)
                return asked.tests[number](several(column[at]))

            picked[row] = bool(asked.judge(look))
        return picked


class CallSelection(Selection):
    """Selects calls: a request and its answer match together or not at all. Either may have the content that
    a filter asks for; sender, time and type are those of the request."""

    def __init__(self, chosen: Filter, source: CaptureBytes) -> None:
        super().__init__(chosen, source)
        self._said = sum(1 << n for n, field in enumerate(chosen.fields) if not isinstance(field, Seen))
        """A bit for each comparison with what a message says."""

    def _state(self, record: RpcRecord) -> int:
        """Which of the tests hold; the answer may change what they come to."""
        asked, message = self._filter, MessageValues(record, self._reader)
        fields = enumerate(asked.fields)
        return sum(1 << n for n, one in fields if not one.late and asked.tests[n](one.values(message)))

    def _picked(self, session: Session) -> bytearray:
        columns, states = session.messages, self._states
        pairs = [
            (row, partner)
            for row, (partner, forth) in enumerate(zip(columns.partner, columns.from_client, strict=True))
            if forth and partner != NONE
        ]
        for request, answer in pairs:
            states[request] |= states[answer] & self._said
            states[answer] = NO
        picked = super()._picked(session)
        for request, answer in pairs:
            picked[answer] = picked[request]
        return picked


class StreamSelection(Selection):
    """Selects messages for views that print at once, by what is known by then."""

    def __init__(self, chosen: Filter, decoding: Decoding, known: SoFar | None = None) -> None:
        """`known`: what is known so far, for another thread than that of the decoding."""
        super().__init__(chosen, decoding.bytes)
        self._known = known or SoFar(decoding)

    def _state(self, record: RpcRecord) -> int:
        asked, message = self._filter, MessageValues(record, self._reader)
        self._known.at(record)

        def look(number: int) -> Truth:
            field = asked.fields[number]
            values = several(field.column(self._known)[0]) if field.late else field.values(message)
            return asked.tests[number](values)

        return YES if asked.judge(look) else NO


def _hints(chosen: Filter, session: Session) -> Iterator[str]:
    """Returns, for each comparison with a text that no message has, the nearest existing values."""
    known = AtTheEnd(session).at(range(len(session.messages)))
    for leaf in chosen.leaves:
        if isinstance(leaf, Compare) and leaf.operator in ("==", "in") and leaf.field.name in HINTED:
            there = {value for cell in leaf.field.column(known) for value in several(cell)}
            wanted = leaf.value if leaf.operator == "in" else (leaf.value,)
            if there and there.isdisjoint(wanted):
                near = get_close_matches(wanted[0], there, MAX_HINTS, 0.0)
                more = f" and {len(there) - len(near):,} more" if len(there) > len(near) else ""
                names = ", ".join(map(printable, sorted(near)))
                yield f"no message has {printable(str(leaf))}: {HINTED[leaf.field.name]} {names}{more}"


def _test(leaf: Present | Compare) -> Test:
    """What a comparison asks of a message's values."""
    if isinstance(leaf, Present):
        return any if leaf.field.kind is FLAG else _is_there
    value = leaf.value
    if leaf.operator == "~":
        search = compile_search(value)
        return lambda values: any(map(search, values))
    if leaf.field.kind is SHAPE:
        return _shape_test(leaf.operator, value)
    if leaf.operator == "in":
        wanted = frozenset(value)
        return lambda values: not wanted.isdisjoint(values)
    if leaf.operator == "==":
        return lambda values: value in values
    compare = ORDERS[leaf.operator]
    return lambda values: any(compare(item, value) for item in values)


def _is_there(values: Values) -> bool:
    return len(values) > 0


def _shape_test(asked: str, value: Any) -> Test:
    patterns = value if asked == "in" else (value,)

    def fits(shape: tuple[int, ...]) -> bool:
        return any(same_shape(shape, pattern) for pattern in patterns)

    if asked == "!=":
        return lambda values: any(not fits(shape) for shape in values)
    return lambda values: any(fits(shape) for shape in values)


def _judge(expression: Expression, leaves: list[Present | Compare]) -> Predicate:
    """The question to a tree, whose comparisons are added to `leaves`. They are numbered from left to right
    and asked in that order; what an earlier one has decided is not asked for."""
    if isinstance(expression, Not):
        return _opposite(_judge(expression.item, leaves))
    if isinstance(expression, And):
        return _until(False, [_judge(item, leaves) for item in expression.items])
    if isinstance(expression, Or):
        return _until(True, [_judge(item, leaves) for item in expression.items])
    own = len(leaves)
    leaves.append(expression)
    return lambda look: look(own)


def _opposite(judge: Predicate) -> Predicate:
    def opposite(look: Look) -> Truth:
        truth = judge(look)
        return None if truth is None else not truth

    return opposite


def _until(end: bool, judges: list[Predicate]) -> Predicate:
    """Returns a predicate that asks one after the other until one is `end`, which is then the answer."""

    def until(look: Look) -> Truth:
        answer: Truth = not end
        for judge in judges:
            truth = judge(look)
            if truth is end:
                return end
            if truth is None:
                answer = None
        return answer

    return until
