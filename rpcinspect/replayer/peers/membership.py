"""Played workers as members of a dynamic group: how they join, what they answer meanwhile, how they leave.

In: peers, and the store of a group that other processes form. Out: the peers know the addresses of all
members, and all members know the peers: they can call back. A peer can send without that; it can't be sent
gradients.

What the group could be left with if this process fails halfway is undone in every case that a process can
see: the group's token is given back, members are told that the peers are gone, names and addresses are
taken out of the store. A worker that was told of a failed peer must be told again, or its own shutdown
fails. What a process can't see is for `running_group.remove_dead`.

An id that members were told of is never free again: they keep their pipe to the process that had it. As
torch does, its key stays in the store, so that nobody takes it.

Mirrors `_group_membership_management` of torch/distributed/rpc/_utils.py, which has no such care, and the
dynamic parts of torch/csrc/distributed/rpc/tensorpipe_agent.cpp.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.control_calls import (
    UpdateGroupMembership,
    control_answer,
    membership_call,
    read_control_call,
)
from rpcinspect.replayer.peers.loop import PeerEvent, RequestArrived, ResponseArrived, ended_by
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.planning.sessions import MAX_ID
from rpcinspect.rpc.message import MessageType, RpcMessage

PREFIX = "/rpc_prefix_0/"
"""Of the keys of the first group of a process, in torch's store."""

TOKEN = "RpcGroupManagementToken"
IS_STATIC = "rpcIsStaticGroup"
MEMBERS = "names/_ALL_WORKER_INFOS"
DONE = b"Done"
POLL_S = 0.01
STATIC = "the group is static (init_rpc with world_size): no worker can join it"


class NameTakenError(ReplayError):
    """Raised where a member has this name already; nothing was changed."""


