"""What pyshark gives is what the native reader reads, and nothing that pyshark or tshark does brings us down."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rpcinspect as ri
from rpcinspect.capture import CaptureReader, PysharkCapture, Reading
from rpcinspect.capture.tshark import find_program
from rpcinspect.errors import CaptureError
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.views.jsonl.lines import JsonLines
from tests.builders import (
    Captured,
    enhanced,
    ethernet,
    geneve,
    gre,
    interface,
    ipv4,
    ipv4_fragments,
    ipv6,
    ipv6_fragments,
    link_frame,
    mpls,
    packet,
    pcap_file,
    pppoe,
    section,
    udp,
    vxlan,
)
from tests.capture.test_tshark import NATIVE, comparable, conversation, messages
from tests.cli.runner import decode
from tests.decoded import Json, parse
from tests.places import ROOT, recordings
from tests.thorough import some

pyshark = pytest.importorskip("pyshark")
pytestmark = pytest.mark.skipif(find_program("tshark") is None, reason="tshark is not installed")

CHAIN = ROOT / "captures" / "basic_chain.pcap"
PYSHARK = Reading(reader="pyshark")


@pytest.fixture
def file_capture() -> Callable[..., Any]:
    """Makes capture objects as the documentation has them, with a loop of their own: pyshark would make one
    and leave it open."""
    loop = asyncio.new_event_loop()
    loop.close()

    def make(path: Path, **how: Any) -> Any:
        return pyshark.FileCapture(str(path), use_json=True, include_raw=True, eventloop=loop, **how)

    return make


def lines(source: Path | PysharkCapture, reading: Reading = NATIVE) -> list[Json]:
    """The whole output, as `--format jsonl` has it."""
    one = str(source) if isinstance(source, Path) else source
    with tempfile.TemporaryFile() as spool, Decoding([one], Options(reading=reading)) as decoding:
        view = JsonLines(spool, decoding.bytes, hashes=True)
        for record in decoding.records():
            view.feed([record])
        return list(parse(b"".join(view.finish(decoding.session))))


# --- the same as the native reader ---


def tunnel(body: bytes) -> bytes:
    return ethernet(ipv4(udp(vxlan(ethernet(body)), 4789), "172.16.0.1", "172.16.0.2", protocol=17))


def pieces(body: bytes) -> list[bytes]:
    """The fragments of an IP packet that is large enough for two."""
    cut = [24] if len(body) > 60 else []
    if body[0] >> 4 == 4:
        return [ethernet(one) for one in ipv4_fragments(body[20:], "127.0.0.1", "127.0.0.1", cut)]
    return [ethernet(one) for one in ipv6_fragments(body[40:], "::1", "::1", cut)]


OUTER = ("172.16.0.1", "172.16.0.2")
CARRIERS: tuple[tuple[int, Callable[[bytes], bytes | list[bytes]]], ...] = (
    *((kind, lambda body, kind=kind: link_frame(kind, body)) for kind in (0, 1, 12, 101, 108, 113, 276)),
    (1, lambda body: ethernet(body, tags=((0x8100, 5),))),
    (1, lambda body: ethernet(body, tags=((0x88A8, 5), (0x8100, 6)))),
    (1, lambda body: ethernet(mpls(body), kind=0x8847)),
    (1, lambda body: ethernet(pppoe(body), kind=0x8864)),
    (1, tunnel),
    (1, lambda body: ethernet(ipv4(udp(geneve(ethernet(body)), 6081), *OUTER, protocol=17))),
    (1, lambda body: ethernet(ipv4(gre(body), *OUTER, protocol=47))),
    (1, lambda body: ethernet(ipv4(body, *OUTER, protocol=4 if body[0] >> 4 == 4 else 41))),
    (1, lambda body: ethernet(ipv6(body, "fd00::1", "fd00::2", protocol=4 if body[0] >> 4 == 4 else 41))),
    (1, pieces),
    # an error that quotes a segment: it is none
    (1, lambda body: [ethernet(body), ethernet(ipv4(b"\3\3" + bytes(6) + body[:60], *OUTER, protocol=1))]),
)
"""(link type, an IP packet → its frames)."""


def zoo(path: Path) -> Path:
    """A pcapng in which each packet of a conversation is carried otherwise than the one before, over IPv4 and
    then over IPv6; of the last packets a part is cut off."""
    kinds = sorted({kind for kind, _ in CARRIERS})
    blocks = [section(), *(interface(link_type=kind, resolution=9) for kind in kinds)]
    for host in ("127.0.0.1", "[::1]"):
        for number, (payload, flow, numbers, time_ns) in enumerate(conversation()):
            ends = (f"{host}:{end.port}" for end in (flow.source, flow.destination))
            kind, carry = CARRIERS[number % len(CARRIERS)]
            frames = carry(packet(payload, *ends, link_type=101, **numbers))
            for frame in [frames] if isinstance(frames, bytes) else frames:
                kept = frame[:150] if ":" in host and number > 400 else frame
                at = {"ticks": time_ns, "interface_id": kinds.index(kind), "length": len(frame)}
                blocks.append(enhanced("<", kept, **at))
    path.write_bytes(b"".join(blocks))
    return path


def test_link_types_tunnels_fragments_and_cut_packets(
    tmp_path: Path, file_capture: Callable[..., Any]
) -> None:
    path = zoo(tmp_path / "zoo.pcapng")
    read = lines(PysharkCapture(file_capture(path)))
    assert (read[0]["reader"], read[0]["format"]) == ("pyshark", "pyshark")
    native = lines(path)
    assert comparable(read) == comparable(native)
    assert native[-1]["bytes"]["missing"] > 0
    assert len(messages(native)) > 30
