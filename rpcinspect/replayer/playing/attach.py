"""One session against a dynamic group that others have started: join, play, clean up, leave.

In: a planned session, and where the user says that the group's store is. Out: the `Player` that plays it.
Played workers join under their captured names, or others where these are taken, and under ids that nobody
has had. Nothing is contacted but that store and the addresses of members in it. However it ends, what was
made in live workers is taken back and the group is left, unless this process is killed at once: then
`running_group.remove_dead` helps.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from rpcinspect.equality.ids import WORKER
from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.handshake import MEMBER_TERMS
from rpcinspect.replayer.peers.loop import Handle, Loop, limits_for
from rpcinspect.replayer.peers.membership import Membership, NameTakenError, read_members
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.running_group import HeldSignals, StoreAddress, addresses_of, own_host
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.peers.traffic_pcap import TrafficRecorder
from rpcinspect.replayer.planning.model import PlannedSession
from rpcinspect.replayer.playing.inputs import SessionInputs
from rpcinspect.replayer.playing.player import Player
from rpcinspect.replayer.playing.releasing import Releases
from rpcinspect.replayer.playing.translate import ids_of

NAME_TRIES = 5
"""Another replay may take a name between our choice and our turn."""
MAX_NAME = 100
"""Bytes of a captured name in a name that is made up; torch takes 128."""


class JoinOptions(Struct, frozen=True, kw_only=True):
    """The group to join, and the workers that have other names in it."""

    store: StoreAddress
    renames: Mapping[str, str] = field(default_factory=dict)
    """Captured name → name in the group, of live workers; of played ones, the name under which they join."""


class _Names(Struct, frozen=True, kw_only=True):
    """Names and ids of the captured workers in the group."""

    renames: Mapping[str, str]
    """Captured → live, where they differ."""
    ids: Mapping[str, int]
    """Captured name of a live worker → its id."""


def check(sessions: Iterable[SessionInputs], options: JoinOptions) -> None:
    """Raises `ReplayError` where a session can't be played in this group; nothing was changed in it."""
    with options.store.connect() as store:
        for inputs in sessions:
            _names(store, inputs, options)
        addresses_of(store, read_members(store))


def play_joined(
    inputs: SessionInputs,
    options: JoinOptions,
    new_player: Callable[[SessionInputs, Loop, Mapping[str, Peer], Handle], Player],
    *,
    tap: TrafficRecorder | None,
    trouble: Callable[[str], None],
) -> None:
    """Plays a session with a new player. Raises `ReplayError` where that can't be done, with the group as it
    was. `trouble` hears that the group could not be left, and what to do about it.
    """
    limits = limits_for(inputs.largest)
    with options.store.connect(tap=tap) as store, HeldSignals() as signals, Loop(limits, tap=tap) as loop:
        loop.add_timer(signals.check)
        for left in reversed(range(NAME_TRIES)):
            names = _names(store, inputs, options)
            host = own_host(addresses_of(store, read_members(store)))
            with contextlib.ExitStack() as stack:
                peers = {
                    role: stack.enter_context(
                        Peer(loop, names.renames.get(role, role), 0, host=host, terms=MEMBER_TERMS)
                    )
                    for role in inputs.planned.cast.roles
                }
                membership = Membership(store, list(peers.values()), fresh=True, check=signals.check)
                player: Player | None = None
                try:
                    _join(membership, options)
                    player = new_player(_in_group(inputs, names, peers), loop, peers, membership.handle)
                    player.run()
                    return
                except NameTakenError:
                    if not left:
                        raise
                finally:
                    with signals.quiet():
                        if player is not None:
                            Releases(player.progress, peers, loop, membership.handle).run()
                        try:
                            membership.leave()
                        except ReplayError as error:
                            trouble(_trouble(error, peers.values(), options))


def _join(membership: Membership, options: JoinOptions) -> None:
    """Joins the group; an error names the remedy where a member is dead."""
    try:
        membership.join()
    except NameTakenError:
        raise
    except ReplayError as error:
        raise ReplayError(
            f"the group was not joined: {error}. To remove a dead member: "
            f"rpcinspect leave {options.store} NAME --yes"
        ) from error


def _in_group(inputs: SessionInputs, names: _Names, peers: Mapping[str, Peer]) -> SessionInputs:
    """The inputs with names and ids as they are in the group."""
    ids = {role: peer.worker_id for role, peer in peers.items()}
    rules = replace(inputs.rules, renames=names.renames)
    return replace(inputs, rules=rules, ids_in_group={**names.ids, **ids})


def _trouble(error: ReplayError, peers: Iterable[Peer], options: JoinOptions) -> str:
    names = " ".join(peer.name for peer in peers)
    return (
        f"the group could not be left properly: {error}; its members were told; to remove what is left "
        f"in its store: rpcinspect leave {options.store} {names} --yes"
    )


# --- who is who -------------------------------------------------------------------------------------------


def _names(store: StoreClient, inputs: SessionInputs, options: JoinOptions) -> _Names:
    """Returns the names in the group. Raises `ReplayError` if a worker in the messages is missing there."""
    members = read_members(store)
    cast, given = inputs.planned.cast, options.renames
    ids = {name: members[given.get(name, name)] for name in cast.live if given.get(name, name) in members}
    _check_targets(inputs.planned, given, ids, members)
    _check_mentions(inputs, ids)
    renames = {name: given[name] for name in cast.live if given.get(name, name) != name}
    for role in cast.roles:
        name = given.get(role, role)
        if name in members and role in given:
            raise ReplayError(f"--rename {role}={name}: the group has a member of this name")
        if name in members:
            name = f"{role.encode()[:MAX_NAME].decode('utf-8', 'ignore')}-replay-{secrets.token_hex(4)}"
        if name != role:
            renames[role] = name
    return _Names(renames=renames, ids=ids)


def _check_targets(
    planned: PlannedSession, given: Mapping[str, str], ids: Mapping[str, int], members: Mapping[str, int]
) -> None:
    targets = dict.fromkeys(step.to for step in planned.steps if step.action == "send")
    absent = [given.get(name, name) for name in targets if name not in ids]
    if absent:
        there = ", ".join(sorted(members))
        raise ReplayError(
            f"{', '.join(absent)} is not a member of the group, whose members are {there}; "
            "--rename CAPTURED=MEMBER says who is who, --role who is played"
        )


def _check_mentions(inputs: SessionInputs, ids: Mapping[str, int]) -> None:
    """Ids of workers in what is sent are translated; those of workers that are not there can't be."""
    known = {inputs.worker_ids[name] for name in (*ids, *inputs.planned.cast.roles)}
    captured = {worker_id: name for name, worker_id in inputs.worker_ids.items()}
    for step in [step for step in inputs.planned.steps if step.action != "skip"]:
        call = inputs.calls[step.message]
        sent = call.request if step.action == "send" else call.response
        for kind, value in [] if sent is None else ids_of(sent):
            if kind == WORKER and value not in known:
                who = captured.get(int(str(value)), f"worker {value}")
                raise ReplayError(f"#{call.index} names {who}, who is not a member of the group")
