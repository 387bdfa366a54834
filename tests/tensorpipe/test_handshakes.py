"""Connections whose beginning was captured: hellos, brochures, answers, and the holes in them."""

from __future__ import annotations

import pytest

from rpcinspect.tensorpipe.control import frame
from rpcinspect.tensorpipe.control_types import ControlLayout
from rpcinspect.tensorpipe.records import Visibility
from tests.tensorpipe.conversations import (
    Heard,
    Hole,
    Network,
    PipeTalk,
    Said,
    Write,
    answer_of,
    chat,
    only,
    play,
)

CHANNELS = ["basic", "mpt_uv"]
LAYOUTS = [ControlLayout.V1_8, ControlLayout.V1_9]


@pytest.mark.parametrize("channel", CHANNELS)
def test_requested_connections_may_come_before_the_answer(channel: str) -> None:
    network = Network()
    pipe = PipeTalk(network, channel=channel, early=True)
    chat(pipe)
    assert play(network, block=3).said() == pipe.expected()


@pytest.mark.parametrize("first", [127, 128, 255, 256, 65_535, 65_536, 1 << 40])
def test_ids_of_any_size(first: int) -> None:
    network = Network()
    pipe = PipeTalk(network, first_id=first, channel="mpt_uv", lane_id=first)
    chat(pipe)
    outcome = play(network)
    assert outcome.said() == pipe.expected()
    assert outcome.demux.registry.skipped_bytes == 0


def test_two_pipes_to_one_listener_and_one_to_oneself() -> None:
    network = Network()
    pipes = [
        PipeTalk(network, name="worker1"),
        PipeTalk(network, name="worker2", client="10.0.0.2", first_id=2),
    ]
    for pipe in pipes:
        chat(pipe)
    expected = {key: heard for pipe in pipes for key, heard in pipe.expected().items()}
    assert play(network).said() == expected


@pytest.mark.parametrize("channel", CHANNELS)
def test_an_advertised_address_that_is_not_the_real_one(channel: str) -> None:
    network = Network()
    pipe = PipeTalk(network, address="192.168.7.7:5000", channel=channel)
    chat(pipe)
    assert play(network).said() == pipe.expected()


def test_an_ipv6_address_in_another_spelling() -> None:
    network = Network()
    pipe = PipeTalk(network, client="fd00::1", server="[fd00::2]:5000", address="[FD00:0:0::2%eth0]:5000")
    chat(pipe)
    assert play(network).said() == pipe.expected()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channel", CHANNELS)
def test_messages_on_a_connection_of_their_own(channel: str, layout: ControlLayout) -> None:
    network = Network()
    transport = "uv" if layout is ControlLayout.V1_9 else "ibv"  # 1.8 tells the move by the transport's name
    pipe = PipeTalk(network, channel=channel, layout=layout, moved=True, transport=transport)
    chat(pipe)
    outcome = play(network)
    assert outcome.said() == pipe.expected()
    assert outcome.demux.registry.pipes[0].pipe.client_name == "worker0"


def test_a_pipe_that_goes_on_over_shared_memory() -> None:
    network = Network()
    opening = network.connect("10.0.0.1", "10.0.0.1:5000")
    pipe = PipeTalk(network)
    handshake = network.writes[:2]
    network.writes = [Write(opening, True, write.data) for write in handshake]
    answer = answer_of(transport="shm", address="1a543", descriptor=0, reply=1, channels=(("cma", (2, 3)),))
    network.write(opening, frame(answer), from_client=False)
    outcome = play(network)
    assert pipe.sent[True] == []
    assert only(outcome) is Visibility.HANDSHAKE_ONLY
    assert "shm" in (outcome.demux.registry.pipes[0].pipe.reason or "")
    assert outcome.messages == []
    assert outcome.reasons == []


def test_cma_has_messages_without_tensors() -> None:
    network = Network()
    pipe = PipeTalk(network, channel="cma")
    pipe.send(Said(id=1, tensors=(b"abc", b"")))
    pipe.send(Said(id=2))
    outcome = play(network)
    assert only(outcome) is Visibility.NO_TENSORS
    assert [outcome.heard(m).tensors for m in outcome.messages] == [("missing", b""), ()]
    assert outcome.demux.registry.skipped_bytes == 0


@pytest.mark.parametrize("sizes", [(1448,), (1,), (9,)])
@pytest.mark.parametrize("channel", ["basic", "mpt_uv", "cma"])
def test_a_pipe_that_was_opened_out_of_sight(channel: str, sizes: tuple[int, ...]) -> None:
    network = Network()
    pipe = PipeTalk(network, channel=channel, opened_in_sight=False)
    chat(pipe)
    outcome = play(network, sizes=sizes, block=5)
    expected = pipe.expected()
    if channel == "cma":
        expected = {
            key: [Heard(h.payloads, tuple("missing" if t else b"" for t in h.tensors)) for h in heard]
            for key, heard in expected.items()
        }
    assert outcome.said() == expected
    assert only(outcome) is Visibility.NO_HANDSHAKE
    assert {name for _, name in outcome.demux.registry.pipes[0].pipe.channels} == {channel}


def test_a_name_may_be_of_any_bytes() -> None:
    network = Network()
    pipe = PipeTalk(network, name="w\udcff\0²")
    chat(pipe)
    assert play(network).demux.registry.pipes[0].pipe.client_name == "w\udcff\0²"


# --- damage and holes in the handshake ---


@pytest.mark.parametrize("layout", LAYOUTS)
def test_messages_are_where_they_are_whatever_transport_was_named(layout: ControlLayout) -> None:
    """One byte of the transport's name is another; in 1.8's layout that alone moves the messages."""
    network = Network()
    pipe = PipeTalk(network, layout=layout, transport="u\0")
    chat(pipe)
    outcome = play(network)
    flow = str(network.flows[pipe.descriptor])
    for direction in (True, False):
        heard = outcome.said()[flow, direction]
        assert [h.payloads for h in heard] == [s.all_payloads for s in pipe.sent[direction]]
    (problem,) = outcome.demux.registry.problems
    assert problem.location.packet is not None
    assert "moved elsewhere" in problem.reason or "'u\\x00'" in problem.reason


# --- holes ---


@pytest.mark.parametrize(("side", "at"), [(True, 2), (True, 15), (True, 30), (False, 3), (False, 60)])
def test_a_hole_in_the_handshake_leaves_the_messages(side: bool, at: int) -> None:
    network = Network()
    pipe = PipeTalk(network)
    chat(pipe)
    outcome = play(network, holes=[Hole(pipe.opening, side, at, at + 5)], sizes=(20,))
    flow = str(network.flows[pipe.descriptor])
    for direction in (True, False):
        heard = outcome.said()[flow, direction]
        assert [h.payloads for h in heard] == [s.all_payloads for s in pipe.sent[direction]]
    assert only(outcome) is Visibility.NO_HANDSHAKE
    assert {m.payload_missing for m in outcome.messages} == {None}


def test_a_hole_in_the_addresses_of_lanes_is_told() -> None:
    network = Network()
    pipe = PipeTalk(network, channel="mpt_uv")
    chat(pipe)
    outcome = play(network, holes=[Hole(pipe.extra[0], False, 50, 60)], sizes=(20,))
    heard = [h for one in outcome.said().values() for h in one]
    assert len(heard) == 5
    assert any("lanes" in reason for reason in outcome.reasons)
