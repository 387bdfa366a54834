"""A dynamic group that others have started: where it is, who its members are, how those that have ended
without leaving are taken out of it, and how no signal ends this process while it is a member.

In: host and port of a store that the user names. Out: a store client with the group's prefix, and where its
members are; of `remove_dead` what was done. A worker that still answers is left alone. Members are told of
one that is gone as it would have told them itself, its entry leaves the list of members and its address the
store, and a token that it has kept is given back; its id stays taken, as after an ordinary leave. May assume
nothing about what the store says.

Mirrors the prefixes of `init_rpc` of torch/distributed/rpc/__init__.py, and the leaving half of `shutdown` in
torch/distributed/rpc/api.py.
"""

from __future__ import annotations

import ipaddress
import signal
import socket
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from msgspec import Struct

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.control_calls import membership_call, own_info_call, read_own_info
from rpcinspect.replayer.peers.handshake import MEMBER_TERMS
from rpcinspect.replayer.peers.loop import Loop
from rpcinspect.replayer.peers.loopback import SCHEME as UV_SCHEME
from rpcinspect.replayer.peers.loopback import Address, any_host, parse_address
from rpcinspect.replayer.peers.membership import (
    IS_STATIC,
    POLL_S,
    STATIC,
    TOKEN,
    farewell,
    held_token,
    read_members,
    release_token,
    remove_entries,
    token_of,
)
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.peers.traffic_pcap import TrafficRecorder

HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class HeldSignals:
    """Holds back signals that would end this process while it is a member of another job's group.

    An exception of a signal may come between any two instructions, also between taking a group's token and
    noting that it was taken. While they are held, a signal is only noted; `check` lets it do what it would
    have done, and is called where that may be. While leaving, not even there.

    Use it in a `with` statement. Only signals that Python handles are held: those that end the process at
    once do so. Elsewhere than in the main thread there are none to hold.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._waiting: list[int] = []
        self._quiet = 0

    def check(self, _: float = 0.0) -> None:
        """Lets what came meanwhile take effect: most raise an exception. A timer of a loop may call it."""
        if self._waiting and not self._quiet:
            number = self._waiting.pop(0)
            self._before[number](number, None)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Returns a context in which no signal takes effect, not even by `check`."""
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    def __enter__(self) -> HeldSignals:
        if threading.current_thread() is threading.main_thread():
            for number in HELD:
                if callable(signal.getsignal(number)):
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if error is None or isinstance(error, Exception):  # otherwise something ends us already
            self.check()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number not in self._waiting:
            self._waiting.append(number)


MAX_GROUPS = 64
"""Calls of init_rpc in one process that are looked for."""
SCHEME = "tcp://"


class StoreAddress(Struct, frozen=True):
    """Host and port of a group's store: the `init_method` of its workers."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> StoreAddress | None:
        """`tcp://host:port`; None: it is none."""
        host, colon, port = text.removeprefix(SCHEME).rpartition(":")
        if not text.startswith(SCHEME) or not colon or not port.isascii() or not port.isdigit():
            return None
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        fits = host and not set(host) & set("/[]@ ") and 0 < int(port[:6]) < 1 << 16
        return cls(host, int(port)) if fits else None

    def __str__(self) -> str:
        return SCHEME + str(Address(self.host, self.port))

    def connect(self, *, tap: TrafficRecorder | None = None) -> StoreClient:
        """A client with the prefix of the group that was started last. Raises `ReplayError`."""
        store = StoreClient(self.host, self.port, tap=tap)
        try:
            store.prefix = _prefix(store)
        except BaseException:
            store.close()
            raise
        return store


def _prefix(store: StoreClient) -> str:
    """The prefix of the last dynamic group that has members. Raises `ReplayError` where there is none."""
    static = False
    for number in reversed(range(MAX_GROUPS)):
        store.prefix = f"/rpc_prefix_{number}/"
        if not store.check(IS_STATIC):
            continue
        if store.get(IS_STATIC) != b"false":
            static = True
        elif read_members(store):
            return store.prefix
    if static:
        raise ReplayError(STATIC)
    raise ReplayError("no torch.distributed.rpc group has its workers in this store")


def addresses_of(store: StoreClient, names: Iterable[str], *, all_of_them: bool = True) -> dict[str, Address]:
    """The addresses of members, without those that leave just now. Those that can't be reached over TCP are
    left out, or raise `ReplayError` if addresses of `all_of_them` are needed.
    """
    found = {}
    for name in names:
        key = f"addrs/{name}"
        url = store.get(key).decode("utf-8", "replace") if store.check(key) else ""
        if url.startswith(UV_SCHEME):
            found[name] = parse_address(url, any_host)
        elif url and all_of_them:
            scheme = url.partition(":")[0]
            raise ReplayError(f"{name} is reached over {scheme[:20]!a} only, not over TCP (transport uv)")
    return found


def own_host(members: Mapping[str, Address]) -> str:
    """The address of this machine at which all members can reach it: the one that it uses towards them."""
    towards = {name: _towards(address) for name, address in members.items()}
    hosts = sorted(set(towards.values()))
    others = [host for host in hosts if not ipaddress.ip_address(host).is_loopback]
    if len(others) > 1:
        ways = ", ".join(f"{host} for {name}" for name, host in sorted(towards.items()))
        raise ReplayError(f"members reach this machine by different addresses: {ways}")
    return (others or hosts)[0]


def _towards(address: Address) -> str:
    """The own address of a connection there; nothing is sent."""
    with socket.socket(address.family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((address.host, address.port))
        except OSError as error:
            raise ReplayError(f"no route leads to {address}: {error.strerror}") from error
        return str(sock.getsockname()[0])


ANSWER_S = 5.0
"""A worker that has not answered for so long is gone, and a member that has not is told of."""
TOKEN_S = 10.0
REPAIRER = "rpcinspect-repair"


class Repair(Struct, frozen=True):
    """Members and token that were removed from a group, and the members that could not be informed."""

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
            raise ReplayError(f"{', '.join(unknown)} is not a member of the group, whose members are {there}")
        where = addresses_of(store, [*members, *unknown], all_of_them=False)
        with Peer(loop, REPAIRER, 0, host=own_host(where), terms=MEMBER_TERMS) as stranger:
            stranger.addresses.update({name: found.url for name, found in where.items()})
            for name in names:
                if name in where:
                    _check_gone(stranger, name, where[name])
            signals.check()
            with signals.quiet():
                gone = {name: members[name] for name in names if name in members}
                return _remove(store, stranger, gone, names)


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
    given_back: list[str] = []

    def wait(holder: bytes) -> None:
        text = holder.decode("utf-8", "surrogateescape")
        if token_of(text, names):  # whoever took it has ended
            given_back.append(text)
            release_token(store, holder)
        else:
            time.sleep(POLL_S)

    with held_token(store, REPAIRER, "leave", TOKEN_S, wait):
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
    return Repair(tuple(gone), given_back[-1] if given_back else None, tuple(dict.fromkeys(untold)))
