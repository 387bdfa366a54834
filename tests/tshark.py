"""Packets as tshark sees them: the other side of what is said of packets.

    for frame in frames(path): frame.number, frame.time_ns, frame.flow, frame.sequence, frame.payload

A test that asks for them is marked with `needs_tshark`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import pytest
from msgspec import Struct

from rpcinspect.capture.tshark import find_program

needs_tshark = pytest.mark.skipif(find_program("tshark") is None, reason="tshark is not installed")
WRAP = 1 << 32
FIELDS = (
    *("frame.number", "frame.time_epoch", "ip.src", "ipv6.src", "tcp.srcport", "ip.dst", "ipv6.dst"),
    *("tcp.dstport", "tcp.seq_raw", "tcp.flags.syn", "tcp.payload"),
)


class Frame(Struct, frozen=True):
    """A packet; those that are no TCP have no flow."""

    number: int
    time_ns: int
    flow: str
    sequence: int
    syn: bool
    payload: bytes


def tshark(path: Path, *options: str) -> list[str]:
    """Runs tshark over a capture; returns the lines that it prints."""
    done = subprocess.run(
        ["tshark", "-r", str(path), *options], check=True, capture_output=True, timeout=120, text=True
    )
    return done.stdout.splitlines()


def fields(path: Path, names: Sequence[str], *options: str) -> Iterator[list[str]]:
    """Yields these fields of each packet that is printed."""
    wanted = [part for name in names for part in ("-e", name)]
    for line in tshark(path, "-T", "fields", "-E", "separator=/t", *wanted, *options):
        yield line.split("\t")


@lru_cache(maxsize=32)
def frames(path: Path) -> tuple[Frame, ...]:
    """Every packet of a capture; the frame of number n is at n - 1."""
    found = []
    for number, time, src, src6, port, dst, dst6, other, sequence, syn, payload in fields(path, FIELDS):
        seconds, _, fraction = time.partition(".")
        flow = f"{_end(src, src6, port)}>{_end(dst, dst6, other)}" if port else ""
        found.append(
            Frame(
                int(number),
                int(seconds) * 10**9 + int(fraction.ljust(9, "0")),
                flow,
                int(sequence or 0),
                syn in ("1", "True"),
                bytes.fromhex(payload),
            )
        )
    return tuple(found)


def _end(address: str, address6: str, port: str) -> str:
    return f"[{address6}]:{port}" if address6 else f"{address}:{port}"


class Sent(Struct, frozen=True):
    """A packet that carries some of a stream's bytes."""

    number: int
    start: int
    """Its first byte, counted from the first of the stream."""
    end: int


def carriers(path: Path, flow: str, before: int) -> list[Sent]:
    """The packets of a direction that carry bytes, of the connection that was opened there last before this
    packet; retransmissions, too."""
    return _behind(path, flow, max(number for number in _opened(path, flow) if number < before))


@lru_cache(maxsize=64)
def _opened(path: Path, flow: str) -> list[int]:
    return [frame.number for frame in frames(path) if frame.syn and frame.flow == flow]


@lru_cache(maxsize=64)
def _behind(path: Path, flow: str, opened: int) -> list[Sent]:
    isn = frames(path)[opened - 1].sequence
    found = []
    for frame in frames(path)[opened:]:
        if frame.flow == flow and frame.syn:
            break
        if frame.flow == flow and frame.payload:
            start = (frame.sequence - isn - 1) % WRAP
            found.append(Sent(frame.number, start, start + len(frame.payload)))
    return found
