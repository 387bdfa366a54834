"""The TCPStore conversation: real connections of three releases, every operation, all kinds of damage."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.limits import Limits
from rpcinspect.store.conversation import KEPT_VALUE_BYTES, StoreConversation, StoreProblem
from rpcinspect.store.directory import (
    DirectoryKey,
    StoreEntry,
    WorkerDirectory,
    directory_key,
    members_of,
    worker_directory,
)
from rpcinspect.store.operations import OPERATIONS, StoreGeneration, looks_like_store, may_become_store
from tests.thorough import examples

V1_8, V1_9, V2_2 = StoreGeneration
VALIDATE = bytes.fromhex("00 cef7853c")

VECTORS = {v["name"]: v for v in json.loads((Path(__file__).parent / "vectors_store.json").read_text())}
"""Both directions of real connections; `source` says whose."""


def streams(name: str) -> tuple[StoreGeneration, bytes, bytes]:
    case = VECTORS[name]
    return StoreGeneration(case["generation"]), bytes.fromhex(case["client"]), bytes.fromhex(case["server"])


def u64(number: int) -> bytes:
    return number.to_bytes(8, "little")


def string(data: bytes) -> bytes:
    return u64(len(data)) + data


def listed(*keys: bytes) -> bytes:
    return u64(len(keys)) + b"".join(map(string, keys))


def converse(
    generation: StoreGeneration, client: bytes, server: bytes, limits: Limits | None = None
) -> tuple[list[StoreEntry], list[StoreProblem]]:
    """All of the client's bytes at time 1, then all of the server's at time 2."""
    talk = StoreConversation(generation, limits or Limits())
    return talk.feed(True, client, 1) + talk.feed(False, server, 2), talk.finish()


def told(entries: Sequence[StoreEntry]) -> list[tuple[str, str, bytes]]:
    return [(entry.operation, entry.key, entry.value) for entry in entries]


DIRECTORIES = {
    # What the scripts called their workers, and the ports on which tshark sees them listen.
    "static-1.8.1": WorkerDirectory(
        {(0, 0): "worker0", (0, 1): "worker1"},
        {(0, "worker0"): "uv://127.0.0.1:34967", (0, "worker1"): "uv://127.0.0.1:42255"},
        {},
    ),
    "static-1.13.1": WorkerDirectory(
        {(0, 0): "worker0", (0, 1): "worker1"},
        {(0, "worker0"): "uv://127.0.0.1:41649", (0, "worker1"): "uv://127.0.0.1:39161"},
        {},
    ),
    "static-2.14.1": WorkerDirectory(
        {(0, 0): "worker0", (0, 1): "worker1"},
        {(0, "worker0"): "uv://127.0.0.1:37989", (0, "worker1"): "uv://127.0.0.1:35117"},
        {},
    ),
    "dynamic-2.13.0": WorkerDirectory(
        {(0, 0): "worker0", (0, 1): "worker1"},
        {(0, "worker0"): "uv://127.0.0.1:43609", (0, "worker1"): "uv://127.0.0.1:39691"},
        {0: (("worker0", 0), ("worker1", 1))},
    ),
}


@pytest.mark.parametrize("name", DIRECTORIES)
def test_one_real_connection_names_everybody(name: str) -> None:
    generation, client, server = streams(name)
    assert looks_like_store(client) is generation
    entries, problems = converse(generation, client, server)
    assert problems == []
    found = worker_directory(entries)
    assert found.names == DIRECTORIES[name].names
    assert found.addresses == DIRECTORIES[name].addresses
    assert found.members == DIRECTORIES[name].members


def test_every_operation() -> None:
    """What a store of torch 2.13 answered, as its Python client returned it (the prefix is the client's)."""
    entries, problems = converse(*streams("operations-2.13.0"))
    assert problems == []
    assert told([entry for entry in entries if entry.time_ns == 1]) == [
        ("set", "/k", b"v1"),
        ("append", "/k", b"v2"),
        ("multi_set", "/a", b"1"),
        ("multi_set", "/b", b"22"),
    ]
    assert told([entry for entry in entries if entry.time_ns == 2]) == [
        ("get", "/k", b"v1v2"),
        ("add", "/n", b"5"),
        ("compare_set", "/k", b"zz"),
        ("multi_get", "/a", b"1"),
        ("multi_get", "/b", b"22"),
        ("get", "/k", b"zz"),  # behind two pops of a queue, a list of keys and a wait that was cancelled
    ]


@pytest.mark.parametrize("name", VECTORS)
def test_any_chopping_gives_the_same(name: str) -> None:
    generation, client, server = streams(name)
    expected = sorted(map(repr, told(converse(generation, client, server)[0])))
    for client_first in (True, False):
        talk = StoreConversation(generation)
        entries: list[StoreEntry] = []
        for place in range(max(len(client), len(server))):
            halves = [
                (partial(talk.feed, True), client[place : place + 1]),
                (partial(talk.feed, False), server[place : place + 1]),
            ]
            for feed, piece in halves if client_first else reversed(halves):
                entries += feed(piece, 0)
        assert talk.finish() == []
        assert sorted(map(repr, told(entries))) == expected


@pytest.mark.parametrize("name", VECTORS)
def test_replies_may_come_before_their_requests(name: str) -> None:
    generation, client, server = streams(name)
    talk = StoreConversation(generation)
    entries = talk.feed(False, server, 2) + talk.feed(True, client, 1)
    assert talk.finish() == []
    assert sorted(map(repr, entries)) == sorted(map(repr, converse(generation, client, server)[0]))


@pytest.mark.parametrize("name", VECTORS)
def test_cut_at_every_length(name: str) -> None:
    """A part tells a part of what the whole tells; its last item may be a problem, and where it began."""
    generation, client, server = streams(name)
    whole = told(converse(generation, client, server)[0])
    from_client = told(StoreConversation(generation).feed(True, client, 1))
    for cut in range(len(client)):
        entries, problems = converse(generation, client[:cut], b"")
        assert told(entries) == from_client[: len(entries)]
        assert [p.from_client for p in problems] in ([], [True])
        assert all(p.offset < cut for p in problems)
    for cut in range(len(server)):
        entries, problems = converse(generation, client, server[:cut])
        assert told(entries) == whole[: len(entries)]
        assert [p.from_client for p in problems] in ([], [False])
        assert all(p.offset < cut for p in problems)


def test_only_the_requests() -> None:
    """What a worker sets itself is known without any reply: its own name and address."""
    generation, client, _ = streams("static-2.14.1")
    entries, problems = converse(generation, client, b"")
    assert problems == []
    found = worker_directory(entries)
    assert found.names == {(0, 1): "worker1"}
    assert found.addresses == {(0, "worker1"): "uv://127.0.0.1:35117"}


def test_the_time_of_an_entry_is_that_of_its_own_last_byte() -> None:
    """Not of what is read with it; also where the replies are there before what they answer."""
    get = b"\x03" + string(b"/names/0")
    asked = VALIDATE + b"\x01" + string(b"/names/1") + string(b"b") + get + get
    talk = StoreConversation(V2_2)
    assert talk.feed(False, string(b"a"), 70) == []
    assert talk.feed(False, string(b"a")[:3], 80) == []
    assert talk.feed(False, string(b"a")[3:], 90) == []
    found = [e for n in range(len(asked)) for e in talk.feed(True, asked[n : n + 1], n)]
    assert [(e.operation, e.time_ns) for e in found] == [
        ("set", len(asked) - 2 * len(get) - 1),
        ("get", 70),
        ("get", 90),
    ]


def test_what_a_key_is_about() -> None:
    assert directory_key("/worker/attempt_1/rpc_prefix_2/names/3") == DirectoryKey(
        "/worker/attempt_1", 2, "name", 3
    )
    assert directory_key("names/3") == DirectoryKey("", 0, "name", 3)
    assert directory_key("/rpc_prefix_0/addrs/a/b") == DirectoryKey("", 0, "address", "a/b")
    assert directory_key("/rpc_prefix_0/names/_ALL_WORKER_INFOS") == DirectoryKey("", 0, "members")
    assert directory_key("/rpc_prefix_0/names/x") is None
    assert members_of(b"a-0,b-c-12,") == (("a", 0), ("b-c", 12))


def test_gap_in_the_replies() -> None:
    generation, client, server = streams("static-2.14.1")
    talk = StoreConversation(generation)
    entries = talk.feed(True, client, 1) + talk.feed(False, server[:100], 2)
    talk.gap(False, 7)
    assert talk.feed(False, server[107:], 3) == []
    assert talk.finish() == [StoreProblem("7 bytes of replies are missing", False, 100)]
    expected = converse(generation, client, server[:100])[0]
    assert entries == expected


def test_gap_in_the_requests() -> None:
    """Replies to the requests before the gap are still read, the rest is given up."""
    generation = V2_2
    talk = StoreConversation(generation)
    talk.feed(True, VALIDATE + b"\x03" + string(b"/names/0"), 1)  # GET
    talk.gap(True, 30)
    assert talk.feed(True, b"\x01" + string(b"/names/1") + string(b"x"), 2) == []
    assert told(talk.feed(False, string(b"ps"), 3)) == [("get", "/names/0", b"ps")]
    assert talk.feed(False, string(b"other"), 4) == []
    assert talk.finish() == [
        StoreProblem("30 bytes of requests are missing", True, 5 + 1 + 8 + 8),
        StoreProblem("the requests of these replies are missing", False, 8 + 2),
    ]


def test_replies_that_nothing_asked_for() -> None:
    _, problems = converse(V2_2, VALIDATE, b"\x00\x00")
    assert problems == [StoreProblem("2 bytes answer no request", False, 0)]


def test_end_inside_an_item() -> None:
    request = b"\x03" + string(b"k")  # GET
    _, problems = converse(V2_2, VALIDATE + request[:-1], b"")
    assert problems == [StoreProblem("the last request ends after 9 bytes", True, 5)]
    _, problems = converse(V2_2, VALIDATE + request, u64(5) + b"abc")
    assert problems == [StoreProblem("the reply to get ends after 11 bytes", False, 0)]


@pytest.mark.parametrize(
    ("generation", "operation"), [(V2_2, 19), (V2_2, 255), (V1_9, 8), (V1_9, 12), (V1_8, 7)]
)
def test_unknown_operation(generation: StoreGeneration, operation: int) -> None:
    """8 in releases 1.9 to 2.1 is one of two operations, which differ in what follows."""
    first = b"\x00" + string(b"/names/0") + string(b"a") if generation is not V2_2 else VALIDATE
    entries, problems = converse(generation, first + bytes([operation]) + string(b"k"), b"")
    assert told(entries) == ([("set", "/names/0", b"a")] if generation is not V2_2 else [])
    assert problems == [StoreProblem(f"operation {operation} is unknown", True, len(first))]


def test_impossible_answer_to_a_wait() -> None:
    wait = VALIDATE + b"\x06" + listed(b"k")
    assert converse(V2_2, wait, b"\x07")[1] == [StoreProblem("7 in answer to a wait", False, 0)]
    _, problems = converse(V2_2, wait + b"\x07", b"\x01")  # GETNUMKEYS instead of CANCEL_WAIT
    assert [(p.from_client, p.offset) for p in problems] == [(False, 0)]


def test_wait_that_is_answered_while_it_is_cancelled() -> None:
    client = VALIDATE + b"\x06" + listed(b"k") + b"\x0c" + b"\x03" + string(b"k")  # WAIT, CANCEL_WAIT, GET
    for replies in (b"\x00\x01", b"\x01"):
        entries, problems = converse(V2_2, client, replies + string(b"v"))
        assert (told(entries), problems) == ([("get", "k", b"v")], [])


def test_other_values_are_not_kept() -> None:
    blob = bytes(range(256)) * 1000
    client = VALIDATE + b"\x01" + string(b"/rpc_prefix_0/0/1") + string(blob)
    client += b"\x01" + string(b"/rpc_prefix_0/addrs/w") + string(b"uv://" + b"h" * 100)
    talk = StoreConversation(V2_2)
    entries = [
        entry for at in range(0, len(client), 999) for entry in talk.feed(True, client[at : at + 999], 1)
    ]
    assert [(entry.value, entry.size) for entry in entries] == [
        (blob[:KEPT_VALUE_BYTES], len(blob)),
        (b"uv://" + b"h" * 100, 105),
    ]
    assert talk.finish() == []


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        (b"\x01" + u64(1001), "an item of 1,0"),  # a key
        (b"\x01" + string(b"k") + u64(1001), "a value of 1,001 bytes"),
        (b"\x06" + u64(126), "a list of 126 items"),
        (b"\x06" + u64(100) + string(b"x" * 12) * 100, "an item of 1,0"),  # many keys
        (b"\x06" + u64(1 << 63), "a list of 9,"),
    ],
)
def test_limits_of_requests(client: bytes, reason: str) -> None:
    _, problems = converse(V2_2, VALIDATE + client, b"", Limits(store_item_bytes=1000))
    assert [(p.from_client, p.offset) for p in problems] == [(True, 5)]
    assert problems[0].reason.startswith(reason)


