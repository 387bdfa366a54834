"""Who is played and who is live: the sessions of a replay, the ids of their workers, the kinds of their
groups.

In: exchanges with their causes. Out: `RoleAssignment`s, each to be replayed against fresh live workers. By
default every worker that started something of its own is played once, everybody else live. Callers that reach
the same live worker with something that changes its state are played together, or else the state would be
another one than the captured. Where that would play and need the same worker (everybody calls everybody),
each worker is live once and all others are played.

`worker_ids`: an id for each worker of a session, the captured one where it is known: ids are part of the ids
of contexts, RRefs and autograd messages, so that these stay as they were, too. `group_kinds`: in a static
group (`init_rpc` with `world_size`) agents gather when they begin and end, in a dynamic one they tell each
other who joins and leaves; their own calls show which it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from rpcinspect.errors import ReplayError, RpcInspectError
from rpcinspect.pickles.semantic import SCRIPT_PREFIX
from rpcinspect.replayer.planning.facts import senders
from rpcinspect.rpc.pickle_facts import BROADCAST, GATHER
from rpcinspect.rpc.questions import FETCHES, GENERAL, HOUSEKEEPING, REMOTE, is_builtin
from rpcinspect.run.causes import Causes
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.model import Session, Worker


class PlanError(RpcInspectError):
    """What was asked for does not fit the capture."""


class RoleAssignment(Struct, frozen=True):
    """The workers of a job that the engine plays in a session, and those that are started live."""

    job: int
    roles: tuple[str, ...]
    live: tuple[str, ...]
    why: str
    """In a sentence."""


def workers_of(session: Session) -> dict[int, tuple[str, ...]]:
    """Names of the workers of each job, `worker:ID` for those of which the id only is known: torch takes that
    as a name, too. Who is known by an address only can't be played."""
    found: dict[int, dict[str, None]] = defaultdict(dict)
    for worker in session.workers:
        name = replay_name(worker)
        if name is not None:
            found[worker.job].setdefault(name)
    return {job: tuple(names) for job, names in found.items()}


def every_casts(workers: Mapping[int, Sequence[str]], calls: Sequence[Exchange]) -> list[RoleAssignment]:
    """Returns sessions in which each worker that serves a request is live once, alone."""
    served = {(call.job, call.callee) for call in calls if not call.control and call.kind not in HOUSEKEEPING}
    return [
        RoleAssignment(
            job, tuple(other for other in names if other != name), (name,), f"{name} is live in its turn"
        )
        for job, names in sorted(workers.items())
        for name in names
        if (job, name) in served
    ]


def replay_name(worker: Worker) -> str | None:
    """Returns the name that a worker has in a replay; None where neither name nor id is known."""
    return f"worker:{worker.id}" if worker.name is None and worker.id is not None else worker.name


def default_casts(
    workers: Mapping[int, Sequence[str]], calls: Sequence[Exchange], causes: Causes
) -> list[RoleAssignment]:
    """The sessions that are replayed if the user names nobody."""
    casts: list[RoleAssignment] = []
    for job in sorted(workers):
        own = [call for call in calls if call.job == job and not call.control]
        casts += _casts_of_job(job, workers[job], own, causes)
    return casts


def named_casts(
    workers: Mapping[int, Sequence[str]], roles: Sequence[str], live: Sequence[str]
) -> list[RoleAssignment]:
    """Returns the session that `--role` or `--live` asks for, in every job that has all these workers. Raises
    `PlanError` where none has them, or no worker is left."""
    named = [*roles, *live]
    casts = []
    for job, names in sorted(workers.items()):
        if all(name in names for name in named):
            others = tuple(name for name in names if name not in named)
            played, alive = (tuple(roles), others) if roles else (others, tuple(live))
            casts.append(RoleAssignment(job, played, alive, "as the command line names them"))
    if not casts:
        known = sorted({name for names in workers.values() for name in names})
        absent = [name for name in named if name not in known]
        there = f"the capture has {', '.join(known) or 'none'}"
        raise PlanError(f"no worker is called {', '.join(absent or named)}: {there}")
    if not all(cast.live and cast.roles for cast in casts):
        raise PlanError("no worker is left to run live" if roles else "no worker is left to be played")
    return casts


def belongs_to_optimizer(function: str | None) -> bool:
    """Returns whether a function belongs to a distributed optimizer, TorchScript ones included."""
    return function is not None and function.removeprefix(SCRIPT_PREFIX).startswith(OPTIMIZERS)


OPTIMIZERS = "torch.distributed.optim."


