"""The socket between this process and live workers: whole, in pieces, from somebody who misbehaves."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.workers.worker_protocol import HEADER, ControlSocket, parts_of, with_parts


@pytest.fixture
def ends(nothing_left: None) -> Iterator[tuple[ControlSocket, ControlSocket]]:
    one, other = ControlSocket.pair()
    yield one, other
    one.close()
    other.close()


def test_objects_and_bytes(ends: tuple[ControlSocket, ControlSocket]) -> None:
    one, other = ends
    one.send({"do": "a", "n": 1})
    one.send({"ü": [None, True]}, b"\0blob")
    assert other.receive(1) == ({"do": "a", "n": 1}, b"")
    assert other.said_more
    assert other.receive(1) == ({"ü": [None, True]}, b"\0blob")
    assert not other.said_more


def test_files_come_along(ends: tuple[ControlSocket, ControlSocket]) -> None:
    one, other = ends
    with tempfile.TemporaryFile() as file:
        one.send({"do": "write"}, files=[file.fileno()])
        assert other.receive(1) == ({"do": "write"}, b"")
        (number,) = other.files
        os.write(number, b"through the other number")
        assert os.pread(file.fileno(), 100, 0) == b"through the other number"


def test_byte_by_byte(ends: tuple[ControlSocket, ControlSocket]) -> None:
    one, other = ends
    text = b'{"a": 1}'
    for byte in HEADER.pack(len(text), 2) + text + b"xy":
        one.sock.sendall(bytes([byte]))
    assert other.receive(1) == ({"a": 1}, b"xy")


def test_silence_and_the_end(ends: tuple[ControlSocket, ControlSocket]) -> None:
    one, other = ends
    start = time.monotonic()
    with pytest.raises(ReplayError, match=r"sent nothing for 0\.1 s"):
        other.receive(0.1)
    with pytest.raises(ReplayError, match="sent nothing for 0 s"):
        other.receive(0.0)
    assert time.monotonic() - start < 1
    one.sock.close()
    assert other.receive(1) is None
    with pytest.raises(ReplayError, match="can't send to a live"):
        other.send({})


def test_half_of_something(ends: tuple[ControlSocket, ControlSocket]) -> None:
    one, other = ends
    one.sock.sendall(HEADER.pack(100, 0) + b"{")
    start = time.monotonic()
    with pytest.raises(ReplayError, match="does not finish its line"):
        other.receive(0.0)
    assert time.monotonic() - start < 3


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (HEADER.pack(1 << 31, 0), "sent too long a line"),
        (HEADER.pack(2, 1 << 62) + b"{}", "sent too long a line"),
        (HEADER.pack(2, 0) + b"[]", "something other than an object"),
        (HEADER.pack(2, 0) + b"{x", "other than JSON"),
        (HEADER.pack(2, 0) + b"\xff\xfe", "other than JSON"),
        (HEADER.pack(100_000, 0) + b"[" * 100_000, "other than JSON"),
    ],
    ids=["long text", "long blob", "a list", "no json", "no text", "deep"],
)
def test_nonsense(ends: tuple[ControlSocket, ControlSocket], sent: bytes, reason: str) -> None:
    one, other = ends
    one.sock.sendall(sent)
    with pytest.raises(ReplayError, match=reason):
        other.receive(1)


def test_a_reader_that_does_not_read(ends: tuple[ControlSocket, ControlSocket]) -> None:
    one, _ = ends
    with pytest.raises(ReplayError, match="can't send to a live"):
        one.send({}, bytes(1 << 24), timeout_s=0.1)


def test_a_pickle_and_storages_behind_an_object() -> None:
    what: dict[str, Any] = {"said": "answer"}
    blob = with_parts(what, b"pp", [], [b"a", b"", b"ccc"])
    assert what == {"said": "answer", "pickle": 2, "tensors": [], "storages": [1, 0, 3]}
    assert parts_of(what, blob) == (b"pp", [b"a", b"", b"ccc"])
