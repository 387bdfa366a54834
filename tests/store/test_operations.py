"""What a store's client may ask. Conversations are tested in test_store.py."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.store.operations import (
    OPENING_2_2,
    OPERATIONS,
    StoreGeneration,
    looks_like_store,
    may_become_store,
)

V1_8, V1_9, V2_2 = StoreGeneration.V1_8, StoreGeneration.V1_9, StoreGeneration.V2_2

OPENINGS = [
    (bytes.fromhex("00 cef7853c"), V2_2),  # VALIDATE, 0x3C85F7CE
    (b"\x03" + bytes.fromhex("05 00 00 00 00 00 00 00") + b"init/", V1_9),  # ADD
    (b"\x02" + bytes.fromhex("05 00 00 00 00 00 00 00") + b"init/", V1_8),  # ADD
    (b"\x01" + bytes.fromhex("25 00 00 00 00 00 00 00") + b"/rpc_prefix_", V1_9),  # COMPARE_SET
]


@pytest.mark.parametrize(("opening", "generation"), OPENINGS)
def test_an_opening_tells_the_generation_with_its_last_byte(
    opening: bytes, generation: StoreGeneration
) -> None:
    for size in range(len(opening)):
        assert looks_like_store(opening[:size]) is None
        assert may_become_store(opening[:size])
    assert looks_like_store(opening) is generation
    assert looks_like_store(opening + b"whatever") is generation


@pytest.mark.parametrize(("opening", "generation"), OPENINGS)
def test_another_byte_is_another_protocol(opening: bytes, generation: StoreGeneration) -> None:
    for at in range(len(opening)):
        other = bytearray(opening)
        other[at] ^= 0x40
        if opening[0] == 1 and at == 1:  # the length of a key, any
            assert looks_like_store(bytes(other)) is generation
            continue
        assert looks_like_store(bytes(other)) is None
        assert not may_become_store(bytes(other[: at + 1]))


@given(st.binary(max_size=30))
def test_what_may_become_a_store_is_none_yet_or_will_be(data: bytes) -> None:
    if looks_like_store(data) is None and may_become_store(data):
        assert len(data) < max(len(opening) for opening, _ in OPENINGS)
        assert any(looks_like_store(data + opening[len(data) :]) is not None for opening, _ in OPENINGS)


QUERY_TYPES = {
    V1_8: "SET GET ADD CHECK WAIT GETNUMKEYS DELETE_KEY",
    V1_9: "SET COMPARE_SET GET ADD CHECK WAIT GETNUMKEYS DELETE_KEY ? MULTI_GET MULTI_SET CANCEL_WAIT",
    V2_2: (
        "VALIDATE SET COMPARE_SET GET ADD CHECK WAIT GETNUMKEYS DELETE_KEY APPEND MULTI_GET MULTI_SET "
        "CANCEL_WAIT PING QUEUE_PUSH QUEUE_POP QUEUE_LEN LIST_KEYS BARRIER"
    ),
}
"""torch's enum of each generation, in order. 8 has two meanings in the second."""


@pytest.mark.parametrize("generation", StoreGeneration)
def test_codes_are_those_of_the_enum(generation: StoreGeneration) -> None:
    names = QUERY_TYPES[generation].lower().split()
    wanted = {code: name for code, name in enumerate(names) if name != "?"}
    assert {code: operation.name for code, operation in OPERATIONS[generation].items()} == wanted


@pytest.mark.parametrize("generation", StoreGeneration)
def test_arguments_and_replies_are_spelled_right(generation: StoreGeneration) -> None:
    for operation in OPERATIONS[generation].values():
        assert re.fullmatch(r"\*?k?v{0,2}[48]?", operation.arguments)
        assert re.fullmatch(r"values|total|wait|queued|list|[148]|", operation.reply)
        assert not operation.tells_value or "v" in operation.arguments


@pytest.mark.parametrize(
    ("name", "arguments", "reply"),
    [("set", "kv", ""), ("get", "k", "values"), ("add", "k8", "total"), ("wait", "*k", "wait")],
)
def test_what_every_release_has_is_the_same(name: str, arguments: str, reply: str) -> None:
    for operations in OPERATIONS.values():
        [found] = [operation for operation in operations.values() if operation.name == name]
        assert (found.arguments, found.reply) == (arguments, reply)


def test_what_is_said_first_tells_the_generation() -> None:
    assert looks_like_store(OPENING_2_2) is StoreGeneration.V2_2
