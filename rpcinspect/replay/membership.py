"""Played workers as members of a dynamic group: how they join, what they answer meanwhile, how they leave.

In: peers, and the store of a group that other processes form. Out: the peers know the addresses of all
members, and all members know the peers: they can call back. A peer can send without that; it can't be sent
gradients.

What the group could be left with if this process fails halfway is undone in every case that a process can
see: the group's token is given back, members are told that the peers are gone, names and addresses are
taken out of the store. A worker that was told of a failed peer must be told again, or its own shutdown
fails.

Mirrors `_group_membership_management` of torch/distributed/rpc/_utils.py, which has no such care, and the
dynamic parts of torch/csrc/distributed/rpc/tensorpipe_agent.cpp.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from types import TracebackType

from rpcinspect.errors import ReplayError
from rpcinspect.replay.control_calls import (
    UpdateGroupMembership,
    control_answer,
    membership_call,
    read_control_call,
)
from rpcinspect.replay.events import PeerEvent, RequestArrived
from rpcinspect.replay.peer import Peer
from rpcinspect.replay.store_client import StoreClient
from rpcinspect.rpc.message import Message, MessageType

PREFIX = "/rpc_prefix_0/"
"""Of the keys of the first group of a process, in torch's store."""

TOKEN = "RpcGroupManagementToken"
IS_STATIC = "rpcIsStaticGroup"
MEMBERS = "names/_ALL_WORKER_INFOS"
DONE = b"Done"
POLL_S = 0.01


class Membership:
    """Some peers in one group. Use it in a `with` statement: it joins, and leaves whatever happens."""

    def __init__(self, store: StoreClient, peers: Sequence[Peer], *, timeout_s: float = 10.0) -> None:
        """`store`: with the group's prefix, see `PREFIX`; at least one peer. `timeout_s`: for each step."""
        if not peers:
            raise ValueError("nobody to join")
        self._store = store
        self._peers = list(peers)
        self._timeout_s = timeout_s
        self._own = {peer.name for peer in peers}
        self._told: list[tuple[Peer, str]] = []
        """(peer, member that knows of it)"""
        self._listed: list[Peer] = []
        """Peers whose names are in the store."""

    def join(self) -> None:
        """Makes all peers members, each known to all others. Raises `ReplayError`, and then nobody joined."""
        with self._token("join"):
            try:
                self._check_group()
                members = read_members(self._store)
                self._check_free(members)
                for peer in self._peers:
                    self._list(peer)
                for name in members:
                    self._learn(name)
                for peer in self._peers:
                    for name in members:
                        self._tell(peer, name, is_join=True)
            except BaseException:
                self._undo()
                raise

    def leave(self) -> None:
        """Takes all peers out of the group again; harmless where they are none. Never raises `ReplayError`
        for a member that is gone, only for a store that is.
        """
        if not self._listed and not self._told:
            return
        with self._token("leave"):
            self._undo()

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
            else:
                for each in self._peers:
                    each.forget(call.name)
                self._told = [(p, name) for p, name in self._told if name != call.name]
        with contextlib.suppress(ReplayError):  # whoever asked is gone
            peer.answer(event, control_answer(call))
        return True

    def __enter__(self) -> Membership:
        self.join()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.leave()
        except ReplayError:
            if error is None:  # otherwise the first error says more
                raise

    # --- steps ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _token(self, what: str) -> Iterator[None]:
        """Only one worker at a time may join or leave; the others wait for its token."""
        mine = f"Token_for_{self._peers[0].name}_{what}"
        deadline = time.monotonic() + self._timeout_s
        while (holder := self._store.compare_set(TOKEN, b"", mine.encode())) != mine.encode():
            left = deadline - time.monotonic()
            if left <= 0:
                raise ReplayError(f"the group's token is held: {holder.decode('utf-8', 'replace')[:80]!a}")
            with contextlib.suppress(ReplayError):
                self._store.wait(holder.decode("utf-8", "surrogateescape"), timeout_s=max(left, POLL_S))
            time.sleep(POLL_S)  # a key of an earlier round may be there still
        try:
            yield
        finally:
            self._store.set(TOKEN, b"")
            self._store.set(mine, DONE)

    def _check_group(self) -> None:
        if self._store.compare_set(IS_STATIC, b"", b"false") != b"false":
            raise ReplayError("the group is static: nobody can join it")

    def _check_free(self, members: dict[str, int]) -> None:
        ids = {worker_id: name for name, worker_id in members.items()}
        for peer in self._peers:
            if peer.name in members:
                raise ReplayError(f"the group has a member {peer.name!a} already")
            if peer.worker_id in ids:
                raise ReplayError(f"id {peer.worker_id} of {peer.name!a} is that of {ids[peer.worker_id]!a}")

    def _list(self, peer: Peer) -> None:
        """Name, id and address into the store, as an agent does when it starts."""
        self._listed.append(peer)
        self._store.set(f"names/{peer.worker_id}", peer.name.encode())
        self._store.set(f"addrs/{peer.name}", peer.address.encode())
        self._store.append(MEMBERS, f"{peer.name}-{peer.worker_id},".encode())

    def _learn(self, name: str) -> None:
        """Where a member listens."""
        url = self._store.get(f"addrs/{name}").decode("utf-8", "replace")
        for peer in self._peers:
            peer.addresses[name] = url

    def _tell(self, peer: Peer, member: str, *, is_join: bool) -> None:
        if is_join:  # also if it fails: nobody knows then whether it was done
            self._told.append((peer, member))
        answer = peer.call(
            member,
            membership_call(peer.name, peer.worker_id, is_join=is_join),
            timeout_s=self._timeout_s,
        ).message
        if answer.type != MessageType.PYTHON_RET or not _is_none(answer):
            raise ReplayError(f"{member} does not let {peer.name!a} {'join' if is_join else 'leave'}")

    def _undo(self) -> None:
        """Members first, so that none is sent to an address that nobody has any more."""
        told, self._told = self._told, []
        for peer, member in told:
            with contextlib.suppress(ReplayError):  # the member is gone
                self._tell(peer, member, is_join=False)
        if not self._listed:
            return
        gone = {f"{peer.name}-{peer.worker_id}" for peer in self._listed}
        listed, self._listed = self._listed, []
        entries = self._store.get(MEMBERS).decode("utf-8", "surrogateescape").split(",")
        kept = "".join([f"{entry}," for entry in entries if entry and entry not in gone])
        self._store.set(MEMBERS, kept.encode("utf-8", "surrogateescape"))
        for peer in listed:
            self._store.delete(f"names/{peer.worker_id}")
            self._store.delete(f"addrs/{peer.name}")


def read_members(store: StoreClient) -> dict[str, int]:
    """Name → id of everybody in the group."""
    if not store.check(MEMBERS):
        return {}
    text = store.get(MEMBERS).decode("utf-8", "surrogateescape")
    return {name: int(worker_id) for name, worker_id in _MEMBER.findall(text)}


def _is_none(answer: Message) -> bool:
    """Whether a Python answer is the pickle of None, in any protocol."""
    return answer.payload.startswith(b"\x80") and answer.payload[2:] == b"N."


_MEMBER = re.compile(r"([^,]+)-(\d{1,9}),", re.ASCII)
