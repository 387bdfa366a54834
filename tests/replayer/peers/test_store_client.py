"""The client of a TCPStore: against torch's own, and against a store that misbehaves."""

from __future__ import annotations

import datetime
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.workers.live_group import LiveGroup
from tests.replayer.hostile import in_thread, receive

OPENING = bytes.fromhex(
    "00 cef7853c"  # VALIDATE, magic
    "05 0000000000000000"  # CHECK, of no keys
)


@pytest.fixture
def store(group: LiveGroup) -> Iterator[StoreClient]:
    with StoreClient("127.0.0.1", group.port, prefix="/t/", timeout_s=5.0) as client:
        yield client


def test_what_is_set_can_be_read(store: StoreClient, group: LiveGroup) -> None:
    store.set("key", b"\0value\xff")
    store.set("empty", b"")
    assert store.get("key") == b"\0value\xff"
    assert store.get("empty") == b""
    with StoreClient("127.0.0.1", group.port) as other:
        assert other.get("/t/key") == b"\0value\xff"
    assert store.check("key", "empty")
    assert not store.check("key", "none")
    assert store.delete("key")
    assert not store.delete("key")
    assert not store.check("key")


def test_values_grow(store: StoreClient) -> None:
    store.append("list", b"a-0,")
    store.append("list", b"b-1,")
    assert store.get("list") == b"a-0,b-1,"


def test_compare_set_sets_only_what_was_expected(store: StoreClient) -> None:
    assert store.compare_set("token", b"", b"mine") == b"mine"
    assert store.compare_set("token", b"", b"yours") == b"mine"
    assert store.compare_set("token", b"mine", b"") == b""
    assert store.compare_set("token", b"", b"yours") == b"yours"


def test_a_key_that_is_not_there(store: StoreClient) -> None:
    with pytest.raises(ReplayError, match="nobody has set never"):
        store.get("never")
    store.set("key", b"still works")
    assert store.get("key") == b"still works"


def test_torch_reads_what_we_write(store: StoreClient, group: LiveGroup) -> None:
    dist = pytest.importorskip("torch.distributed")
    timeout = datetime.timedelta(seconds=5)
    theirs = dist.TCPStore("127.0.0.1", group.port, None, False, timeout, wait_for_workers=False)
    store.set("ours", b"1")
    assert theirs.get("t/ours") == b"1"  # torch puts a slash before every key
    theirs.set("t/theirs", "2")
    assert store.get("theirs") == b"2"


# --- a store that is none -----------------------------------------------------------------------------------


@contextmanager
def fake_store(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A listener that takes one connection; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def take() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.settimeout(5)
                serve(sock)

        with in_thread(take):
            yield listener.getsockname()[1]


def shake(sock: socket.socket) -> None:
    assert receive(sock, len(OPENING)) == OPENING
    sock.sendall(b"\0")


def test_a_port_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ReplayError, match=rf"store at 127\.0\.0\.1:{port}: Connection refused"):
        StoreClient("127.0.0.1", port)


def test_a_server_that_is_no_store() -> None:
    def serve(sock: socket.socket) -> None:
        receive(sock, len(OPENING))
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n")

    with fake_store(serve) as port, pytest.raises(ReplayError, match="does not answer as a TCPStore"):
        StoreClient("127.0.0.1", port, timeout_s=2)


def test_a_store_that_never_answers() -> None:
    def serve(sock: socket.socket) -> None:
        receive(sock, len(OPENING))
        assert sock.recv(1) == b""

    with fake_store(serve) as port, pytest.raises(ReplayError, match="no answer in time"):
        StoreClient("127.0.0.1", port, timeout_s=0.2)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"\0" + (1 << 40).to_bytes(8, "little"), "1,099,511,627,776 bytes is over the limit"),
        (b"\0" + (4).to_bytes(8, "little") + b"ab", "closed the connection"),
        (b"", "closed the connection"),
    ],
    ids=["absurd length", "half an answer", "nothing"],
)
def test_a_store_that_answers_wrongly(answer: bytes, reason: str) -> None:
    def serve(sock: socket.socket) -> None:
        shake(sock)
        receive(sock, 1)
        sock.sendall(answer)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 10):
            pass

    with fake_store(serve) as port, StoreClient("127.0.0.1", port, timeout_s=2) as client:
        with pytest.raises(ReplayError, match=reason):
            client.get("key")
        with pytest.raises(ReplayError, match="is closed"):
            client.get("key")
