"""The store that names workers: literal bytes, and what workers without a name or an address leave out."""

from __future__ import annotations

from rpcinspect.export.pcap.flows import Ports, Talk
from rpcinspect.export.pcap.stores import store_talk
from rpcinspect.session.model import Worker
from rpcinspect.tcp.segment import Endpoint


def worker(name: str | None, id: int | None, *addresses: str, group: int = 0) -> Worker:
    return Worker(name=name, id=id, group=group, addresses=addresses)


def said(talk: Talk | None) -> bytes:
    assert talk is not None
    parts = [piece.said for piece in talk.pieces if isinstance(piece.said, bytes)]
    assert len(parts) == len(talk.pieces)
    return b"".join(parts)


def test_literal_bytes() -> None:
    """VALIDATE with its magic number, then SET, key, value, as clients since 2.2 say it."""
    talk = store_talk([worker("w", 1, "10.0.0.1:5000", group=2)], 7, Ports(set()))
    key, value = b"/rpc_prefix_2/names/1", b"w"
    address, url = b"/rpc_prefix_2/addrs/w", b"uv://10.0.0.1:5000"
    expected = bytes.fromhex("00 ce f7 85 3c")
    for text, its in ((key, value), (address, url)):
        expected += b"\x01" + len(text).to_bytes(8, "little") + text + len(its).to_bytes(8, "little") + its
    assert said(talk) == expected
    assert talk is not None
    assert (talk.open_ns, talk.client.host, talk.server.host) == (7, "10.0.0.1", "10.0.0.1")


def test_only_what_is_known_is_told() -> None:
    talk = store_talk([worker(None, 4), worker("w", None, "[::1]:5"), worker("v", 0)], 7, Ports(set()))
    assert b"addrs/w" in said(talk)
    assert b"names/0" in said(talk)
    assert said(talk).count(b"/rpc_prefix_0/") == 2
    assert talk is not None
    assert talk.server.host == "::1"


def test_nobody_with_a_name_needs_no_store() -> None:
    assert store_talk([worker(None, 4, "10.0.0.1:5")], 7, Ports(set())) is None


def test_where_workers_listen_elsewhere_that_is_told() -> None:
    hidden = Worker(name="w", id=0, group=0, addresses=(), elsewhere=("shm://9a7de",))
    talk = store_talk([hidden], 7, Ports({Endpoint("127.0.0.1", 60999)}))
    assert b"shm://9a7de" in said(talk)
    assert talk is not None
    assert talk.server.port == 60998


def test_a_worker_that_listened_at_two_addresses_may_come_back() -> None:
    """Only in a group with a list of members may a worker set its address again."""
    text = said(store_talk([worker("w", 3, "10.0.0.1:5", "10.0.0.1:6")], 7, Ports(set())))
    assert text.count(b"addrs/w") == 2
    assert b"names/_ALL_WORKER_INFOS" in text
    assert text.index(b"w-3,") < text.index(b"uv://10.0.0.1:5") < text.index(b"uv://10.0.0.1:6")
