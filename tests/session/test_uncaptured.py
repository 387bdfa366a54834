"""What workers were asked where no sniffer was."""

from __future__ import annotations

import json
from itertools import permutations

import pytest
from msgspec.structs import replace

from rpcinspect.rpc.command import PythonCall
from rpcinspect.run.causes import explain
from rpcinspect.session.model import CaptureInfo, Session
from rpcinspect.session.uncaptured import LATE_NS, NEVER, Uncaptured
from rpcinspect.tcp.clocks import ClockOffset, Vantage
from tests.decoded import decode
from tests.places import recorded
from tests.replayer.talks import udf
from tests.session.records import Talk, pipe

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
CAPTURE = CaptureInfo(
    capture=0, path="", format="", packets=9, bytes=9, first_time_ns=0, last_time_ns=9, reader="pcap"
)


def talk(*sent: tuple[str, str, int, int], others: tuple[tuple[str, str], ...] = ()) -> Session:
    """(from, to, number, when); a worker is called by its host, or with one more letter."""
    ways = list(dict.fromkeys([*(one[:2] for one in sent), *others]))
    pipes = [
        pipe(n, f"{a.rstrip('xyz')}:{1000 + n}", f"{b.rstrip('xyz')}:5{ord(b[-1])}", name=a)
        for n, (a, b) in enumerate(ways)
    ]
    said = Talk(*pipes)
    for n, (_, b) in enumerate(ways):
        said.builder.evidence.name(n, False, b)
    for a, b, number, when in sent:
        said.say(PythonCall(udf("app.f"), False), pipe=ways.index((a, b)), id=number, time_ns=when)
    return said.finish()


def since(session: Session, member: str) -> int:
    return Uncaptured(session).since((0, member))


def test_numbers_without_holes_are_known_until_the_last_one() -> None:
    """A and B send to C; nothing is seen between A and B."""
    session = talk((A, C, 0, 10), (B, C, 0, 20), (A, C, 1, 30), (B, C, 1, 40))
    assert (since(session, B), since(session, A)) == (30, 40)


def test_a_hole_is_of_somebody_who_is_not_seen() -> None:
    session = talk((A, C, 0, 10), (B, C, 0, 20), (A, C, 2, 30), (B, C, 1, 40))
    assert (since(session, B), since(session, A)) == (10, 10)  # or it was for A itself


def test_who_is_seen_from_the_second_number_on_is_not_known_at_all() -> None:
    assert since(talk((A, C, 1, 10), (B, C, 0, 20)), B) == -NEVER


def test_who_sends_nothing_is_not_known() -> None:
    assert since(talk((C, A, 0, 10), (B, C, 0, 20)), B) == -NEVER


@pytest.mark.parametrize("way", [(A, B), (B, A)])
def test_of_hosts_of_which_something_was_captured_all_was(way: tuple[str, str]) -> None:
    session = talk((A, C, 0, 10), (B, C, 0, 20), (A, C, 5, 30), others=(way,))
    assert since(session, B) == NEVER


def test_workers_of_one_host_are_not_seen_at_its_network_card() -> None:
    one, other = A + "x", A + "y"
    sent = (one, C, 0, 10), (other, C, 0, 20), (one, C, 2, 30)
    assert since(talk(*sent), other) == 10
    assert since(talk(*sent, others=((one, other),)), other) == NEVER
    assert since(talk(*sent, others=((other, one),)), other) == NEVER  # the sniffer is at their loopback


def test_who_began_again_counts_anew() -> None:
    sent = (A, C, 0, 10), (A, C, 1, 20), (A, C, 0, 30), (B, C, 0, 40)
    assert since(talk(*sent), B) == 20
    assert since(talk(*sent, (A, C, 2, 50), (A, C, 2, 60)), B) == 20  # one of them lacks its second


def test_what_a_worker_was_told_it_was_asked_or_asked_for() -> None:
    session = talk((A, C, 0, 10), (B, C, 0, 20), (A, C, 1, 30), (B, C, 2, 40))
    assert Uncaptured(session).heard_since((0, A)) == {B: 20}
    assert Uncaptured(session).heard_since((0, B)) == {A: 20}  # B may have asked A for its second time
    assert Uncaptured(session).heard_since((0, C)) == {}


def test_times_of_several_sniffers_are_late() -> None:
    session = talk((A, C, 0, 10), (B, C, 0, 20))
    at_c = replace(CAPTURE, vantage=Vantage(hosts=frozenset((C,))))
    clock = ClockOffset(offset_ns=0, uncertainty_ns=5, connections=1)
    assert since(replace(session, captures=(at_c, replace(at_c, capture=1, clock=clock))), B) == 10 - LATE_NS
    at_a = replace(CAPTURE, capture=1, clock=clock, vantage=Vantage(hosts=frozenset((A,))))
    assert since(replace(session, captures=(at_c, at_a)), B) == NEVER


def test_logs_are_not_asked() -> None:
    session = talk((A, C, 1, 10), (B, C, 0, 20))
    assert since(replace(session, captures=(replace(CAPTURE, reader="log"),)), B) == NEVER


def test_what_nobody_captured_is_no_proof() -> None:
    """Each host's capture of `forget` alone, and pairs: with any but the driver's, calls that functions of
    others sent were told to be their senders' own."""
    told = [json.loads(line) for line in recorded("reports/hosts/forget.truth").read_text().splitlines()]
    truth = {(one["worker"], f"forget.{one['sent']}", str(one["key"])): one["serving"] for one in told}
    certain = 0
    for hosts in [*permutations("0123", 1), *permutations("0123", 2)]:
        for call in decode(*(recorded(f"reports/hosts/forget.host{host}.pcap") for host in hosts)).messages:
            if call["request"] and not call["control"] and call["parent_certain"]:
                key = call["src"], call["body"]["function"], call["body"]["args"][1]
                assert (call["parents"], truth[key]) == ([], None)
                certain += 1
    assert certain > 50


def test_a_call_after_that_is_of_nobody_for_sure() -> None:
    session = talk((A, C, 0, 10), (B, C, 0, 15), (A, C, 2, 20), (B, C, 1, 30))
    assert set(explain(session).doubts) == {1, 2, 3}