def changes_state(call: Exchange) -> bool:
    """Returns whether a call certainly changes what later calls at its callee find: it makes a remote object,
    works on one, or is an optimizer's. RPC does not show what else a function does."""
    if call.kind in REMOTE:
        return not is_builtin(call.request.rpc.command)
    if belongs_to_optimizer(call.function):
        return True
    return call.kind in GENERAL and call.kind not in FETCHES and bool(call.request.facts.forks)


def _casts_of_job(
    job: int, names: Sequence[str], calls: Sequence[Exchange], causes: Causes
) -> list[RoleAssignment]:
    reached, changed = _reach(calls, causes)
    callers = [name for name in names if name in reached]
    casts: list[RoleAssignment] = []
    for group in _groups(callers, reached, changed):
        live = tuple(name for name in names if name not in group)
        targets = {target for caller in group for target in reached[caller]}
        if len(group) == 1 or not targets & set(group):
            together = f"{', '.join(group)} change the state of the same workers"
            why = f"{group[0]} starts calls of its own" if len(group) == 1 else together
            casts.append(RoleAssignment(job, tuple(group), live, why))
        else:
            for target in (name for name in names if name in targets):
                roles = tuple(name for name in names if name != target)
                why = f"workers that call each other change each other's state; {target} is live here"
                casts.append(RoleAssignment(job, roles, (target,), why))
    return casts


def _reach(calls: Sequence[Exchange], causes: Causes) -> tuple[dict[str, set[str]], set[tuple[str, str]]]:
    """Caller → workers that its own calls reach, directly or through others; and (caller, worker) of those
    whose state they change.
    """
    roots: dict[int, str] = {}
    reached: dict[str, set[str]] = {}
    changed: set[tuple[str, str]] = set()
    for call in calls:
        if call.kind in HOUSEKEEPING or (call.kind not in GENERAL and causes.own(call.index)):
            continue  # cleanup and gradients reach nobody new
        parent = causes.parents.get(call.index)
        root = call.caller if parent is None else roots.get(parent)
        if root is None:
            continue
        roots[call.index] = root
        targets = reached.setdefault(root, set())
        if call.callee != root:
            targets.add(call.callee)
            if changes_state(call):
                changed.add((root, call.callee))
    return reached, changed


def _groups(
    callers: Sequence[str], reached: Mapping[str, set[str]], changed: set[tuple[str, str]]
) -> list[list[str]]:
    """Callers that have to be played together, in the order in which they are named."""
    group = {caller: caller for caller in callers}

    def root(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    users: dict[str, list[str]] = defaultdict(list)
    for caller in callers:
        for target in reached[caller]:
            users[target].append(caller)
    for target, its in users.items():
        if len(its) > 1 and any((caller, target) in changed for caller in its):
            for caller in its[1:]:
                group[root(caller)] = root(its[0])
    together: dict[str, list[str]] = defaultdict(list)
    for caller in callers:
        together[root(caller)].append(caller)
    return list(together.values())


MAX_ID = (1 << 15) - 1
"""Worker ids have 16 bits, with a sign."""


def worker_ids(session: Session, cast: RoleAssignment, calls: Iterable[Exchange]) -> dict[str, int]:
    """Returns name → id of all workers in a session. Raises `ReplayError` if the ids are ambiguous."""
    names = (*cast.roles, *cast.live)
    found: dict[str, int] = {}
    for worker in session.workers:
        name = replay_name(worker)
        if worker.job == cast.job and name in names and worker.id is not None:
            found.setdefault(name, worker.id)
    for _, name, number in senders(calls):
        if name in names and number >= 0:
            found.setdefault(name, number)
    taken = set(found.values())
    free = (number for number in range(MAX_ID) if number not in taken)
    for name in names:
        if name not in found:  # nothing of it carries an id, or it was not captured
            found[name] = next(free)
    for number in set(found.values()):
        same = sorted(name for name in found if found[name] == number)
        if len(same) > 1:
            raise ReplayError(f"workers of the capture have the same id {number}: {', '.join(same)}")
    return found


GroupKind: TypeAlias = Literal["static", "dynamic"]

JOINS = "torch.distributed.rpc._utils._update_group_membership"
LIVE: GroupKind = "dynamic"
"""What live workers form: nobody needs be rank 0, or wait for all others, and played workers can join."""


def group_kinds(calls: Iterable[Exchange]) -> tuple[GroupKind, ...]:
    """The kinds of the captured jobs' groups, each once; empty if the capture does not show it."""
    dynamic, static = set[int](), set[int]()
    for call in calls:
        if call.control and call.function == JOINS:
            dynamic.add(call.job)
        elif call.control and call.function in (GATHER, BROADCAST):
            static.add(call.job)
    kinds: list[GroupKind] = ["static"] if static - dynamic else []
    return (*kinds, "dynamic") if dynamic else tuple(kinds)
