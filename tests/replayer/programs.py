"""Workers as programs of their own, which form a dynamic group that nobody of rpcinspect has started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.handshake import MEMBER_TERMS
from rpcinspect.replayer.peers.loop import Loop
from rpcinspect.replayer.peers.membership import TOKEN, read_members
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.running_group import StoreAddress
from tests.forks import popen
from tests.replayer.live_calls import python_call, value_of

PROGRAM = Path(__file__).resolve().parents[2] / "rpcinspect" / "replayer" / "workers" / "live_worker.py"
START_S = 60.0
"""Importing torch takes seconds where many do so."""
QUIET = ("--transport", "uv", "--channel", "basic")
"""Workers that wait cost nothing. With torch's default, shared memory, each polls for what may have come."""


def free_port() -> int:
    """Nobody listens there just now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Running(Protocol):
    """A program that was started."""

    returncode: int | None

    def send_signal(self, number: int, /) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float) -> int: ...


Start = Callable[[Sequence[str], Mapping[str, str]], Running]
"""From arguments and an environment."""


def start_by_itself(arguments: Sequence[str], env: Mapping[str, str]) -> Running:
    """A Python of its own, whose output nobody wants."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=env,
        start_new_session=True,
    )


def start_as_fork(arguments: Sequence[str], env: Mapping[str, str]) -> Running:
    """The same, which need not import torch again."""
    return popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)


class Programs(Struct):
    """`live_worker.py`, started as `torchrun` would; the first, whose process has the store, ends last."""

    names: Sequence[str]
    arguments: Sequence[object] = ()
    start_program: Start = start_by_itself
    port: int = field(default_factory=free_port)
    running: dict[str, Running] = field(default_factory=dict)

    @property
    def store(self) -> StoreAddress:
        """What `--connect` takes."""
        return StoreAddress("127.0.0.1", self.port)

    def start(self, *names: str) -> None:
        """Starts workers, each once the one before is a member: of two that join at once, torch's first may
        call the second too early.
        """
        for name in names:
            rank = self.names.index(name)
            arguments = [str(PROGRAM), *self.names, *map(str, self.arguments)]
            self.running[name] = self.start_program(arguments, environment(rank, self.port))
            self._wait_for(name)

    def _wait_for(self, name: str) -> None:
        until(lambda: name in self.members() and self.token() == b"", START_S)

    def members(self) -> Mapping[str, int]:
        """As the store has them; nobody while there is no store."""
        try:
            with self.store.connect() as store:
                return read_members(store)
        except ReplayError:
            return {}

    def token(self) -> bytes:
        """Empty: nobody joins or leaves just now."""
        with self.store.connect() as store:
            return store.get(TOKEN)

    def ask(self, name: str, module: str, function: str, *args: object) -> object:
        """The value of `module.function(*args)` in a worker, asked by somebody who never joined."""
        with self.store.connect() as store, Loop() as loop:
            peer = Peer(loop, "stranger", 99, terms=MEMBER_TERMS)
            peer.addresses[name] = store.get(f"addrs/{name}").decode()
            return value_of(peer.call(name, python_call(module, function, *args), timeout_s=START_S))

    def takes_connections(self, name: str) -> bool:
        """Whether a worker can be called; False: nobody listens there, if it runs or not."""
        try:
            return self.ask(name, "builtins", "len", "four") == 4
        except ReplayError as error:
            if "Connection refused" not in str(error):
                raise
            return False

    def check_works(self, newcomer: str) -> None:
        """The group is as its members know it: each calls each, somebody joins, is called, and leaves."""
        members = list(self.running)
        assert self.members().keys() == set(members)
        self._call_each_other(members)
        self.start(newcomer)
        self._call_each_other([*members, newcomer])
        self.end(newcomer)
        assert self.members().keys() == set(members)
        self._call_each_other(members)

    def _call_each_other(self, members: Sequence[str]) -> None:
        for one in members:
            for other in members:
                found = self.ask(one, "torch.distributed.rpc.api", "rpc_sync", other, len, ("four",))
                assert found == 4, (one, other, found)
        assert self.token() == b""

    def end(self, *names: str) -> None:
        """Lets workers leave, which must go well and soon."""
        for name in names:
            process = self.running.pop(name)
            process.send_signal(signal.SIGTERM)
            try:
                assert process.wait(START_S) == 0, name
            finally:
                process.kill()

    def end_all(self) -> None:
        """Everybody, the first last."""
        self.end(*sorted(self.running, key=self.names.index, reverse=True))

    def kill(self) -> list[int]:
        """Whoever is left; their exit codes, which tell who had ended by itself."""
        for process in self.running.values():
            process.kill()
        codes = [process.wait(START_S) for process in self.running.values()]
        self.running.clear()
        return codes


def environment(rank: int, port: int) -> dict[str, str]:
    """What `torchrun` sets, and the loopback for everything."""
    return os.environ | {
        "RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TP_SOCKET_IFNAME": "lo",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def until(holds: Callable[[], bool], seconds: float) -> None:
    """Waits for something; fails if it takes too long."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)
