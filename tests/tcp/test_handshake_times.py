"""At which end of connections a sniffer sits: real captures of hosts, and handshakes that tell nothing."""

from __future__ import annotations

import pytest

from rpcinspect.pipeline import Decoding
from rpcinspect.tcp.handshake_times import LEAST_HANDSHAKES, HandshakeTimes
from rpcinspect.tcp.segment import ACK, RST, SYN, Endpoint, Flow
from tests.builders import segment_block
from tests.places import recorded
from tests.tensorpipe.conversations import Segment

A, B, RTT = "10.0.0.1", "10.0.0.2", 100_000


@pytest.mark.parametrize("host", range(4))
def test_each_capture_was_made_at_its_host(host: int) -> None:
    with Decoding([str(recorded(f"reports/hosts/forget.host{host}.pcap"))]) as decoding:
        for _ in decoding.records():
            pass
        assert decoding.session.captures[0].vantage.hosts == {f"10.77.0.{host + 1}"}


def seen(pauses: list[tuple[int, int]], *, blocks: int = 1, server: str = B, lost: str = "") -> str | None:
    """Where a capture was made in which a client's handshakes have these pauses; `lost`: what comes again, or
    is missing, of each."""
    flows, rows, now = [], [], 0
    for number, (first_ns, second_ns) in enumerate(pauses):
        flows += [Flow(Endpoint(A, 1000 + number), Endpoint(server, 5000))]
        flows += [flows[-1].reversed]
        client, its = 2 * number, 2 * number + 1
        times = now, now + first_ns, now + first_ns + second_ns
        said = [
            Segment(flow=client, sequence=1, flags=SYN, time_ns=times[0]),
            Segment(flow=its, sequence=1, flags=SYN | ACK, time_ns=times[1]),
            Segment(flow=client, sequence=2, flags=RST | ACK if lost == "reset" else ACK, time_ns=times[2]),
            Segment(flow=client, sequence=2, flags=ACK, payload=b"x", time_ns=times[2] + 9),
        ]
        if lost == "reply":
            del said[1]
        rows += said[: {"SYN": 1, "SYN/ACK": 2}.get(lost, 0)] + said
        now += 10**9
    times_of = HandshakeTimes()
    size = max(1, len(rows) // blocks)
    for at in range(0, len(rows), size):
        times_of.note(segment_block(rows[at : at + size]), flows)
    return times_of.host(0)


@pytest.mark.parametrize("blocks", [1, 3, 100])
def test_a_round_trip_is_on_the_other_side(blocks: int) -> None:
    enough = LEAST_HANDSHAKES
    assert seen([(RTT, 9_000)] * enough, blocks=blocks) == A
    assert seen([(9_000, RTT)] * enough, blocks=blocks) == B


def test_what_is_not_certain_is_not_told() -> None:
    enough = LEAST_HANDSHAKES
    assert seen([(RTT, 9_000)] * (enough - 1)) is None
    assert seen([(RTT, RTT // 2)] * enough) is None  # between the two
    assert seen([(RTT, 9_000)] * enough + [(9_000, RTT)]) is None
    assert seen([(15_000, 1_000)] * enough) is None  # no network between hosts
    assert seen([(RTT, 9_000)] * enough, server=A) is None


@pytest.mark.parametrize("lost", ["SYN", "SYN/ACK", "reply", "reset"])
def test_a_handshake_that_is_not_whole_tells_nothing(lost: str) -> None:
    assert seen([(RTT, 9_000)] * LEAST_HANDSHAKES, lost=lost) is None


def test_each_capture_counts_for_itself() -> None:
    flow = Flow(Endpoint(A, 1), Endpoint(B, 2))
    said = [
        Segment(flow=0, sequence=1, flags=SYN, time_ns=0),
        Segment(flow=1, sequence=1, flags=SYN | ACK, time_ns=RTT),
        Segment(flow=0, sequence=2, flags=ACK, time_ns=RTT + 1000),
    ]
    times = HandshakeTimes()
    for _ in range(LEAST_HANDSHAKES):
        times.note(segment_block(said, capture=1), [flow, flow.reversed])
        times.note(segment_block(said[:2], capture=2), [flow, flow.reversed])
    times.note(segment_block(said[2:], capture=3), [flow, flow.reversed])
    assert [times.host(capture) for capture in range(4)] == [None, A, None, None]
