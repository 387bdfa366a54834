"""What a capture lacks, and that there is no finding where there is nothing to say."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from rpcinspect.checks.check import MAX_INDEXES
from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.rpc.command import PythonCall
from rpcinspect.session.model import Finding
from rpcinspect.tcp.stream import Conflict
from rpcinspect.tensorpipe.records import Placement, Visibility
from tests.carriers import frames
from tests.checks import talks
from tests.checks.talks import NOTHING
from tests.decoded import decode
from tests.session.records import Talk, entry, pipe, tp_message, tp_tensor
from tests.truth import capture_of

PCAP_HEADER_BYTES, PCAP_RECORD_BYTES = 24, 16
CODES = {"invisible-transport", "capture-gap", "truncated-packets", "conflicting-overlap"}


def findings(talk: Talk, wire: WireFacts = NOTHING, *entries: object) -> list[Finding]:
    return [finding for finding in talks.findings(talk, wire, *entries) if finding.code in CODES]


def call(data: object = 1) -> PythonCall:
    return PythonCall(pickle.dumps(data), False)


def test_nothing_to_say() -> None:
    talk = Talk()
    assert findings(talk) == []
    talk.say(call())
    assert findings(talk) == []


@pytest.mark.parametrize("spoken", [True, False])
def test_pipes_over_other_transports(spoken: bool) -> None:
    talk = Talk(pipe(), pipe(1, "10.0.0.3:1"), pipe(2, "10.0.0.4:1"))
    for number in (0, 1):
        talk.pipes[number].visible = Visibility.HANDSHAKE_ONLY
        talk.pipes[number].reason = "messages are moved by shm"
    if spoken:
        talk.say(call(), pipe=2)
    [finding] = findings(talk)
    assert (finding.code, finding.severity) == ("invisible-transport", "info" if spoken else "error")
    assert finding.text == "2 of 3 pipes: messages are moved by shm."
    assert finding.workers == ("10.0.0.1:1000", "10.0.0.2:5000", "10.0.0.3:1")


def test_a_channel_that_nobody_can_see() -> None:
    talk = Talk()
    talk.pipes[0].invisible_channels |= {"warp", "cma"}
    talk.say(call())
    [finding] = findings(talk)
    assert "cma, warp" in finding.text


def test_workers_that_listen_at_shared_memory_only() -> None:
    talk = Talk()
    talk.pipes = ()
    assert findings(talk, NOTHING, entry("names/0", "w"), entry("addrs/w", "uv://10.0.0.1:1")) == []
    [finding] = findings(talk, NOTHING, entry("names/0", "w"), entry("addrs/w", "shm://1a543"))
    assert (finding.code, finding.severity) == ("invisible-transport", "error")
    assert finding.workers == ("w",)
    assert "shm://1a543" in finding.text


def test_gaps_and_cut_packets() -> None:
    talk = Talk()
    payloads = [b"\x02\x01\0\0", bytes(8), b"", b""]
    for number in range(3):
        tensors = [tp_tensor(7, Placement.MISSING)] if number else []
        missing = [0, 0, 3, 0] if number < 2 else None
        talk.feed(tp_message(talk.pipes[0], payloads, time_ns=10 - number, missing=missing, tensors=tensors))
    wire = WireFacts((("a>b", 2, 1000), ("c>d", 1, 7)), 44, ())
    gap, cut = findings(talk, wire)
    assert (gap.code, cut.code) == ("capture-gap", "truncated-packets")
    assert gap.text.startswith("1,007 bytes in 3 gaps of 2 streams")
    assert "(most in a>b: 1,000)" in gap.text
    assert "2 messages and the tensors of 2 messages are incomplete" in gap.text
    assert cut.text.startswith("The snap length of the capture cut off 44 bytes; ")
    assert gap.messages == cut.messages == (0, 1, 2)
    assert gap.workers == cut.workers == ("10.0.0.1:1000", "10.0.0.2:5000")


def test_the_end_of_a_file_may_have_cut_a_packet(tmp_path: Path) -> None:
    """The file ends 3 bytes before the end of the packet in which a message begins."""
    source, cut = capture_of("basic_chain"), tmp_path / "cut.pcap"
    packet = decode(source).messages[6]["location"]["packet"]
    sizes = [PCAP_RECORD_BYTES + len(frame) for frame, *_ in frames(source)]
    cut.write_bytes(source.read_bytes()[: PCAP_HEADER_BYTES + sum(sizes[:packet]) - 3])
    [finding] = decode(cut).of("finding")
    assert finding["code"] == "truncated-packets"
    assert finding["text"].startswith(
        "The snap length of the capture, or the end of a damaged file, cut off 3 bytes; "
    )


def test_lists_of_messages_are_bounded() -> None:
    talk = Talk()
    payloads = [b"\x02\x01\0\0", bytes(8), b"", b""]
    for _ in range(MAX_INDEXES + 50):
        talk.feed(tp_message(talk.pipes[0], payloads, missing=[0, 0, 1, 0]))
    [finding] = findings(talk, WireFacts((("a>b", 1, 1),), 0, ()))
    assert len(finding.messages) == MAX_INDEXES


def test_copies_that_differ() -> None:
    wire = WireFacts((), 0, (("a>b", 1234, Conflict(99, 3, 17, 0)),))
    [finding] = findings(Talk(), wire)
    assert finding.code == "conflicting-overlap"
    assert "3 bytes of a>b from offset 1,234" in finding.text
    assert "packet 17" in finding.text
    assert finding.workers == ()


def test_copies_that_differ_name_the_workers_of_their_pipe() -> None:
    talk = Talk()
    flow = str(talk.pipes[0].flow.reversed)
    [finding] = findings(talk, WireFacts((), 0, ((flow, 5, Conflict(99, 1, 17, 0)),)))
    assert "1 byte of" in finding.text
    assert finding.workers == ("10.0.0.2:5000", "10.0.0.1:1000")


def test_numbers_agree_with_their_nouns() -> None:
    talk = Talk()
    talk.feed(tp_message(talk.pipes[0], [b"\x02\x01\0\0", bytes(8), b"", b""], missing=[0, 0, 1, 0]))
    gap, cut = findings(talk, WireFacts((("a>b", 1, 1),), 1, ()))
    assert gap.text.startswith("1 byte in 1 gap of 1 stream was not captured")
    assert gap.text.endswith("; 1 message is incomplete.")
    assert "cut off 1 byte;" in cut.text


def test_tensors_that_were_never_on_the_network_are_no_gap() -> None:
    talk = Talk()
    talk.pipes[0].invisible_channels.add("cma")
    payloads = [b"\x02\x01\0\0", bytes(8), b"", b""]
    talk.feed(tp_message(talk.pipes[0], payloads, tensors=[tp_tensor(7, Placement.MISSING)]))
    found = findings(talk, WireFacts((("a>b", 1, 1),), 0, ()))
    [gap] = [finding for finding in found if finding.code == "capture-gap"]
    assert gap.text.endswith("; all messages found are complete.")
    assert gap.messages == ()