def test_limits_of_what_waits() -> None:
    """Requests without replies, and replies without requests, are given up before they fill the memory."""
    limits = Limits(store_item_bytes=10_000)
    entries, problems = converse(
        V2_2, VALIDATE + b"\x07" * 200 + b"\x01" + string(b"k") + string(b"v"), b"", limits
    )
    assert told(entries) == [("set", "k", b"v")]  # the requests themselves go on
    assert [p.from_client for p in problems] == [False]
    assert "requests came before the reply" in problems[0].reason
    _, problems = converse(V2_2, VALIDATE, bytes(10_001), limits)
    assert [p.from_client for p in problems] == [False]
    assert problems[0].reason == "more than 10,000 bytes of replies that match no operation"


OPENINGS = [
    (bytes.fromhex("00 cef7853c 0d 2f220000"), V2_2),  # VALIDATE, PING
    (b"\x03" + string(b"init/") + u64(1), V1_9),  # ADD
    (b"\x02" + string(b"init/") + u64(1), V1_8),  # ADD
    # COMPARE_SET of a dynamic group's token
    (b"\x01" + string(b"/rpc_prefix_0/RpcGroupManagementToken") + string(b"") + string(b"t"), V1_9),
]


@pytest.mark.parametrize(("data", "generation"), OPENINGS)
def test_recognition(data: bytes, generation: StoreGeneration) -> None:
    assert looks_like_store(data) is generation
    needed = next(length for length in range(len(data)) if looks_like_store(data[:length]))
    assert all(may_become_store(data[:length]) for length in range(needed))
    assert all(looks_like_store(data[:length]) is generation for length in range(needed, len(data)))


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("0d00000000000000 b800b901bd07"),  # TensorPipe
        bytes.fromhex("0100000000000000 3000000000000000"),  # Gloo
        bytes.fromhex("0300000000000000 3000000000000000"),
        b"\x03" + string(b"init."),
        b"\x00\xce\xf7\x85\x3d",
        b"GET / HTTP/1.1\r\n",
    ],
)
def test_other_protocols(data: bytes) -> None:
    assert looks_like_store(data) is None
    assert not may_become_store(data)


