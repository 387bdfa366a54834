"""Connections whose beginning was not captured."""

from __future__ import annotations

import pytest

from rpcinspect.tensorpipe.control_types import ControlLayout
from rpcinspect.tensorpipe.records import Visibility
from tests.builders import ACK, SYN, Segment
from tests.tensorpipe.conversations import (
    Network,
    PipeTalk,
    Said,
    chat,
    hello,
    message_frames,
    only,
    play,
    segments,
)

CHANNELS = ["basic", "mpt_uv"]
LAYOUTS = [ControlLayout.V1_8, ControlLayout.V1_9]


def tail_of(network: Network, first: int) -> list[Segment]:
    """The segments from that one on, without any SYN."""
    rows = segments(network, syn=False, sizes=(60,))
    return rows[first:]


@pytest.mark.parametrize("patience_ns", [None, 5000])
@pytest.mark.parametrize("block", [1, 5, 1000])
def test_a_capture_that_starts_late_has_every_later_message(patience_ns: int | None, block: int) -> None:
    network = Network()
    pipe = PipeTalk(network)
    for number in range(6):
        pipe.send(Said(id=number))
        pipe.send(Said(type=0x203, id=number), from_client=False)
    rows = segments(network, syn=False, sizes=(60,))
    for first in range(12, len(rows), 7):
        outcome = play(network, rows=rows[first:], block=block, patience_ns=patience_ns)
        [state] = outcome.demux.registry.pipes or [None]
        if state is None:
            continue
        assert state.pipe.visible is Visibility.NO_HANDSHAKE
        flow = str(network.flows[pipe.descriptor])
        assert str(state.pipe.flow) == flow  # the client is told by the types of messages
        for (key, side), heard in outcome.said().items():
            assert key == flow
            assert heard == pipe.expected()[key, side][-len(heard) :]
        assert outcome.reasons == []


def test_one_direction_may_stay_silent_for_long() -> None:
    network = Network()
    pipe = PipeTalk(network)
    for number in range(5):
        pipe.send(Said(id=number))
    pipe.send(Said(type=0x203, id=4), from_client=False)
    rows = [row for row in segments(network, syn=False) if row.flow < 2][4:]
    data = [row for row in rows if row.flow == 0 and row.payload]
    reply = [row for row in rows if row.flow == 1 and row.payload]
    outcome = play(network, rows=[*data, *reply], block=1, patience_ns=1000)
    assert [m.payloads[1][0] for m in outcome.messages if m.from_client] == [0, 1, 2, 3, 4]
    assert [m.payloads[1][0] for m in outcome.messages if not m.from_client] == [4]


def test_a_message_in_the_middle_that_comes_byte_by_byte() -> None:
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:5000")
    network.write(number, b"\1" * 5 + message_frames(Said(id=7)))
    outcome = play(network, syn=False, sizes=(1,), block=1, patience_ns=1000)
    assert [m.payloads[1][0] for m in outcome.messages] == [7]


def test_without_a_syn_the_hello_tells_the_client() -> None:
    network = Network()
    pipe = PipeTalk(network)
    chat(pipe)
    outcome = play(network, syn=False)
    assert outcome.said() == pipe.expected()
    assert only(outcome) is Visibility.FULL


def test_a_lane_whose_server_was_not_seen_to_accept() -> None:
    network = Network()
    pipe = PipeTalk(network)
    chat(pipe)
    rows = [row for row in segments(network) if row.flags != SYN | ACK]
    for block in (1, 7, 1000):
        outcome = play(network, rows=rows, block=block, patience_ns=3000)
        assert outcome.said() == pipe.expected()


def test_a_first_guess_of_the_client_that_is_wrong_costs_no_message() -> None:
    """The capture starts in the middle, with bytes of the server that look like a client's hello."""
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:5000")
    network.write(number, hello() + b"rest of a payload", from_client=False)
    network.write(number, message_frames(Said(id=5)))
    network.write(number, message_frames(Said(type=0x203, id=5)), from_client=False)
    outcome = play(network, syn=False)
    assert sorted((m.payloads[0][1], m.from_client) for m in outcome.messages) == [(1, True), (2, False)]
    assert outcome.demux.registry.pipes[0].pipe.client == network.flows[number].source
