"""Takes workers out of a dynamic group that have ended without leaving it.

In: a group's store, and names. Out: what was done. A worker that still answers is left alone. Members are
told as the worker itself would have told them, its entry leaves the list of members and its address the
store, and a token that it has kept is given back; its id stays taken, as after an ordinary leave.

Mirrors the leaving half of `shutdown` in torch/distributed/rpc/api.py.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from rpcinspect.errors import ReplayError
from rpcinspect.replay.peers.control_calls import membership_call, own_info_call, read_own_info
from rpcinspect.replay.peers.handshake import MEMBER_TERMS
from rpcinspect.replay.peers.loop import Loop
from rpcinspect.replay.peers.loopback import Address, any_host, parse_address
from rpcinspect.replay.peers.membership import (
    POLL_S,
    TOKEN,
    farewell,
    own_token,
    read_members,
    release_token,
    remove_entries,
    token_of,
)
from rpcinspect.replay.peers.peer import Peer
from rpcinspect.replay.peers.running_group import UV, StoreAddress, own_host
from rpcinspect.replay.peers.signals import HeldSignals
from rpcinspect.replay.peers.store_client import StoreClient

ANSWER_S = 5.0
"""A worker that has not answered for so long is gone, and a member that has not is told of."""
TOKEN_S = 10.0
REPAIRER = "rpcinspect-repair"


class Repair(Struct, frozen=True):
    """What was done."""

    removed: tuple[str, ...]
    """Members that were taken out."""
    token: str | None
    """The key of a token that was given back."""
    untold: tuple[str, ...]
    """Members that did not answer: they may have ended too."""


def remove_dead(address: StoreAddress, names: Sequence[str]) -> Repair:
    """Removes workers that have ended. Raises `ReplayError` if one of them still answers, if the group does
    not know it, and where the store or another worker stands in the way; the group is unchanged then.
    """
    with address.connect() as store, HeldSignals() as signals, Loop() as loop:
        loop.add_timer(signals.check)
        members = read_members(store)
        holder = store.get(TOKEN).decode("utf-8", "replace") if store.check(TOKEN) else ""
        unknown = [name for name in names if name not in members]
        if unknown and not token_of(holder, names):
            there = ", ".join(sorted(members))
            raise ReplayError(f"{', '.join(unknown)} is no member of the group, whose members are {there}")
        where = _addresses(store, [*members, *unknown])
        with Peer(loop, REPAIRER, 0, host=own_host(where), terms=MEMBER_TERMS) as stranger:
            stranger.addresses.update({name: found.url for name, found in where.items()})
            for name in names:
                if name in where:
                    _check_gone(stranger, name, where[name])
            signals.check()
            with signals.quiet():
                gone = {name: members[name] for name in names if name in members}
                return _remove(store, stranger, gone, names)


def _addresses(store: StoreClient, names: Sequence[str]) -> dict[str, Address]:
    """Where workers listened; without those that were reached otherwise than over TCP."""
    urls = {name: store.get(f"addrs/{name}") for name in names if store.check(f"addrs/{name}")}
    texts = {name: url.decode("utf-8", "replace") for name, url in urls.items()}
    return {name: parse_address(text, any_host) for name, text in texts.items() if text.startswith(UV)}


def _check_gone(stranger: Peer, name: str, address: Address) -> None:
    """Raises `ReplayError` if a worker still answers, or listens."""
    try:
        answer = stranger.call(name, own_info_call(), timeout_s=ANSWER_S).message
    except ReplayError as error:
        if not stranger.reached(name):
            return  # nobody listens there, or no way leads there
        text = f"something listens at {address}, as {name} did, and does not answer: end it first"
        raise ReplayError(text) from error
    other = read_own_info(answer)
    if other is None or other == name:
        raise ReplayError(f"{name} still answers, at {address}: let it leave by itself")


def _remove(store: StoreClient, stranger: Peer, gone: Mapping[str, int], names: Collection[str]) -> Repair:
    mine = own_token(store, REPAIRER, "leave")
    deadline = time.monotonic() + TOKEN_S
    given_back = None
    while (holder := store.compare_set(TOKEN, b"", mine)) != mine:
        text = holder.decode("utf-8", "surrogateescape")
        if token_of(text, names):  # whoever took it has ended
            given_back = text
            release_token(store, holder)
        elif time.monotonic() >= deadline:
            raise ReplayError(f"the group's token is held: {text[:80]!a}")
        else:
            time.sleep(POLL_S)
    try:
        others = [name for name in read_members(store) if name not in gone]
        calls = [
            (stranger, member, membership_call(name, worker_id, is_join=False))
            for member in others
            for name, worker_id in gone.items()
        ]
        untold = farewell(calls, ANSWER_S)
        remove_entries(store, {f"{name}-{worker_id}" for name, worker_id in gone.items()})
        for name in gone:
            store.delete(f"addrs/{name}")
    finally:
        release_token(store, mine)
    return Repair(tuple(gone), given_back, tuple(dict.fromkeys(untold)))
