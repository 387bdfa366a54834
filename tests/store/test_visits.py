"""Who came to a store, and what he told and read there: by recordings of several releases."""

from __future__ import annotations

import pytest

from rpcinspect.pipeline import Decoding
from rpcinspect.store.directory import StoreEntry
from rpcinspect.store.visits import Visit, Visits, gloo_address
from tests.places import recorded
from tests.session.records import entry

HOST = b"\x04\x00\x00\x00\x00\x00\x00\x00demo\x88\x00\x00\x00\x00\x00\x00\x00"
V4 = b"\x02\x00\xae\xc7\x7f\x00\x00\x01" + bytes(128)
V6 = b"\x0a\x00\xae\xc7" + bytes(4) + bytes(15) + b"\x01" + bytes(112)


def visits(name: str) -> list[Visit]:
    with Decoding([str(recorded(name))]) as decoding:
        for _ in decoding.records():
            pass
        return sorted(decoding.wire_facts.visits, key=lambda visit: visit.rank or 0)


@pytest.mark.parametrize("release", ["1.8.1", "1.13.1", "2.14.1"])
def test_what_two_workers_of_any_release_say(release: str) -> None:
    both = visits(f"versions/torch-{release}.pcap")
    assert [(v.rank, v.name, v.group, v.whole) for v in both] == [
        (0, "worker0", 0, True),
        (1, "worker1", 0, True),
    ]
    for one, other in (both, both[::-1]):
        assert one.place is not None
        assert other.read[one.place] == one.name
        assert one.meets_at is not None
        assert other.read[one.meets_at] == f"rank {one.rank}"
        assert set(one.awaited) <= {0, 1}  # some releases wait for all, some for each other one
        assert one.succeeded == (release != "1.8.1")  # which tells no store that it shuts down
        assert one.ended_ns is not None
        assert one.ended_ns > one.begin_ns


def test_each_init_rpc_is_a_visit() -> None:
    assert sorted(v.group for v in visits("reinit.pcap") if v.name == "worker0") == [0, 1, 2]


def test_who_has_no_name_yet() -> None:
    assert [v.who for v in visits("devmap_cpu_refused.pcap")] == ["rank 0", "rank 1", "rank 2"]
    assert Visit(client="c", server="s", root="", group=0, begin_ns=0).who == "c"


def test_other_keys_are_no_visit() -> None:
    told = Visits("10.0.0.1:1", "10.0.0.9:2")
    begun = told.feed(entry("names/3", "w", root="/worker/attempt_1", at=5))
    assert begun is not None
    assert (begun.root, begun.begin_ns, begun.rank, begun.name) == ("/worker/attempt_1", 5, 3, "w")
    assert told.feed(entry("names/4", "other", root="/worker/attempt_1", operation="get")) is None
    assert (begun.rank, begun.name) == (3, "w")
    assert Visits("a", "b").feed(StoreEntry("init/", b"1", 1, "add", 0)) is None


@pytest.mark.parametrize(
    ("value", "address"),
    [
        (HOST + V4 + bytes(24), "127.0.0.1:44743"),
        (V4, "127.0.0.1:44743"),
        (HOST + V6, "[::1]:44743"),
        (V6, "[::1]:44743"),
        (HOST, None),
        (b"", None),
        (V4[:6], None),
        (b"\xff" * 200, None),
    ],
)
def test_addresses_of_gloo(value: bytes, address: str | None) -> None:
    assert gloo_address(value) == address
