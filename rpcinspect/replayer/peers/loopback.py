"""Addresses of workers: `uv://127.0.0.1:4711` <-> what a socket needs. Unless the user names a group on other
machines, nothing but the own machine is accepted.

In: text from a store or from a handshake, which may be hostile. Out: `Address`. A replay runs code in every
worker that it reaches, so it must not be led to another machine, whatever the text says.

Mirrors the addresses of `tensorpipe/transport/uv` and the `uv://` before them in the store.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from rpcinspect.errors import ReplayError

SCHEME = "uv://"

Reach: TypeAlias = Callable[[str], str]
"""Which hosts may be reached: gives the host, or raises `ReplayError`."""


class Address(Struct, frozen=True):
    """Host and port of a listener."""

    host: str
    """`127.0.0.1`, `::1`, …: always numeric, without brackets."""
    port: int

    @property
    def family(self) -> socket.AddressFamily:
        """The kind of socket that reaches it."""
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The address as published in a store."""
        return SCHEME + str(self)


def loopback_host(host: str) -> str:
    """The host, which must be a numeric address of a loopback. Raises `ReplayError`."""
    found = _numeric(host)
    if found is None or not found.is_loopback:
        raise ReplayError(f"{host[:80]!a} is not on this machine's loopback")
    return host


def any_host(host: str) -> str:
    """The host, which must be the numeric address of one machine. Raises `ReplayError`."""
    found = _numeric(host)
    if found is None or found.is_unspecified or found.is_multicast:
        raise ReplayError(f"{host[:80]!a} is not the address of a machine")
    return host


def parse_address(text: str, reach: Reach = loopback_host) -> Address:
    """`ip:port` or `[ip]:port`, with or without `uv://`. Raises `ReplayError`."""
    host, colon, port = text.removeprefix(SCHEME).rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not port.isascii() or not port.isdigit() or len(port) > 5:
        raise ReplayError(f"{text[:80]!a} is not the address of a worker")
    return Address(reach(host), int(port))


def _numeric(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return None if "%" in host else ipaddress.ip_address(host)
    except ValueError:
        return None
