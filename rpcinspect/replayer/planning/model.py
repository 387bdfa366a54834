"""What a plan is made of: steps, sessions, and what is named beside them. Plain records.

Message numbers are indexes: places in the order of time, as `decode` shows them. Reason codes are the
contract's; `both-played` is an addition to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from rpcinspect.replayer.planning.sessions import RoleAssignment
from rpcinspect.run.causes import Doubt

Action = Literal["send", "answer", "skip"]
Spare = Literal["equal", "like"]
"""How near a live request must be to a captured one that the plan does not expect: `equal`, or only `like` it
where the capture allows that it belongs to a request that takes place."""
Engine = Literal["wire", "agent"]
"""`wire`: a peer that sends bytes; `agent`: torch's own agent in a process that plays the worker."""

REASONS: dict[str, str] = {
    "missing-bytes": "bytes of the message were not captured",
    "older-rref": "it uses an RRef that was made before the capture began",
    "older-state": "it depends on autograd state from before the capture",
    "no-gradient": "an edge of its context never gets a gradient: this pass would never end",
    "nested-in-answer": "it is sent while a request is served: by a live worker itself, or not at all",
    "driver-not-live": "it belongs to a live worker's own program, which a replay does not run",
    "self-call": "a played worker calls itself",
    "outside-rpc": "it depends on state that RPC does not carry",
    "control": "the agents' own call",
    "not-allowed": "its pickle names something that you haven't allowed",
    "unsupported": "it can't be replayed",
    "both-played": "both its ends are played: no live worker takes part",
}
"""Every reason for a skip, in general words; a step's own text is more exact."""


class Decision(Struct, frozen=True):
    """What is done about a captured request."""

    action: Action
    """`send`: the request goes to a live worker; `answer`: a live worker sends it and gets the captured
    answer.
    """
    code: str | None = None
    """Of `REASONS`, for a skip."""
    text: str | None = None
    """Why it is skipped, in words; of other steps what is worth knowing."""
    happens: bool = False
    """Whether a live worker takes part in it, also in one that is skipped."""
    spare: Spare | None = None
    """Of a skipped request of a live worker: it gets its captured answer if it comes nevertheless."""


class Step(Decision, frozen=True, kw_only=True):
    """A decision in its session, with all that is needed to carry it out."""

    message: int
    """Index of the request; of the answer where no request was captured."""
    type: str
    """Outermost type."""
    role: str
    """The worker that is played at one end; the sender where none is, or both are."""
    to: str
    """The other end."""
    sender: str
    """Which of the two sent it in the capture."""
    causes: tuple[int, ...] = ()
    """Indexes of the requests while serving which the sender may have sent it; none: it acted of its own."""
    doubt: str = ""
    """Of what a live worker is expected to send: why it may not come, where another request may have caused
    it that does not take place. Its own program may always have, which is no reason."""
    one_way: bool = False
    """Its answer was not captured, as no answer of its connection was: nothing can be compared with it."""
    answer: int | None = None
    """Index of the captured answer: what is compared, or given."""
    after: int = 0
    """How many of the session's arrivals must have come before a request is sent."""
    envelopes: tuple[str, ...] = ()
    """Of the live message to expect: the answer to what is sent, the request that is answered; outermost
    first.
    """


class Overlap(Struct, frozen=True):
    """A call that ran, in the capture, beside calls of other played workers to the same live one."""

    message: int
    others: tuple[int, ...]
    """Those that began earlier; all of them go by the order of their answers."""
    worker: str
    """The live one."""


class StandIn(Struct, frozen=True, kw_only=True):
    """The value of an RRef as plain data in a captured answer to a fetch of it, which can stand in for one
    that is older than the capture."""

    rref: tuple[int, int]
    owner: str
    """The live worker that has it, or gets it before anything is sent."""
    message: int
    """Index of the answer that it is made from."""
    request: int
    """Index of the fetch."""
    forks: tuple[tuple[int, int], ...]
    """Older forks that the capture deletes: the owner is told of them."""
    changed: tuple[int, ...]
    """Requests that may have changed the value in the capture before it was fetched."""
    is_parameter: bool = False
    """It is one tensor that requires grad; whether it is a leaf, no message tells."""

    @property
    def text(self) -> str:
        """What is given and from where, in words."""
        made = f"stand-in for RRef {self.rref[0]}:{self.rref[1]}, from #{self.message}"
        if not self.changed:
            return made
        changed = some_of([f"#{index}" for index in self.changed])
        return f"{made}, which may have been changed by {changed} before"


class Ending(Struct, frozen=True, kw_only=True):
    """That a worker's process ended in the capture while requests were in flight. A played one ends at the
    same place: live workers that waited for it, or call it later, see that its connections are gone. A live
    one may end there too."""

    worker: str
    time_ns: int
    after: int
    """How many of the session's arrivals had come."""
    unanswered: tuple[int, ...]
    """Requests that it had got and not answered."""
    reset: bool
    """Whether its connections ended by an RST."""


class ObjectProvision(Struct, frozen=True, kw_only=True):
    """An object for an RRef that is older than the capture, which the user says how to make."""

    rref: tuple[int, int]
    owner: str
    """The live worker that makes it, before anything is sent."""
    forks: tuple[tuple[int, int], ...]
    """As of a stand-in."""
    source: str
    """`module:function`, perhaps with literal arguments, or `RREF.attribute`: of another RRef's object."""
    type: str
    """The type in the captured RRef: `PyObject`, or one of TorchScript's."""

    @property
    def text(self) -> str:
        """What is given and from where, in words."""
        return f"object for RRef {self.rref[0]}:{self.rref[1]}, made by {self.source}"


