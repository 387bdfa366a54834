"""What this process and the processes of live workers say to each other: JSON objects over a pair of sockets.

In and out: a JSON object, perhaps with bytes behind it, perhaps with open files that go to the other
process. The live workers run user code, so what comes from them may be anything: sizes are bounded, and
every wait is finite. Used on both sides, therefore without torch and without anything of this package but
its errors.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, TypeAlias

from rpcinspect.errors import ReplayError

Object: TypeAlias = dict[str, Any]

HEADER = struct.Struct("<IQ")
"""Bytes of JSON, bytes behind it."""
MAX_JSON_BYTES = 1 << 24
MAX_BLOB_BYTES = 1 << 32
MAX_FILES = 4
READ_BYTES = 1 << 16
HOST = b"rpcinspect: send from here"
"""In the place of a pickle: a request of our own to torch's agent that plays a worker, in whose thread torch
has set another worker's context."""
FOREVER_S = 1e6
"""A wait that ends when the other end of the socket closes."""
GRACE_S = 1.0
"""More, for the rest of something that was begun in time."""


def with_parts(what: Object, pickle: bytes, rows: Sequence[Object], storages: Sequence[bytes]) -> bytes:
    """Returns the bytes behind an object: its pickle and storages; sets their lengths in the object."""
    what |= {"pickle": len(pickle), "tensors": rows, "storages": [len(data) for data in storages]}
    return b"".join([pickle, *storages])


def parts_of(what: Object, blob: bytes) -> tuple[bytes, list[bytes]]:
    """The pickle and the storages behind an object."""
    start = int(what["pickle"])
    storages, at = [], start
    for length in what["storages"]:
        storages.append(blob[at : at + int(length)])
        at += int(length)
    return blob[:start], storages


class SilenceError(ReplayError):
    """The other process has sent nothing in the time that it had."""


class ControlSocket:
    """An end of a pair of sockets."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()
        self.files: list[int] = []
        """Open files that came along and that nobody has taken yet."""

    @classmethod
    def pair(cls) -> tuple[ControlSocket, ControlSocket]:
        """Two ends that are connected."""
        one, other = socket.socketpair()
        return cls(one), cls(other)

    def send(
        self, what: Object, blob: bytes = b"", files: Sequence[int] = (), timeout_s: float = 10.0
    ) -> None:
        """Raises `ReplayError` if the other end is gone or does not read."""
        text = json.dumps(what).encode()
        data = HEADER.pack(len(text), len(blob)) + text
        try:
            self.sock.settimeout(timeout_s)
            if files:
                sent = socket.send_fds(self.sock, [data], list(files))
                data = data[sent:]
            self.sock.sendall(data)
            if blob:
                self.sock.sendall(blob)
        except OSError as error:
            raise ReplayError(f"can't send to a live worker's process: {error}") from error

    def receive(self, timeout_s: float = FOREVER_S) -> tuple[Object, bytes] | None:
        """Returns the next object and its bytes; None: the other end is gone. Raises `ReplayError`, also
        after the timeout."""
        deadline = time.monotonic() + timeout_s
        while (found := self._take()) is None:
            left = deadline - time.monotonic()
            if not self._read(left):
                return None
            if left <= 0 and not self._buffer:
                raise SilenceError(f"a live worker's process sent nothing for {timeout_s:g} s")
            if left <= -GRACE_S:
                raise ReplayError("a live worker's process does not finish its line")
        return found

    def take_files(self) -> list[int]:
        """Returns the open files that came along; they are the caller's to close."""
        taken, self.files = self.files, []
        return taken

    @property
    def said_more(self) -> bool:
        """Whether something was read already that `receive` has not returned."""
        return bool(self._buffer)

    def close(self) -> None:
        """Closes the socket; closing twice is fine."""
        self.sock.close()
        for number in self.files:
            os.close(number)
        self.files.clear()

    def _take(self) -> tuple[Object, bytes] | None:
        if len(self._buffer) < HEADER.size:
            return None
        text_bytes, blob_bytes = HEADER.unpack_from(self._buffer)
        if text_bytes > MAX_JSON_BYTES or blob_bytes > MAX_BLOB_BYTES:
            raise ReplayError("a live worker's process sent too long a line")
        start = HEADER.size + text_bytes
        if len(self._buffer) < start + blob_bytes:
            return None
        try:
            what = json.loads(self._buffer[HEADER.size : start])
        except (ValueError, RecursionError) as error:
            raise ReplayError("a live worker's process sent something other than JSON") from error
        if not isinstance(what, dict):
            raise ReplayError("a live worker's process sent something other than an object")
        blob = bytes(self._buffer[start : start + blob_bytes])
        del self._buffer[: start + blob_bytes]
        return what, blob

    def _read(self, timeout_s: float) -> bool:
        try:
            self.sock.settimeout(max(timeout_s, 0.001))
            data, files, _, _ = socket.recv_fds(self.sock, READ_BYTES, MAX_FILES)
        except TimeoutError:
            return True
        except OSError:
            return False
        self.files += files
        self._buffer += data
        return bool(data)