def entry(key: str, value: bytes, operation: str = "set") -> StoreEntry:
    return StoreEntry(key, value, len(value), operation, 0)


def test_directory() -> None:
    found = worker_directory(
        [
            entry("/rpc_prefix_0/names/0", b"ps"),
            entry("/rpc_prefix_1/names/0", b"ps:1"),
            entry("names/7", b"bare"),
            entry("/rpc_prefix_0/addrs/ps", b"uv://[fe80::1]:5"),
            entry("/rpc_prefix_0/addrs/a/b", b"shm://9a7de"),
            entry("/rpc_prefix_0/names/1", b""),  # the answer for a key that isn't there
            entry("/rpc_prefix_0/names/0x", b"no"),
            entry("/rpc_prefix_0/surnames/0", b"no"),
            entry("/rpc_prefix_2/names/_ALL_WORKER_INFOS", b"a-b-0,"),
            entry("/rpc_prefix_2/names/_ALL_WORKER_INFOS", b"w1-1,", "append"),
            entry("/rpc_prefix_2/names/_ALL_WORKER_INFOS", b"a-b-0,w1-1,", "get"),
            entry("/rpc_prefix_2/names/1", b"w1"),
            entry("/rpc_prefix_0/addrs/ps", b"uv://[fe80::1]:6"),
            entry("names/7", b"later"),
            entry("/rpc_prefix_3/names/0", b"its own"),
            entry("/rpc_prefix_3/names/_ALL_WORKER_INFOS", b"another-0,", "append"),
        ]
    )
    assert found.names == {
        (0, 0): "ps",
        (1, 0): "ps:1",
        (0, 7): "later",
        (3, 0): "its own",
        (2, 0): "a-b",  # only from the list
        (2, 1): "w1",
    }
    assert found.addresses == {(0, "ps"): "uv://[fe80::1]:6", (0, "a/b"): "shm://9a7de"}
    assert found.members == {2: (("a-b", 0), ("w1", 1)), 3: (("another", 0),)}
    assert directory_key("/rpc_prefix_2/names/_ALL_WORKER_INFOS") is not None
    assert directory_key("init/") is None


