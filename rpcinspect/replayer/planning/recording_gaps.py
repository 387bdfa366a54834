"""What a recording lacks altogether, so that a replay takes it for what never happened.

In: a session and its exchanges. Out: `RecordingGaps`: the workers of which a log has nothing that they sent,
since a log is written where requests are sent; the requests of connections of which the answers' direction
was not captured; and in sentences what is lacking, bytes of tensors included, with what would bring it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from rpcinspect.replayer.planning.model import some_of
from rpcinspect.replayer.planning.sessions import workers_of
from rpcinspect.rpc.questions import missing_bytes
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.hosts import host_of, unseen_hosts
from rpcinspect.session.model import Session
from rpcinspect.tensorpipe.records import Pipe, Visibility


class RecordingGaps(Struct, frozen=True):
    """What a recording lacks for a replay."""

    unheard: Mapping[int, tuple[str, ...]]
    """Job → the workers of which logs have nothing that they sent: it is in others, or they sent nothing."""
    one_way: frozenset[int]
    """Indexes of requests."""
    notes: tuple[str, ...]


def read_gaps(session: Session, calls: Sequence[Exchange]) -> RecordingGaps:
    """The gaps of a session; `calls` are all its exchanges."""
    unheard, one_way = _unheard(session, calls), _one_way(calls)
    notes = (*_missing_logs(session, unheard), *_missing_hosts(session), *_notes(one_way, calls))
    return RecordingGaps(unheard, one_way, notes)


def _unheard(session: Session, calls: Sequence[Exchange]) -> dict[int, tuple[str, ...]]:
    if {capture.reader for capture in session.captures} != {"log"}:
        return {}
    silent = {(call.job, call.callee) for call in calls} - {(call.job, call.caller) for call in calls}
    found = {
        job: tuple(name for name in names if (job, name) in silent)
        for job, names in workers_of(session).items()
    }
    return {job: names for job, names in found.items() if names}


def _one_way(calls: Sequence[Exchange]) -> frozenset[int]:
    """A connection without a handshake of which no answer was captured: where the other direction was, its
    handshake shows; where the capture begins later, nothing tells the two apart."""
    answered = {id(call.request.tp.pipe) for call in calls if call.response is not None}
    found = []
    for call in calls:
        pipe = call.request.tp.pipe
        without_handshake = pipe.visible is Visibility.NO_HANDSHAKE and not pipe.channels and not pipe.logged
        if without_handshake and id(pipe) not in answered:
            found.append(call.index)
    return frozenset(found)


def _missing_logs(session: Session, unheard: Mapping[int, Sequence[str]]) -> Iterator[str]:
    """Yields whose log would have what is not recorded."""
    names = list(dict.fromkeys(name for its in unheard.values() for name in its))
    if not names:
        return
    hosts = dict.fromkeys(host_of(at) for one in session.workers if one.name in names for at in one.addresses)
    where = f", of {some_of(list(hosts))}" if hosts else ""
    yield (
        f"Nothing that {some_of(names)} sent is recorded, and what comes from there in a replay can't be "
        f"compared. If anything was sent, it is in the log of another host{where}: give both logs together."
    )


def _missing_hosts(session: Session) -> Iterator[str]:
    """Yields between which hosts packets were not captured, where all captured ones are of one host."""
    here, others = unseen_hosts(session)
    if others:
        yield (
            f"All captured messages are from or to {here}: those between {some_of(others)} are not in "
            "the capture, if there were any. A capture of one of these hosts, given together with this one, "
            "has them."
        )


def _notes(one_way: frozenset[int], calls: Sequence[Exchange]) -> Iterator[str]:
    pairs = list(dict.fromkeys(f"{call.callee} to {call.caller}" for call in calls if call.index in one_way))
    if pairs:
        yield (
            f"No answer of {some_of(pairs)} was captured: they never answered, or only one direction of "
            "their connections is in the capture. Capture both directions, at an end of them."
        )
    both = [record for call in calls for record in (call.request, call.response) if record is not None]
    counts = Counter(_why(record.tp.pipe) for record in both if missing_bytes(record))
    for (what, advice), count in counts.most_common():
        yield f"Bytes of {count:,} message{'' if count == 1 else 's'} {what}. {advice}"


def _why(pipe: Pipe) -> tuple[str, str]:
    """Why bytes of a message of a pipe are missing, and what would bring them."""
    if pipe.logged:
        return "were not recorded", "record --tensors all keeps those of all tensors."
    if pipe.invisible_channels:
        channels = ", ".join(sorted(pipe.invisible_channels))
        return (
            f"went through a channel outside of the network ({channels})",
            'Run the job with TensorPipeRpcBackendOptions(_transports=["uv"], _channels=["basic"]).',
        )
    return "were not captured", "Capture whole packets, with a larger buffer (tcpdump -s 0 -B 262144)."
