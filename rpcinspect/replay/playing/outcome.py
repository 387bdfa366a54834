"""What came of a replay: every step and every request of a live worker with its result. Plain records.

Made by the engine, read by the report and the views. Message numbers are indexes, as in the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from rpcinspect.equality.difference import Difference
from rpcinspect.replay.planning.model import Plan, PlannedSession, Step
from rpcinspect.replay.workers.ended import Ended
from rpcinspect.replay.workers.live_group import Gradient
from rpcinspect.replay.workers.seeds import Seeds

Result = Literal["identical", "tolerance", "different", "failed", "unanswered"]
"""`failed`: it could not be sent, or the pipe or the worker was lost; `unanswered`: nothing came in time
although the capture has something. A request without an answer in both is identical."""


class StepOutcome(Struct, frozen=True, kw_only=True):
    """What came of one step of the plan."""

    step: Step
    result: Result | None
    """Of a `send` it is the answer's; of an `answer` it is that of the request to which the captured answer
    was given, `unanswered` if the live worker never sent it. None of skips, of housekeeping that never came,
    and of answers that the capture can't have, since it ends before them."""
    differences: tuple[Difference, ...] = ()
    """`a` is captured, `b` is live."""
    text: str | None = None
    """Why it failed; the likely reason of a difference."""
    same_payload: bool | None = None
    """Whether the live payload has the captured bytes; None where there was nothing to compare."""
    latency_s: float | None = None
    """From sending to the whole answer, of a `send`."""


class InboundOutcome(Struct, frozen=True, kw_only=True):
    """A request of a live worker to a played one."""

    captured: int | None
    """Index of the captured request that it repeats; None: it repeats none, `text` says why."""
    type: str
    """Outermost type of the live one."""
    sender: str
    role: str
    """The played worker that was asked."""
    result: Result | None
    """None: it was not captured and tells nothing, such as the going of an RRef."""
    differences: tuple[Difference, ...] = ()
    text: str | None = None
    same_payload: bool | None = None


class SessionOutcome(Struct, frozen=True, kw_only=True):
    """One session, carried out."""

    planned: PlannedSession
    steps: tuple[StepOutcome, ...]
    """One for each step of the plan, in its order."""
    inbound: tuple[InboundOutcome, ...]
    """In the order in which they came."""
    wall_s: float
    """From the first message to the last; without starting the workers."""
    failure: str | None = None
    """Why it could not begin, or ended early; then the steps that did not take place are `failed`."""
    gradients: Mapping[str, Mapping[int, tuple[Gradient, ...]]] | None = None
    """Live worker → context → what its leaves held at the end, if that was asked for."""
    ended: tuple[Ended, ...] = ()
    """The processes that ended early, the first first."""


class FoundSeed(Struct, frozen=True, kw_only=True):
    """A seed of a live worker with which messages of its own are as captured, and without which they are
    not."""

    worker: str
    seed: int
    explains: tuple[int, ...]
    """Indexes of requests: of those that it sent, and of those whose answers it made."""


class SeedSearch(Struct, frozen=True, kw_only=True):
    """What came of looking for seeds in one session."""

    session: int
    tries: range
    """The seeds that were to be tried."""
    tried: int
    """How many were; a seed that was tried in several passes counts each time."""
    wall_s: float
    found: tuple[FoundSeed, ...]
    missing: Mapping[str, int]
    """Live worker → request with its first message that is not as captured, and that no seed explains."""
    out_of_time: bool
    failure: str | None
    """Why nothing could be tried: the session itself ended early."""

    def seeds(self, given: Seeds) -> Seeds:
        """With what was found."""
        return Seeds(everybody=given.everybody, own=given.own | {one.worker: one.seed for one in self.found})


class Recording(Struct, frozen=True, kw_only=True):
    """The capture that was made of the replay."""

    path: Path
    failure: str | None
    """Why it ends early. What no recording holds is said by `recorder.NOT_RECORDED`."""


class ReplayOutcome(Struct, frozen=True, kw_only=True):
    """Everything that was done."""

    plan: Plan
    runs: tuple[tuple[SessionOutcome, ...], ...]
    """Each repetition of the whole replay, with its sessions; none where nothing was started."""
    engine: Literal["wire", "agent"]
    device: str
    wall_s: float
    """Of everything, starting workers included."""
    captured_wall_s: float
    """From the first to the last message that was captured."""
    interrupted: bool = False
    recording: Recording | None = None
    searches: tuple[SeedSearch, ...] = ()
    """For seeds, before the first run, session by session."""
