"""A small client of torch's TCPStore: enough to publish a worker's name and address and to read others'.

In: host and port of a store, an optional prefix that goes before every key. Out: keys and values as bytes.
Speaks the protocol of torch 2.2 and later, blocking, and waits for nothing longer than its timeout. May
assume nothing about what the store answers: lengths are bounded, and whatever doesn't fit raises
`ReplayError`. After a timeout or a broken answer the connection is closed, since nobody knows where the
next answer would begin.

No key is waited for, as torch's client does: whoever joins a group sets all of its keys while it holds the
group's token.

Mirrors the `TCPStore` client of torch/csrc/distributed/c10d/TCPStore.cpp; operations are numbered as there.
"""

from __future__ import annotations

import socket
import time

from rpcinspect.errors import ReplayError
from rpcinspect.files.closing import Closing
from rpcinspect.limits import DEFAULT_LIMITS
from rpcinspect.replayer.peers.traffic_pcap import TrafficRecorder
from rpcinspect.store.operations import OPENING_2_2, packed_string

SET, COMPARE_SET, GET, _, CHECK = range(1, 6)
DELETE_KEY, APPEND = 8, 9
ALL_THERE = b"\0"
"""The answer to CHECK where all keys exist."""

DEFAULT_TIMEOUT_S = 10.0


class StoreClient(Closing):
    """A connection to a store. Use it in a `with` statement."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        prefix: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        tap: TrafficRecorder | None = None,
    ) -> None:
        """Connects; `prefix` (such as `/rpc_prefix_0/`) goes before every key, `tap` sees every byte. Raises
        `ReplayError`.
        """
        self.prefix = prefix
        self._timeout_s = timeout_s
        self._place = f"store at {host}:{port}"
        self._deadline = time.monotonic() + timeout_s
        self._tap: TrafficRecorder | None = None
        """Once both ends are known, and until the connection is closed."""
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise ReplayError(f"{self._place}: {error.strerror or error}") from error
        try:
            self._local, self._remote = self._socket.getsockname()[:2], self._socket.getpeername()[:2]
            if tap is not None:
                tap.opened(self._local, self._remote, False)
                self._tap = tap
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._send(OPENING_2_2)
            # Whether it is a store, asked in a way that every release answers: 2.2 knows no PING.
            if not self.check():
                raise ReplayError(f"{self._place} does not answer as a TCPStore of torch 2.2 or later")
        except OSError as error:  # the store is gone again already
            self.close()
            raise ReplayError(f"{self._place}: {error.strerror or error}") from error
        except BaseException:
            self.close()
            raise

    def set(self, key: str, value: bytes) -> None:
        """The key has this value from now on."""
        self._ask(SET, key, packed_string(value))

    def get(self, key: str) -> bytes:
        """The value of a key. Raises `ReplayError` where there is none."""
        if not self.check(key):
            raise ReplayError(f"{self._place}: nobody has set {key}")
        self._ask(GET, key)
        return self._receive_string()

    def check(self, *keys: str) -> bool:
        """Whether all of the keys exist; of no keys they do."""
        self._begin()
        named = b"".join([self._key(key) for key in keys])
        self._send(bytes((CHECK,)) + len(keys).to_bytes(8, "little") + named)
        return self._receive(1) == ALL_THERE

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Sets the key if its value is `expected` (empty: or if it has none); returns its new value."""
        self._ask(COMPARE_SET, key, packed_string(expected), packed_string(desired))
        return self._receive_string()

    def append(self, key: str, value: bytes) -> None:
        """The value goes behind what the key has."""
        self._ask(APPEND, key, packed_string(value))

    def delete(self, key: str) -> bool:
        """Whether there was such a key; it is gone now."""
        self._ask(DELETE_KEY, key)
        return int.from_bytes(self._receive(8), "little", signed=True) > 0

    def close(self) -> None:
        """Ends the connection; calling it again is fine."""
        self._socket.close()
        tap, self._tap = self._tap, None
        if tap is not None:
            tap.closed(self._local, self._remote)

    def _ask(self, operation: int, key: str, *values: bytes) -> None:
        self._begin()
        self._send(bytes((operation,)) + self._key(key) + b"".join(values))

    def _key(self, key: str) -> bytes:
        return packed_string((self.prefix + key).encode("utf-8", "surrogateescape"))

    def _begin(self) -> None:
        if self._socket.fileno() < 0:
            raise ReplayError(f"the connection to the {self._place} is closed")
        self._deadline = time.monotonic() + self._timeout_s

    def _send(self, data: bytes) -> None:
        try:
            self._socket.settimeout(self._left())
            self._socket.sendall(data)
        except OSError as error:
            self.close()
            raise ReplayError(f"{self._place}: {error.strerror or error}") from error
        if self._tap is not None:
            self._tap.data(self._local, self._remote, True, data)

    def _receive(self, length: int) -> bytes:
        """Exactly so many bytes."""
        parts: list[bytes] = []
        missing = length
        while missing:
            try:
                self._socket.settimeout(self._left())
                part = self._socket.recv(min(missing, 1 << 16))
            except TimeoutError:
                self.close()
                raise ReplayError(f"{self._place}: no answer in time") from None
            except OSError as error:
                self.close()
                raise ReplayError(f"{self._place}: {error.strerror or error}") from error
            if not part:
                self.close()
                raise ReplayError(f"the {self._place} closed the connection")
            if self._tap is not None:
                self._tap.data(self._local, self._remote, False, part)
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _receive_string(self) -> bytes:
        length = int.from_bytes(self._receive(8), "little")
        if length > DEFAULT_LIMITS.store_item_bytes:
            self.close()
            raise ReplayError(f"{self._place}: an answer of {length:,} bytes is over the limit")
        return self._receive(length)

    def _left(self) -> float:
        return max(self._deadline - time.monotonic(), 0.001)
