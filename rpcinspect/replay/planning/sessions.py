"""Who is played and who is live: the sessions of a replay.

In: exchanges with their causes. Out: `Cast`s, each to be replayed against fresh live workers. By default
every worker that started something of its own is played once, everybody else live. Callers that reach the
same live worker with something that changes its state are played together, or else the state would be another
one than the captured. Where that would play and need the same worker (everybody calls everybody), each worker
is live once and all others are played.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from rpcinspect.rpc.questions import FETCHES, GENERAL, HOUSEKEEPING, REMOTE, is_builtin
from rpcinspect.run.causes import Causes
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.model import Session

OPTIMIZER = ("torch.distributed.optim.", "__torch__.torch.distributed.optim.")
"""How the functions of distributed optimizers begin, those in TorchScript included."""


class Cast(Struct, frozen=True):
    """One session: the workers of a job that the engine plays, and those that it starts."""

    job: int
    roles: tuple[str, ...]
    live: tuple[str, ...]
    why: str
    """In a sentence."""


def workers_of(session: Session) -> dict[int, tuple[str, ...]]:
    """Names of the workers of each job. Who is known by an id or an address only can't be played."""
    found: dict[int, dict[str, None]] = defaultdict(dict)
    for worker in session.workers:
        if worker.name is not None:
            found[worker.job].setdefault(worker.name)
    return {job: tuple(names) for job, names in found.items()}


def default_casts(
    workers: Mapping[int, Sequence[str]], calls: Sequence[Exchange], causes: Causes
) -> list[Cast]:
    """The sessions that are replayed if the user names nobody."""
    casts: list[Cast] = []
    for job in sorted(workers):
        own = [call for call in calls if call.job == job and not call.control]
        casts += _casts_of_job(job, workers[job], own, causes)
    return casts


def named_casts(
    workers: Mapping[int, Sequence[str]], roles: Sequence[str], live: Sequence[str]
) -> tuple[list[Cast], str | None]:
    """The one session that `--role` or `--live` asks for, in every job that has all these workers; or what is
    wrong.
    """
    named = [*roles, *live]
    casts = []
    for job, names in sorted(workers.items()):
        if all(name in names for name in named):
            others = tuple(name for name in names if name not in named)
            played, alive = (tuple(roles), others) if roles else (others, tuple(live))
            casts.append(Cast(job, played, alive, "as the command line names them"))
    if not casts:
        known = sorted({name for names in workers.values() for name in names})
        absent = [name for name in named if name not in known]
        there = f"the capture has {', '.join(known) or 'none'}"
        return [], f"no worker is called {', '.join(absent or named)}: {there}"
    if not all(cast.live and cast.roles for cast in casts):
        return [], "nobody is left to be live" if roles else "nobody is left to be played"
    return casts, None


def changes_state(call: Exchange) -> bool:
    """Whether a call is known to change what later calls at its callee find: it makes a remote object, works
    on one, or is an optimizer's. What else a function does, RPC does not tell.
    """
    if call.kind in REMOTE:
        return not is_builtin(call.request.rpc.command)
    if call.function is not None and call.function.startswith(OPTIMIZER):
        return True
    return call.kind in GENERAL and call.kind not in FETCHES and bool(call.request.facts.forks)


def _casts_of_job(job: int, names: Sequence[str], calls: Sequence[Exchange], causes: Causes) -> list[Cast]:
    reached, changed = _reach(calls, causes)
    callers = [name for name in names if name in reached]
    groups = _groups(callers, reached, changed)
    casts: list[Cast] = []
    for group in groups:
        live = tuple(name for name in names if name not in group)
        targets = {target for caller in group for target in reached[caller]}
        if len(group) == 1:
            why = f"{group[0]} starts calls of its own"
            casts.append(Cast(job, tuple(group), live, why))
        elif not targets & set(group):
            why = f"{', '.join(group)} change the state of the same workers"
            casts.append(Cast(job, tuple(group), live, why))
        else:
            for target in (name for name in names if name in targets):
                roles = tuple(name for name in names if name != target)
                why = f"workers that call each other change each other's state; {target} is live here"
                casts.append(Cast(job, roles, (target,), why))
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
            continue  # clean-up and gradients reach nobody new
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
