"""What live workers get for objects that the capture does not show: `--stand-ins`, `--provide`,
`--checkpoint` and `--restore-parameters`.

In: words of the command line, the exchanges of a job and what is known of its RRefs. Out: for each RRef an
`ObjectProvision`, which its live owner makes before anything is sent, or a `StandIn`, and `ValueLoad`s: what
is put into an object that the owner has, once it has it.

A stand-in is for an RRef of a live worker that no captured message made: the first captured answer to a fetch
of it, if that is plain data; with what may have changed the value before it was fetched. It is not what the
capture says of the beginning: it is the value at one moment, without the autograd graph behind it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pickletools import genops

from rpcinspect.pickles.semantic import tensor_index
from rpcinspect.replayer.planning.facts import JobFacts
from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.planning.model import ObjectProvision, StandIn, ValueLoad
from rpcinspect.replayer.planning.sessions import belongs_to_optimizer
from rpcinspect.rpc.command import PythonRRefFetchRet, ScriptRRefFetchRet
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import FETCHES, GENERAL, fork_of, is_whole, requires_grad, rref_of
from rpcinspect.rpc.record import RpcRecord
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
    given: Mapping[Id, str], calls: Sequence[Exchange], facts: JobFacts, live: Collection[str]
) -> dict[Id, ObjectProvision]:
    """RRef of a live worker → what the user gives for it; objects that others are made from come first."""
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
        if facts.owners.get(rref) in live and is_older(rref, facts)
    }


def checkpoint_loads(given: Mapping[Id, str], facts: JobFacts, live: Collection[str]) -> list[ValueLoad]:
    """Returns what `--checkpoint` puts into objects of live workers."""
    return [
        ValueLoad(
            rref=rref,
            owner=facts.owners[rref],
            after=_known_after(rref, facts),
            file=path,
            type=facts.type_of(rref),
        )
        for rref, path in given.items()
        if facts.owners.get(rref) in live
    ]


def parameter_loads(
    calls: Sequence[Exchange], facts: JobFacts, live: Collection[str], others: Mapping[Id, StandIn]
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


# --- values that the capture shows --------------------------------------------------------------------------


def stand_ins(calls: Sequence[Exchange], facts: JobFacts, live: Collection[str]) -> dict[Id, StandIn]:
    """RRef of a live worker → its stand-in. `calls`: all of the job, in the order in which they began."""
    return {one.rref: one for one in fetched_values(calls, facts, live) if is_older(one.rref, facts)}


def fetched_values(calls: Sequence[Exchange], facts: JobFacts, live: Collection[str]) -> Iterator[StandIn]:
    """Yields the first value of each RRef that the capture shows."""
    found = set[Id]()
    for call in calls:
        rref = rref_of(call.request) if call.kind in FETCHES else None
        if rref is None or rref in found or call.callee not in live:
            continue
        if call.response is None or call.answer is None or not is_plain(call.response, call.kind):
            continue
        found.add(rref)
        yield StandIn(
            rref=rref,
            owner=call.callee,
            message=call.answer,
            request=call.index,
            forks=tuple(older_forks(calls, rref, facts)),
            changed=tuple(other.index for other in calls if _may_change(other, rref, call)),
            is_parameter=tensor_of(call.response) is not None and requires_grad(call.response),
        )


def tensor_of(answer: RpcRecord) -> int | None:
    """Returns the index of the tensor that is the whole value of an answer to a fetch; None for any other."""
    command, pickle = answer.rpc.command, answer.facts.pickle
    if isinstance(command, ScriptRRefFetchRet):
        return tensor_index(command.values[0]) if len(command.values) == 1 else None
    return tensor_index(pickle.root) if isinstance(command, PythonRRefFetchRet) and pickle else None


def is_older(rref: Id, facts: JobFacts) -> bool:
    """Whether an RRef was made before the capture began: nothing makes it, and its owner did not bring it."""
    first = facts.mentions.get(rref)
    return rref not in facts.makers and not (first is not None and first.sender == facts.owners.get(rref))


def is_plain(answer: RpcRecord, fetch: int) -> bool:
    """Whether an answer to a fetch of this type has a value that can be given back: complete, data only, no
    other RRef. The names in it are then torch's own, so that no gate of the user need be asked.

    The opcodes of a value become part of another pickle: they must leave nothing but it, and name what they
    name under protocol 3 or later.
    """
    if not is_whole(answer) or answer.facts.failed or answer.facts.forks:
        return False
    command = answer.rpc.command
    if isinstance(command, ScriptRRefFetchRet):
        return tensor_of(answer) is not None
    pickle = answer.facts.pickle
    if not isinstance(command, PythonRRefFetchRet) or pickle is None or pickle.left:
        return False
    if not is_protocol_3(command.serialized_py_obj):
        return False
    return all(one.allowed for one in ExecutionPolicy().inspect(answer, answers=fetch))


def is_protocol_3(data: bytes) -> bool:
    """Returns whether a pickle names protocol 3 or later, at its beginning and nowhere else."""
    protocols = [place for opcode, _, place in genops(data) if opcode.name == "PROTO"]
    return protocols == [0] and data[1] >= 3


def _may_change(call: Exchange, rref: Id, fetch: Exchange) -> bool:
    """Whether a call at the owner that had begun before the value left it works on the RRef, or on
    parameters. What else changes it, RPC does not tell."""
    if call.callee != fetch.callee or call.kind not in GENERAL or call.kind in FETCHES:
        return False
    if call.begin_ns >= (fetch.answered_ns or fetch.begin_ns):
        return False
    return belongs_to_optimizer(call.function) or any(f.rref_id == rref for f in call.request.facts.forks)


def older_forks(calls: Sequence[Exchange], rref: Id, facts: JobFacts) -> list[Id]:
    """Returns forks that the capture deletes and does not show being made: the owner must know them."""
    deletes = [call.request for call in calls if call.kind == MessageType.RREF_USER_DELETE]
    forks = dict.fromkeys(fork_of(request) for request in deletes if rref_of(request) == rref)
    return [fork for fork in forks if fork is not None and fork not in facts.forks]
