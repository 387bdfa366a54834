"""TLS that tshark decrypts, given the keys: the same messages as without TLS."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcinspect.capture import Reading
from rpcinspect.capture.block import Direction
from rpcinspect.capture.tshark import find_program
from rpcinspect.capture.tshark_tls import TlsStreams
from tests import decoded
from tests.builders import ACK, FIN, SYN, Captured, packet, pcap_file
from tests.capture.test_tshark import CHAIN, conversation, lines
from tests.commands.runner import rpcinspect
from tests.decoded import Json

THERE = Direction(b"\1" * 4, 1, b"\2" * 4, 2)
BACK = Direction(b"\2" * 4, 2, b"\1" * 4, 1)

needs_tshark = pytest.mark.skipif(find_program("tshark") is None, reason="tshark is not installed")


# --- the numbers alone ---


def record(length: int) -> bytes:
    """A TLS record of so many bytes with its header."""
    return b"\x16\x03\x03" + (length - 5).to_bytes(2, "big") + bytes(length - 5)


class Sender:
    """One direction's segments."""

    def __init__(self, streams: TlsStreams, direction: Direction, base: int) -> None:
        self._streams, self._direction, self._base = streams, direction, base
        self._plain = 0

    def send(self, at: int, data: bytes, records: int = 0, plaintext: int = 0, *, cut: int = 0) -> int:
        """Bytes of plaintext that the segment is said to have."""
        sequence = (self._base + at) % (1 << 32)
        numbers = sequence, 500, ACK, len(data) - cut, len(data)
        made = self._streams.replace(self._direction, numbers, data[: len(data) - cut], records, plaintext)
        assert made is not None
        assert made[:3] == ((self._base + self._plain) % (1 << 32), 0, 0)
        assert made[4] == plaintext
        self._plain += made[4]
        return made[3]


def test_plaintext_takes_the_place_of_what_was_sent() -> None:
    streams = TlsStreams()
    assert streams.replace(THERE, (99, 0, SYN, 0, 0), b"", 0, 0) is None
    assert streams.replace(BACK, (499, 100, SYN | ACK, 0, 0), b"", 0, 0) is None
    assert streams.replace(THERE, (100, 500, ACK, 0, 0), b"", 0, 0) is None
    there, back = Sender(streams, THERE, 100), Sender(streams, BACK, 500)
    assert there.send(0, record(50), 1) == 0
    assert there.send(50, record(50), 1, 30) == 30
    assert there.send(100, record(100)[:60]) == 0
    assert there.send(160, record(100)[60:] + record(10), 2, 71) == 71
    assert back.send(0, record(40), 1, 20) == 20


def test_other_connections_stay_as_they_are() -> None:
    streams = TlsStreams()
    assert streams.replace(THERE, (100, 0, ACK, 5, 5), b"hello", 0, 0) is None
    assert streams.replace(BACK, (700, 0, ACK, 8, 8), record(8), 1, 3) is None
    assert streams.replace(THERE, (999, 0, SYN, 0, 0), b"", 0, 0) is None
    assert streams.replace(THERE, (1000, 0, ACK, 5, 5), b"hello", 0, 0) is None, "the port was used again"


def test_a_copy_of_the_first_packet() -> None:
    streams = TlsStreams()
    assert streams.replace(THERE, (99, 0, SYN, 0, 0), b"", 0, 0) is None
    sender = Sender(streams, THERE, 100)
    assert sender.send(0, record(10), 1, 5) == 5
    assert streams.replace(THERE, (99, 0, SYN, 0, 0), b"", 0, 0) is None
    assert sender.send(10, record(10), 1, 5) == 5


@pytest.mark.parametrize("base", [100, (1 << 32) - 20], ids=["", "wraps"])
def test_a_hole_that_is_filled_and_one_that_is_not(base: int) -> None:
    sender = Sender(TlsStreams(), THERE, base)
    assert sender.send(0, record(10), 1, 5) == 5
    assert sender.send(20, record(10)) == 0
    assert sender.send(30, record(10)) == 0
    assert sender.send(10, record(10), 3, 25) == 25, "and now all of it"
    assert sender.send(30, record(10)) == 0, "a copy"
    assert sender.send(40, record(10), 1, 5) == 5
    assert sender.send(60, record(10), 1, 5) == 0, "nobody knows how long the hole is"
    assert sender.send(70, record(10), 1, 5) == 0


