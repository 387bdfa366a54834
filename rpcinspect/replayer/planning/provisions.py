"""What the user gives for objects of live workers that the capture does not show: `--provide`,
`--checkpoint` and `--restore-parameters`.

In: words of the command line, the exchanges of a job and what is known of its RRefs. Out: for each RRef an
`ObjectProvision`, which its live owner makes before anything is sent, and `ValueLoad`s: what is put into an
object that the owner has, once it has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from rpcinspect.replayer.planning.facts import JobFacts
from rpcinspect.replayer.planning.model import ObjectProvision, StandIn, ValueLoad
from rpcinspect.replayer.planning.stand_ins import fetched_values, is_older, older_forks
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.provenance import Id

CALL = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*):([A-Za-z_]\w*(?:\.\w+)*)(\(.*\))?", re.ASCII | re.DOTALL)
"""`module:function` or `module:function(1, 'text')`."""
PART = re.compile(r"(\d+:\d+)((?:\.\w+)+)", re.ASCII)
"""`0:2.fc.weight`: an attribute of the object of another RRef."""


def is_source(word: str) -> bool:
    """Returns whether a word says how an object is made."""
    return CALL.fullmatch(word) is not None or PART.fullmatch(word) is not None


def functions_of(sources: Iterable[str]) -> list[str]:
    """Returns the full names of the functions that make objects."""
    return [f"{match[1]}.{match[2]}" for source in sources if (match := CALL.fullmatch(source))]


def provisions(
    given: Mapping[Id, str], calls: Sequence[Exchange], facts: JobFacts, live: Iterable[str]
) -> dict[Id, ObjectProvision]:
    """RRef of a live worker → what the user gives for it; objects that others are made from come first."""
    owners = frozenset(live)
    ordered = sorted(given, key=lambda rref: PART.fullmatch(given[rref]) is not None)
    return {
        rref: ObjectProvision(
            rref=rref,
            owner=facts.owners[rref],
            forks=tuple(older_forks(calls, rref, facts)),
            source=given[rref],
            type=facts.type_of(rref),
        )
        for rref in ordered
        if facts.owners.get(rref) in owners and is_older(rref, facts)
    }


def checkpoint_loads(given: Mapping[Id, str], facts: JobFacts, live: Iterable[str]) -> list[ValueLoad]:
    """Returns what `--checkpoint` puts into objects of live workers."""
    owners = frozenset(live)
    return [
        ValueLoad(
            rref=rref,
            owner=facts.owners[rref],
            after=_known_after(rref, facts),
            file=path,
            type=facts.type_of(rref),
        )
        for rref, path in given.items()
        if facts.owners.get(rref) in owners
    ]


def parameter_loads(
    calls: Sequence[Exchange], facts: JobFacts, live: Iterable[str], others: Mapping[Id, StandIn]
) -> list[ValueLoad]:
    """Returns what `--restore-parameters` puts into live workers: parameters as captured answers to fetches
    show them, once the last request that may have changed them is over. Stand-ins have theirs already."""
    found = []
    for one in fetched_values(calls, facts, live):
        if one.rref in others or not one.is_parameter:
            continue
        at = _known_after(one.rref, facts)
        after = max([at, *one.changed], key=lambda index: -1 if index is None else index)
        found.append(
            ValueLoad(
                rref=one.rref,
                owner=one.owner,
                after=after,
                message=one.message,
                request=one.request,
                type=facts.type_of(one.rref),
            )
        )
    return found


def _known_after(rref: Id, facts: JobFacts) -> int | None:
    """The request by which an RRef's owner has its object; None: before the capture began."""
    maker = facts.makers.get(rref)
    if maker is not None:
        return maker.request
    first = facts.mentions.get(rref)
    return first.request if first is not None and first.sender == facts.owners.get(rref) else None
