"""Where a replay is to hold, as the user has said it.

In: the words of `--stop-at`, and the requests of a capture. Out: `Stops`, or a `StopError` that says which
word means nothing in this capture.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.planning.model import PlannedSession, Step
from rpcinspect.rpc.command import PythonCall, PythonRemoteCall
from rpcinspect.run.exchanges import Exchange

ERROR, NONFINITE = "error", "nonfinite"
MOST_NAMES = 8
"""That a mistake names."""


class StopError(ReplayError):
    """A place to stop at that the capture does not have, or that no live worker reaches."""


class Stops(Struct, frozen=True, kw_only=True):
    """Where to hold."""

    messages: frozenset[int] = frozenset()
    """Numbers of requests."""
    functions: tuple[str, ...] = ()
    errors: bool = False
    nonfinite: bool = False

    @classmethod
    def read(cls, words: Iterable[str], calls: Mapping[int, Exchange]) -> Stops:
        """Reads words. A number of an answer means its request. Raises `StopError`."""
        messages: set[int] = set()
        functions: list[str] = []
        words = list(words)
        for word in words:
            if word.isdecimal():
                messages.add(_request(int(word), calls))
            elif word not in (ERROR, NONFINITE):
                functions.append(_known(word, calls))
        return cls(
            messages=frozenset(messages),
            functions=tuple(functions),
            errors=ERROR in words,
            nonfinite=NONFINITE in words,
        )

    def at(self, call: Exchange) -> bool:
        """Returns whether a request is one to stop at, or calls a function to stop at."""
        return call.index in self.messages or self.names(names_of(call))

    def names(self, names: Sequence[str]) -> bool:
        """Returns whether one of these is a function to stop at."""
        return any(is_named(word, *names) for word in self.functions)

    def check(self, sessions: Sequence[PlannedSession], calls: Mapping[int, Exchange]) -> None:
        """Raises `StopError` for a message, or a function, at which no live worker can be held in any
        session."""
        reached = {
            step.message
            for session in sessions
            for step in session.steps
            if step.action == "send" or (is_between(step, session) and runs_python(calls[step.message]))
        }
        for index in sorted(self.messages - reached):
            raise StopError(_unreached(str(index), calls[index], sessions))
        for word in self.functions:
            its = [call for call in calls.values() if not call.control and is_named(word, *names_of(call))]
            if reached.isdisjoint(call.index for call in its):
                raise StopError(_unreached(word, its[0], sessions))


def is_between(step: Step, session: PlannedSession) -> bool:
    """Returns whether both ends of a request are live, so that it may come without being sent."""
    return step.code != "control" and {step.role, step.to, step.sender} <= set(session.cast.live)


def runs_python(call: Exchange) -> bool:
    """Returns whether a request calls Python, so that its live worker tells of it whoever sent it."""
    return isinstance(call.request.rpc.command, (PythonCall, PythonRemoteCall))


def is_named(word: str, *names: str) -> bool:
    """Returns whether a word is one of some qualified names, or the last parts of one; of an operator also
    without its overload."""
    without = [name.partition(".")[0] for name in names if "::" in name]
    return any(one == word or one.endswith((f".{word}", f"::{word}")) for one in (*names, *without))


def names_of(call: Exchange) -> list[str]:
    """Returns what a call's function is called: on the wire, and as the program has it."""
    found = [call.function, None if call.name is None else call.name.full]
    return [name for name in dict.fromkeys(found) if name is not None]


def _unreached(word: str, call: Exchange, sessions: Sequence[PlannedSession]) -> str:
    """Says why nothing holds at a request."""
    index, sender, getter = call.index, call.caller, call.callee
    where = f"--stop-at {word}: #{index} goes to {getter}"
    placed = [(step, session) for session in sessions for step in session.steps if step.message == index]
    step = placed[0][0] if placed else None
    if not any(getter in session.cast.live for session in sessions):
        made = f"; {sender} sends it for #{step.causes[0]}" if step and step.causes else ""
        return f"{where}, which is played{made}"
    if any(is_between(step, session) for step, session in placed):
        return (
            f"{where}, and {sender} is live, too; --role {sender} plays it, which lets {getter} be held there"
        )
    why = f" ({step.code})" if step is not None and step.code else ""
    return f"{where}, and the plan skips it{why}"


def _request(index: int, calls: Mapping[int, Exchange]) -> int:
    if index in calls:
        return index
    for call in calls.values():
        if call.answer == index:
            return call.index
    raise StopError(f"--stop-at {index}: the capture has no message #{index} between workers")


def _known(word: str, calls: Mapping[int, Exchange]) -> str:
    """Returns a function's name if the capture calls it."""
    names = list(
        dict.fromkeys(name for call in calls.values() if not call.control for name in names_of(call))
    )
    if is_named(word, *names):
        return word
    some = ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")
    what = f"not a message, {ERROR}, {NONFINITE} or a function that the capture calls"
    raise StopError(f"--stop-at {word}: {what} ({some or 'it calls none'})")