def test_a_total_may_be_negative() -> None:
    """As where a counter is taken back by more than it has."""
    add = next(code for code, operation in OPERATIONS[V2_2].items() if operation.name == "add")
    request = VALIDATE + bytes([add]) + string(b"/n") + u64(2**64 - 7)
    entries, problems = converse(V2_2, request, u64(2**64 - 7))
    assert told(entries) == [("add", "/n", b"-7")]
    assert problems == []


def test_names_need_not_be_text() -> None:
    entries, _ = converse(V2_2, VALIDATE + b"\x01" + string(b"/names/0") + string(b"\xff\x1b"), b"")
    assert worker_directory(entries).names == {(0, 0): "\udcff\x1b"}


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 400)), max_size=40))
def test_any_segments_in_any_interleaving(steps: list[tuple[bool, int]]) -> None:
    generation, client, server = streams("dynamic-2.13.0")
    talk = StoreConversation(generation)
    entries: list[StoreEntry] = []
    places = [0, 0]
    for side, step in [*steps, (False, len(client)), (True, len(server))]:
        stream, feed = ((client, partial(talk.feed, True)), (server, partial(talk.feed, False)))[side]
        entries += feed(stream[places[side] : places[side] + step], 0)
        places[side] += step
    assert talk.finish() == []
    assert sorted(map(repr, told(entries))) == sorted(
        map(repr, told(converse(generation, client, server)[0]))
    )


@settings(max_examples=examples(300))
@given(
    st.sampled_from(StoreGeneration),
    st.lists(st.binary(max_size=30) | st.sampled_from([b"\x06" + u64(1), u64(3), u64(0)]), max_size=12),
)
def test_hostile_bytes(generation: StoreGeneration, pieces: list[bytes]) -> None:
    """Nothing is raised; each direction has at most one problem."""
    talk = StoreConversation(generation)
    for number, piece in enumerate(pieces):
        (partial(talk.feed, True) if number % 2 else partial(talk.feed, False))(piece, number)
    assert [p.from_client for p in talk.finish()] in ([], [True], [False], [True, False])


@settings(max_examples=examples(100))
@given(
    st.sampled_from(sorted(VECTORS)),
    st.lists(st.tuples(st.booleans(), st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_damaged_connections(name: str, flips: list[tuple[bool, int, int]]) -> None:
    generation, client, server = streams(name)
    damaged = [bytearray(client), bytearray(server)]
    for side, place, byte in flips:
        damaged[side][place % len(damaged[side])] = byte
    _, problems = converse(generation, bytes(damaged[0]), bytes(damaged[1]))
    assert len(problems) <= 2