def test_a_segment_that_tshark_leaves_out_is_a_hole() -> None:
    sender = Sender(TlsStreams(), THERE, 100)
    assert sender.send(0, record(10), 1, 5) == 5
    assert sender.send(10, record(10)) == 0
    assert sender.send(20, record(10), 1, 5) == 0


def test_a_cut_segment_is_a_hole() -> None:
    sender = Sender(TlsStreams(), THERE, 100)
    assert sender.send(0, record(10), 1, 5) == 5
    assert sender.send(10, record(10), cut=3) == 0
    assert sender.send(20, record(10), 1, 5) == 0


def test_what_waits_behind_a_hole_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpcinspect.capture.tshark_tls.MAX_LATER", 100)
    sender = Sender(TlsStreams(), THERE, 100)
    assert sender.send(0, record(10), 1, 5) == 5
    for at in range(20, 200, 10):
        assert sender.send(at, record(10)) == 0
    assert sender.send(10, record(10), 19, 50) == 0


# --- real TLS ---


class Tunnel:
    """A TLS connection whose bytes go nowhere by themselves."""

    def __init__(self, client: ssl.SSLContext, server: ssl.SSLContext) -> None:
        self._wires = [ssl.MemoryBIO(), ssl.MemoryBIO()]  # to the server, to the client
        self._ends = [
            client.wrap_bio(self._wires[1], self._wires[0]),
            server.wrap_bio(self._wires[0], self._wires[1], server_side=True),
        ]

    def handshake(self) -> Iterator[tuple[int, bytes]]:
        """What travels, and from which end."""
        done = [False, False]
        while not all(done):
            for end in (0, 1):
                try:
                    self._ends[end].do_handshake()
                    done[end] = True
                except ssl.SSLWantReadError:
                    pass
                yield from self._carried(end)

    def send(self, end: int, payload: bytes) -> Iterator[tuple[int, bytes]]:
        """What travels to bring this to the other end."""
        self._ends[end].write(payload)
        yield from self._carried(end)
        got = b""
        while len(got) < len(payload):
            got += self._ends[1 - end].read(1 << 20)
        assert got == payload

    def _carried(self, end: int) -> Iterator[tuple[int, bytes]]:
        data = self._wires[end].read()
        if data:
            yield end, data
            self._wires[end].write(data)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext, Path]:
    """Of a client and a server, and where the client writes its keys."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    key, certificate, keys = folder / "key.pem", folder / "certificate.pem", folder / "keys.txt"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-days", "2"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    server.num_tickets = 0
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    client.keylog_filename = str(keys)
    return client, server, keys


def encrypted(contexts: tuple[ssl.SSLContext, ssl.SSLContext, Path], size: int) -> list[Captured]:
    """The conversation of a small job, every connection through TLS, in segments of at most `size` bytes."""
    tunnels: dict[str, Tunnel] = {}
    ends: dict[str, tuple[str, int]] = {}
    sent: dict[tuple[str, str], int] = {}
    packets: list[Captured] = []

    def put(source: str, destination: str, data: bytes, flags: int, time_ns: int) -> None:
        one, other = (source, destination), (destination, source)
        frame = packet(data, source, destination, sequence=sent[one], acknowledgment=sent[other], flags=flags)
        packets.append(Captured(frame, time_ns))
        sent[one] += len(data) + bool(flags & (SYN | FIN))

    def carry(travels: Iterator[tuple[int, bytes]], client: str, server: str, time_ns: int) -> None:
        for end, data in travels:
            source, destination = (client, server) if end == 0 else (server, client)
            for at in range(0, len(data), size):
                put(source, destination, data[at : at + size], ACK, time_ns)

    for payload, flow, numbers, time_ns in conversation():
        name = "-".join(sorted((str(flow.source), str(flow.destination))))
        if numbers["flags"] & (SYN | ACK) == SYN:
            ends[name] = str(flow.source), 0
            client, server = str(flow.source), str(flow.destination)
            sent[client, server], sent[server, client] = numbers["sequence"], 1000
            put(client, server, b"", SYN, time_ns)
            put(server, client, b"", SYN | ACK, time_ns)
            tunnels[name] = Tunnel(*contexts[:2])
            carry(tunnels[name].handshake(), client, server, time_ns)
        elif payload:
            client = ends[name][0]
            server = str(flow.destination if str(flow.source) == client else flow.source)
            carry(tunnels[name].send(int(str(flow.source) != client), payload), client, server, time_ns)
    return packets


def told(output: list[Json]) -> list[Json]:
    """The messages without their packets, which are others."""
    return [line | {"location": None, "pipe": None} for line in output if line["kind"] == "message"]


@needs_tshark
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda v: v.name)
@pytest.mark.parametrize("size", [300, 30_000])
def test_with_the_keys(
    version: ssl.TLSVersion,
    size: int,
    contexts: tuple[ssl.SSLContext, ssl.SSLContext, Path],
    tmp_path: Path,
) -> None:
    client, server, keys = contexts
    client.maximum_version = version
    path = tmp_path / "run.pcap"
    path.write_bytes(pcap_file(encrypted((client, server, keys), size)))
    assert told(lines(path, Reading())) == []
    output = lines(path, Reading(preferences=(f"tls.keylog_file:{keys}",)))
    for one, other in zip(told(output), told(list(decoded.decode(CHAIN).lines)), strict=True):
        assert one == other
    assert output[-1]["problem_list"] == []


@needs_tshark
def test_a_run_through_tls_is_the_same_as_one_without(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext, Path], tmp_path: Path
) -> None:
    path = tmp_path / "run.pcap"
    path.write_bytes(pcap_file(encrypted(contexts, 1400)))
    ran = rpcinspect("diff", CHAIN, path)
    assert ran.code == 1
    assert ran.err.startswith("rpcinspect: b: No RPC messages: ")
    ran = rpcinspect("diff", CHAIN, path, "--tshark-option", f"tls.keylog_file:{contexts[2]}")
    assert (ran.code, ran.err) == (0, "")


@needs_tshark
def test_segments_that_were_sent_twice(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext, Path], tmp_path: Path
) -> None:
    packets = encrypted(contexts, 100)
    for at in range(len(packets) - 5, 200, -7):
        packets.insert(at + 3, packets[at])
    path = tmp_path / "run.pcap"
    path.write_bytes(pcap_file(packets))
    output = lines(path, Reading(preferences=(f"tls.keylog_file:{contexts[2]}",)))
    for one, other in zip(told(output), told(list(decoded.decode(CHAIN).lines)), strict=True):
        assert one == other


@needs_tshark
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda v: v.name)
def test_lost_and_disordered_packets_make_nothing_wrong(
    version: ssl.TLSVersion, contexts: tuple[ssl.SSLContext, ssl.SSLContext, Path], tmp_path: Path
) -> None:
    client, server, keys = contexts
    client.maximum_version = version
    packets = encrypted((client, server, keys), 200)
    bodies = {(line["type"], line["id"], str(line["body"])) for line in decoded.decode(CHAIN).messages}
    hashes = {tensor["sha256"] for line in decoded.decode(CHAIN).messages for tensor in line["tensors"]}
    found = []
    step = len(packets) // 7
    others = [
        *(packets[:lost] + packets[lost + 1 :] for lost in range(len(packets) // 3, len(packets), step)),
        *(swapped(packets, first) for first in (200, 204)),
    ]
    for remaining in others:
        path = tmp_path / "run.pcap"
        path.write_bytes(pcap_file(remaining))
        output = told(lines(path, Reading(preferences=(f"tls.keylog_file:{keys}",))))
        found.append(len(output))
        for line in output:
            if not line["problems"]:
                assert (line["type"], line["id"], str(line["body"])) in bodies
            for tensor in line["tensors"]:
                assert tensor["placement"] != "certain" or tensor["sha256"] in hashes
    assert max(found) > 10


def swapped(packets: list[Captured], first: int) -> list[Captured]:
    """Many in an order in which they can't have been sent; tshark takes some of them for copies."""
    packets = list(packets)
    for at in range(first, len(packets) - 1, 9):
        packets[at], packets[at + 1] = packets[at + 1], packets[at]
    return packets
