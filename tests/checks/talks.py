"""Findings of conversations that a test makes up."""

from __future__ import annotations

import pickle

from msgspec.structs import replace

from rpcinspect.checks.findings import Findings
from rpcinspect.checks.wire_facts import ConnectionEnd, WireFacts
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.command import PythonResp
from rpcinspect.session.model import CaptureInfo, Finding, Session
from rpcinspect.tcp.ranges import CaptureBytes
from tests.session.records import Talk, entry
from tests.truth import capture_of

SECOND = 1_000_000_000
NOTHING = WireFacts()


def no_bytes(capture: int, offset: int, length: int) -> bytes:
    """No gradient of these conversations has zeros."""
    return b"\x01" * length


def findings(
    talk: Talk,
    wire: WireFacts = NOTHING,
    *entries: object,
    until: int | None = None,
    source: CaptureBytes | None = None,
) -> list[Finding]:
    """`until`: when the capture ends, if later than its last message."""
    session = talk.finish(*entries)  # type: ignore[arg-type]
    if until is not None:
        session = replace(session, captures=(capture_until(until),))
    stage = Findings(talk.builder.provenance, source or CaptureBytes(no_bytes))
    stage.feed(talk.records)
    return list(stage.finish(session, wire))


def capture_until(last_ns: int) -> CaptureInfo:
    return CaptureInfo(
        capture=0,
        path="made-up.pcap",
        format="pcap",
        packets=1,
        bytes=1,
        first_time_ns=0,
        last_time_ns=last_ns,
        reader="native",
    )


def closed(*flows: str, by_client: bool = False, at: int = 1 << 62) -> tuple[ConnectionEnd, ...]:
    """Connections that one side closed at a time."""
    return tuple(
        ConnectionEnd(flow=flow, begin_ns=0, last_ns=1 << 62, by_client=by_client, how="closed", time_ns=at)
        for flow in flows
    )


def remote(text: str, kind: bytes = b"builtins\nKeyError") -> PythonResp:
    """A pickled RemoteException(text, kind)."""
    body = b"".join(pickle.dumps(part, 2)[2:-1] for part in (text,))
    head = b"\x80\x02ctorch.distributed.rpc.internal\nRemoteException\n"
    return PythonResp(head + body + b"c" + kind + b"\n\x86\x81.")


def named(count: int) -> list[object]:
    """What the store says of workers, so that they are known for certain."""
    said = [entry(f"names/{n}", f"w{n}") for n in range(count)]
    return [*said, *(entry(f"addrs/w{n}", f"uv://10.0.1.{n}:5000") for n in range(count))]


def codes(found: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in found]


def of_capture(name: str) -> tuple[Session, list[Finding]]:
    """Of a bundled capture, by its name below captures/."""
    return of_path(str(capture_of(name)))


def of_path(*paths: str) -> tuple[Session, list[Finding]]:
    with Decoding(paths) as decoding:
        for _ in decoding.records():
            pass
        return decoding.session, list(decoding.session.findings)