class ValueLoad(Struct, frozen=True, kw_only=True):
    """Values that are put into the object of an RRef in its live owner: a file of the user's, or a tensor
    that was fetched in the capture."""

    rref: tuple[int, int]
    owner: str
    after: int | None
    """The request whose outcome the load waits for; it happens before the owner gets another request. None:
    before anything is sent."""
    file: str | None = None
    message: int | None = None
    """Index of the answer with the tensor, where there is no file."""
    request: int | None = None
    """Index of the fetch."""
    type: str
    """The type in the captured RRef."""

    @property
    def text(self) -> str:
        """What is put where and when, in words."""
        source = f"#{self.message}, if it is a parameter" if self.file is None else self.file
        when = "" if self.after is None else f", after #{self.after}"
        return f"RRef {self.rref[0]}:{self.rref[1]} gets its values from {source}{when}"


class NeededObject(Struct, frozen=True, kw_only=True):
    """An RRef that is older than the capture; requests need it, and nobody gives an object."""

    rref: tuple[int, int]
    owner: str
    users: tuple[int, ...]
    """Requests that need it."""
    functions: tuple[str, ...]
    """What these call."""
    type: str
    """The type in the captured RRef: `PyObject` tells nothing."""
    stand_in: int | None
    """Index of the answer from which `--stand-ins` makes one."""


class PlannedSession(Struct, frozen=True, kw_only=True):
    """A session: the played workers, the live ones, and a step for every request of the job."""

    number: int
    cast: RoleAssignment
    steps: tuple[Step, ...]
    """In the order in which they are carried out; a skip stands where it would have been."""
    arrivals: tuple[int, ...]
    """What live workers send to the played ones, by the order of arrival in the capture: indexes of answers
    to `send` and of requests to `answer`.
    """
    overlaps: tuple[Overlap, ...]
    """Calls whose order the capture does not tell."""
    stand_ins: tuple[StandIn, ...] = ()
    """What live workers get before the first step."""
    provided: tuple[ObjectProvision, ...] = ()
    """What they make before that."""
    loads: tuple[ValueLoad, ...] = ()
    """What is put into their objects."""
    needed: tuple[NeededObject, ...] = ()
    """What is missing for requests that are skipped."""
    unheard: tuple[str, ...] = ()
    """Live workers of which the recording has nothing that they sent."""
    endings: tuple[Ending, ...] = ()
    """In the order of time."""

    def count(self, action: Action) -> int:
        """How many steps of the session have this action."""
        return sum(step.action == action for step in self.steps)

    def skips(self) -> Counter[str]:
        """Number of skips by reason code."""
        return Counter(step.code or "" for step in self.steps if step.action == "skip")


class GlobalUse(Struct, frozen=True):
    """A name that messages would make a live process import or call."""

    name: str
    allowed: bool
    messages: tuple[int, ...]
    reason: str
    """Why it is refused."""
    allow: str = ""
    """The argument of `--allow` that is offered to let it pass; empty for what would run code."""


def some_of(words: Sequence[str], most: int = 4) -> str:
    """The first `most` words as a list, with a sign that there are more."""
    return ", ".join(words[:most]) + (", …" if len(words) > most else "")


def missing_allowances(uses: Iterable[GlobalUse]) -> tuple[str, ...]:
    """The arguments of `--allow` that would let refused names pass, each once; an empty one stands for those
    that would run code, for which none is offered."""
    return tuple(dict.fromkeys(use.allow for use in uses if not use.allowed))


class Plan(Struct, frozen=True, kw_only=True):
    """The sessions, steps and refused names of a replay."""

    sessions: tuple[PlannedSession, ...]
    globals: tuple[GlobalUse, ...]
    missing: tuple[str, ...] = ()
    """Where something is refused: every argument of `--allow` that is missing, also for what depends on that;
    an empty one stands for what would run code."""
    ambiguities: tuple[Doubt, ...]
    """Requests that may or may not have been nested."""
    notes: tuple[str, ...]
    """What the whole replay should be read with: state that is not in the capture, for one."""
    random: str | None = None
    """Which requests draw random numbers, and what helps."""
    left_out: int
    """Requests that `--context` left out."""
    trusted: bool
    """Nothing was refused, whatever it names."""
    captured_groups: tuple[str, ...] = ()
    """`static`, `dynamic`; empty if the capture does not show it. Live groups are dynamic."""

    @property
    def roles(self) -> tuple[str, ...]:
        """Every worker that is played in some session."""
        return tuple(dict.fromkeys(role for session in self.sessions for role in session.cast.roles))

    @property
    def refused(self) -> tuple[GlobalUse, ...]:
        """The names that stop a replay."""
        return () if self.trusted else tuple(use for use in self.globals if not use.allowed)

    def count(self, action: Action) -> int:
        """How many steps of all sessions have this action."""
        return sum(session.count(action) for session in self.sessions)

    def skips(self) -> Counter[str]:
        """Skips by reason in all sessions, most frequent first."""
        total: Counter[str] = Counter()
        for session in self.sessions:
            total += session.skips()
        return Counter(dict(total.most_common()))