class Membership:
    """Peers that join a group together; whoever lets them join must let them leave."""

    def __init__(
        self,
        store: StoreClient,
        peers: Sequence[Peer],
        *,
        timeout_s: float = 10.0,
        fresh: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`store`: with the group's prefix, see `PREFIX`; at least one peer. `timeout_s`: for each step.
        `fresh`: peers get ids that nobody has had in this group. `check` is called while joining, where an
        exception does no harm.
        """
        self._store = store
        self._peers = list(peers)
        self._timeout_s = timeout_s
        self._fresh = fresh
        self._check = check
        self._own = {peer.name for peer in peers}
        self._told: list[tuple[Peer, str]] = []
        """(peer, member that knows of it)"""
        self._listed: list[Peer] = []
        """Peers whose names are in the store."""

    def join(self) -> None:
        """Makes all peers members, each known to all others. Raises `ReplayError`, and then nobody joined."""
        with self._token("join"):
            try:
                if self._store.compare_set(IS_STATIC, b"", b"false") != b"false":
                    raise ReplayError(STATIC)
                members = read_members(self._store)
                self._check_free(members)
                for peer in self._peers:
                    self._list(peer)
                for name in members:
                    self._learn(name)
                for peer in self._peers:
                    for name in members:
                        self._check()
                        self._tell(peer, name, is_join=True)
            except BaseException:
                self._undo()
                raise

    def leave(self) -> None:
        """Takes all peers out of the group again; harmless where none has joined. Raises `ReplayError` for a
        lost store, or a token that nobody gives back, not for a lost member; the members were told even then.
        """
        if not self._listed and not self._told:
            return
        try:
            with self._token("leave"):
                self._undo()
        except ReplayError:
            self._undo()  # unless it was done
            raise

    def handle(self, event: PeerEvent) -> bool:
        """Answers a request that is a matter of membership; True: it was one, nobody else need see it."""
        if not isinstance(event, RequestArrived):
            return False
        call = read_control_call(event.message)
        peer = next((peer for peer in self._peers if peer.name == event.peer), None)
        if call is None or peer is None:
            return False
        if isinstance(call, UpdateGroupMembership) and call.name not in self._own:
            if call.is_join:
                with contextlib.suppress(ReplayError):  # found out again when it is needed
                    self._learn(call.name)
                self._told.append((peer, call.name))  # it has found us among the members
            else:
                for each in self._peers:
                    each.forget(call.name)
                self._told = [(p, name) for p, name in self._told if name != call.name]
        with contextlib.suppress(ReplayError):  # whoever asked is gone
            peer.answer(event, control_answer(call))
        return True

    # --- steps ---------------------------------------------------------------------------------------------

    def _token(self, what: str) -> contextlib.AbstractContextManager[None]:
        def wait(holder: bytes) -> None:
            if what == "join":
                self._check()
            # Whoever holds it may be waiting for an answer of ours.
            self._peers[0].loop.wait_until(self.handle, POLL_S)

        return held_token(self._store, self._peers[0].name, what, self._timeout_s, wait)

    def _check_free(self, members: dict[str, int]) -> None:
        ids = {worker_id: name for name, worker_id in members.items()}
        for peer in self._peers:
            if peer.name in members:
                raise NameTakenError(f"the group has a member {peer.name!a} already")
            if peer.worker_id in ids and not self._fresh:
                raise ReplayError(f"id {peer.worker_id} of {peer.name!a} is that of {ids[peer.worker_id]!a}")

    def _list(self, peer: Peer) -> None:
        """Name, id and address into the store, as an agent does when it starts."""
        self._listed.append(peer)
        if self._fresh:
            peer.worker_id = claim_id(self._store, peer.name)
        else:
            self._store.set(f"names/{peer.worker_id}", peer.name.encode())
        self._store.set(f"addrs/{peer.name}", peer.address.encode())
        self._store.append(MEMBERS, f"{peer.name}-{peer.worker_id},".encode())

    def _learn(self, name: str) -> None:
        """Lets all peers know where a member listens."""
        url = self._store.get(f"addrs/{name}").decode("utf-8", "replace")
        for peer in self._peers:
            peer.addresses[name] = url

    def _tell(self, peer: Peer, member: str, *, is_join: bool) -> None:
        if is_join:  # also if it fails: nobody knows then whether it was done
            self._told.append((peer, member))
        call = membership_call(peer.name, peer.worker_id, is_join=is_join)
        answer = peer.call(member, call, timeout_s=self._timeout_s).message
        if answer.type != MessageType.PYTHON_RET or not _is_none(answer):
            raise ReplayError(f"{member} does not let {peer.name!a} {'join' if is_join else 'leave'}")

    def _undo(self) -> None:
        """Removes members first, so that none is sent to an address without a process."""
        if not self._listed and not self._told:
            return
        told, self._told = self._told, []
        listed, self._listed = self._listed, []
        with contextlib.suppress(ReplayError):  # those whom a worker told that is gone since
            told += [(peer, name) for name in read_members(self._store) for peer in listed]
        farewell(
            (
                (peer, name, membership_call(peer.name, peer.worker_id, is_join=False))
                for peer, name in dict.fromkeys(told)
                if name not in self._own and name in peer.addresses
            ),
            self._timeout_s,
        )
        known = {peer for peer, _ in told}
        remove_entries(self._store, {f"{peer.name}-{peer.worker_id}" for peer in listed})
        for peer in listed:
            self._store.delete(f"addrs/{peer.name}")
            if peer not in known:
                self._store.delete(f"names/{peer.worker_id}")


def farewell(
    calls: Iterable[tuple[Peer, str, RpcMessage]],
    timeout_s: float,
    asked: Callable[[RequestArrived], None] | None = None,
) -> list[str]:
    """Calls members from several peers at once, and waits for the answers; returns the members that did not
    answer. `asked` gets requests that come meanwhile; None: they are kept."""
    waiting: dict[tuple[str, int], str] = {}
    missed: list[str] = []
    loop = None
    for peer, name, message in calls:
        loop = peer.loop
        try:
            waiting[peer.name, peer.send(name, message, timeout_s=timeout_s)] = name
        except ReplayError:
            missed.append(name)

    def ends(event: PeerEvent) -> bool:
        if isinstance(event, RequestArrived) and asked is not None:
            asked(event)
            return True
        over = [waiting.pop(key) for key in ended_by(event) if key in waiting]
        if not isinstance(event, ResponseArrived):
            missed.extend(over)
        return bool(over)

    deadline = time.monotonic() + timeout_s + 1.0
    while loop is not None and waiting and time.monotonic() < deadline:
        loop.wait_until(ends, max(deadline - time.monotonic(), 0.0))
    return [*missed, *waiting.values()]


@contextlib.contextmanager
def held_token(
    store: StoreClient, name: str, what: str, timeout_s: float, wait: Callable[[bytes], None]
) -> Iterator[None]:
    """Takes the group's token: only one worker at a time may join or leave. Calls `wait` with the holder's
    token, again and again. Raises `ReplayError` after the timeout.

    The value of the token is also the key that others wait for until it is given back. torch's has no random
    part: two workers of one name would both believe that they have it. And here the key is there from the
    beginning: a worker of torch that waits for it answers nobody who needs its store, and to be told that we
    join it needs its store. So it asks again and again for the moment instead.
    """
    key = f"Token_for_{name}_{what}_{secrets.token_hex(4)}"
    store.set(key, DONE)
    mine, deadline = key.encode(), time.monotonic() + timeout_s
    while (holder := store.compare_set(TOKEN, b"", mine)) != mine:
        if time.monotonic() >= deadline:
            raise ReplayError(f"the group's token is held: {holder.decode('utf-8', 'replace')[:80]!a}")
        wait(holder)
    try:
        yield
    finally:
        release_token(store, mine)


def token_of(token: str, names: Collection[str]) -> bool:
    """Returns whether a token belongs to one of these workers, or to torch's worker of such a name."""
    found = _TOKEN.fullmatch(token)
    return found is not None and found[1] in names


def release_token(store: StoreClient, token: bytes) -> None:
    """Gives the group's token back, as torch does: others wait for the key of whoever has it."""
    store.set(TOKEN, b"")
    store.set(token.decode("utf-8", "surrogateescape"), DONE)


def claim_id(store: StoreClient, name: str) -> int:
    """An id that no worker of the group has had, from the top down; it is this worker's now."""
    raw = name.encode()
    for worker_id in range(MAX_ID, -1, -1):
        key = f"names/{worker_id}"
        if not store.check(key) and store.compare_set(key, b"", raw) == raw:
            return worker_id
    raise ReplayError("the group has used up all ids of workers")


def remove_entries(store: StoreClient, gone: Collection[str]) -> None:
    """Takes entries `name-id` out of the list of members. Nothing that others do meanwhile is lost."""
    while store.check(MEMBERS):
        before = store.get(MEMBERS)
        entries = before.decode("utf-8", "surrogateescape").split(",")
        kept = "".join([f"{entry}," for entry in entries if entry and entry not in gone])
        after = kept.encode("utf-8", "surrogateescape")
        if before == after:
            return
        if store.compare_set(MEMBERS, before, after) == after:
            return


def read_members(store: StoreClient) -> dict[str, int]:
    """Name → id of everybody in the group."""
    if not store.check(MEMBERS):
        return {}
    text = store.get(MEMBERS).decode("utf-8", "surrogateescape")
    return {name: int(worker_id) for name, worker_id in _MEMBER.findall(text)}


def _is_none(answer: RpcMessage) -> bool:
    """Whether a Python answer is the pickle of None, in any protocol."""
    return answer.payload.startswith(b"\x80") and answer.payload[2:] == b"N."


_TOKEN = re.compile(r"Token_for_(.+)_(?:join|leave)(?:_[0-9a-f]{8})?", re.DOTALL)
_MEMBER = re.compile(r"([^,]+)-(\d{1,9}),", re.ASCII)
