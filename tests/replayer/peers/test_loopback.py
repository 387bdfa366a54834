"""Addresses of workers: only those of the own machine are accepted."""

from __future__ import annotations

import socket

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.loopback import Address, parse_address


@pytest.mark.parametrize(
    ("text", "address", "family"),
    [
        ("uv://127.0.0.1:4711", Address("127.0.0.1", 4711), socket.AF_INET),
        ("127.0.0.1:1", Address("127.0.0.1", 1), socket.AF_INET),
        ("uv://[::1]:4711", Address("::1", 4711), socket.AF_INET6),
    ],
)
def test_addresses_of_this_machine(text: str, address: Address, family: int) -> None:
    assert parse_address(text) == address
    assert address.family == family
    assert text.removeprefix("uv://") == str(address)
    assert parse_address(address.url) == address


@pytest.mark.parametrize(
    "text",
    [
        "uv://192.0.2.1:4711",
        "uv://[2001:db8::1]:4711",
        "uv://0.0.0.0:4711",
        "uv://localhost:4711",
        "uv://example.org:4711",
        "uv://[::1%eth0]:4711",
        "shm://127.0.0.1:4711",
        "uv://127.0.0.1",
        "uv://127.0.0.1:",
        "uv://127.0.0.1:123456",
        "uv://127.0.0.1:-1",
        "",
        "uv://127.0.0.1:٤٧",
    ],
)
def test_addresses_that_are_refused(text: str) -> None:
    with pytest.raises(ReplayError):
        parse_address(text)
