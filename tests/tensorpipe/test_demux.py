"""Whole conversations between workers, with everything that a capture can do to them."""

from __future__ import annotations

import time
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rpcinspect.tensorpipe.control import DESCRIPTOR_SIGNATURE, frame
from rpcinspect.tensorpipe.control_types import ControlLayout
from rpcinspect.tensorpipe.records import Visibility
from tests.builders import FIN, RST, SYN, Segment
from tests.tensorpipe.conversations import (
    Heard,
    Hole,
    Network,
    PipeTalk,
    Player,
    Said,
    Write,
    answer_of,
    chat,
    hello,
    message_frames,
    play,
    requested,
    segments,
)
from tests.thorough import examples

CHANNELS = ["basic", "mpt_uv"]
LAYOUTS = [ControlLayout.V1_8, ControlLayout.V1_9]


def interleave(writes: list[Write], pick: st.DataObject, *, causal: bool = False) -> list[Write]:
    """Any order that keeps the order of each direction of each connection."""
    queues: dict[tuple[int, bool], list[Write]] = defaultdict(list)
    for write in writes:
        queues[write.connection, write.from_client].append(write)
    keys = [(w.connection, w.from_client) for w in writes]
    out = []
    for key in pick.draw(st.permutations(keys)):
        out.append(queues[key].pop(0))
    return out


# --- properties ---


@pytest.mark.parametrize("host", [("10.0.0.1", "10.0.0.2:5000"), ("fd00::1", "[fd00::2]:5000")])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("sizes", [(1448,), (1,), (3, 1, 20)])
def test_everything_that_was_said_comes_out(
    host: tuple[str, str], layout: ControlLayout, channel: str, sizes: tuple[int, ...]
) -> None:
    network = Network()
    pipe = PipeTalk(network, client=host[0], server=host[1], channel=channel, layout=layout)
    chat(pipe)
    outcome = play(network, sizes=sizes, block=37)
    assert outcome.said() == pipe.expected()
    assert outcome.reasons == []
    [state] = outcome.demux.registry.pipes
    assert (state.pipe.client_name, state.pipe.visible) == ("worker0", Visibility.FULL)
    assert state.pipe.layout is layout
    assert outcome.demux.registry.skipped_bytes == 0


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(1, 80), st.sampled_from(CHANNELS))
@settings(max_examples=examples(25), deadline=None)
def test_any_chopping_gives_the_same(sizes: list[int], block: int, channel: str) -> None:
    network = Network()
    pipe = PipeTalk(network, channel=channel)
    chat(pipe)
    outcome = play(network, sizes=sizes, block=block)
    assert outcome.said() == pipe.expected()
    assert outcome.reasons == []


@given(st.data(), st.integers(1, 50))
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_interleaving_gives_the_same(pick: st.DataObject, block: int) -> None:
    network = Network()
    pipes = [
        PipeTalk(network, name="worker0"),
        PipeTalk(network, name="worker1", client="10.0.0.3", first_id=2),
        PipeTalk(network, name="worker2", client="10.0.0.2", first_id=4),
    ]
    for pipe in pipes:
        chat(pipe)
    outcome = play(network, writes=interleave(network.writes, pick), block=block)
    expected = {key: heard for pipe in pipes for key, heard in pipe.expected().items()}
    assert outcome.said() == expected
    assert outcome.reasons == []


@given(st.data())
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_interleaving_of_lanes_gives_the_same(pick: st.DataObject) -> None:
    network = Network()
    pipe = PipeTalk(network, channel="mpt_uv", lane_id=16)
    chat(pipe)
    outcome = play(network, writes=interleave(network.writes, pick), block=20)
    assert outcome.said() == pipe.expected()


def cut_writes(writes: list[Write], size: int) -> list[Write]:
    """The first bytes of all that was written."""
    out = []
    for write in writes:
        if size <= 0:
            break
        out.append(Write(write.connection, write.from_client, write.data[:size]))
        size -= len(write.data)
    return out


@pytest.mark.parametrize("end", [0, FIN, RST])
@pytest.mark.parametrize("channel", CHANNELS)
def test_every_cut_gives_a_prefix(channel: str, end: int) -> None:
    network = Network()
    pipe = PipeTalk(network, channel=channel)
    chat(pipe)
    total = sum(len(write.data) for write in network.writes)
    expected = pipe.expected()
    step = 5 if channel == "basic" else 31  # primes, so that every kind of place is met
    for size in range(0, total, step):
        outcome = play(network, writes=cut_writes(network.writes, size), end=end, block=1000)
        whole: dict[tuple[str, bool], int] = defaultdict(int)
        for message in outcome.messages:
            key = str(message.pipe.flow), message.from_client
            wanted = expected[key][whole[key]]
            whole[key] += 1
            heard = outcome.heard(message)
            if message.payload_missing is None:
                assert heard.payloads == wanted.payloads
            else:
                assert all(w.startswith(h) for h, w in zip(heard.payloads, wanted.payloads, strict=True))
            for tensor, (got, data) in zip(
                message.tensors, zip(heard.tensors, wanted.tensors, strict=True), strict=True
            ):
                if tensor.extent is not None and not tensor.missing_bytes:
                    assert got == data
        for state in outcome.demux.registry.pipes:
            assert 0 <= state.frame_bytes + state.tensor_bytes <= size


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 400), st.integers(1, 90)), max_size=6)
)
@settings(max_examples=examples(60), deadline=None)
def test_holes_make_no_wrong_message(holes: list[tuple[int, bool, int, int]]) -> None:
    network = Network()
    pipe = PipeTalk(network)
    chat(pipe)
    chat(pipe)
    outcome = play(network, holes=[Hole(c, side, at, at + size) for c, side, at, size in holes], sizes=(50,))
    all_said = [Heard(said.all_payloads, said.tensors) for side in (True, False) for said in pipe.sent[side]]
    for message in outcome.messages:
        heard = outcome.heard(message)
        if message.payload_missing is None:
            assert heard.payloads in [said.payloads for said in all_said]
            for tensor, got in zip(message.tensors, heard.tensors, strict=True):
                if tensor.extent is not None and not tensor.missing_bytes:
                    known = {data for said in all_said for data in said.tensors}
                    assert got in known
    for state in outcome.demux.registry.pipes:
        assert state.frame_bytes >= 0


@given(st.binary(max_size=200), st.binary(max_size=200), st.booleans(), st.integers(1, 50))
@settings(max_examples=examples(80), deadline=None)
def test_foreign_bytes_raise_nothing(client: bytes, server: bytes, syn: bool, size: int) -> None:
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:5000")
    if server:
        network.write(number, server, from_client=False)
    if client:
        network.write(number, client)
    assert play(network, sizes=(size,), syn=syn, patience_ns=3000).messages == []


@given(st.data())
@settings(max_examples=examples(80), deadline=None)
def test_flipped_bytes_raise_nothing(pick: st.DataObject) -> None:
    network = Network()
    pipe = PipeTalk(network, channel=pick.draw(st.sampled_from(["basic", "mpt_uv", "cma", "cuda_basic"])))
    chat(pipe)
    for _ in range(pick.draw(st.integers(1, 3))):
        at = pick.draw(st.integers(0, len(network.writes) - 1))
        write = network.writes[at]
        where = pick.draw(st.integers(0, len(write.data) - 1))
        data = bytearray(write.data)
        data[where] = pick.draw(st.integers(0, 255))
        network.writes[at] = Write(write.connection, write.from_client, bytes(data))
    play(network, sizes=(100,))


# --- hostile ---


def test_garbage_of_every_first_byte() -> None:
    for first in range(256):
        network = Network()
        number = network.connect("10.0.0.1", "10.0.0.2:5000")
        network.write(number, bytes([first]) + b"\0\1garbage and more of it")
        network.write(number, b"whatever", from_client=False)
        outcome = play(network)
        assert outcome.messages == []
        assert outcome.demux.registry.skipped_bytes + outcome.demux.registry.store_bytes == 25 + 8


@pytest.mark.parametrize("syn", [True, False])
def test_a_store_conversation_from_its_middle(syn: bool) -> None:
    """A SET of today's looks like the COMPARE_SET with which old clients begin. Where the beginning was not
    captured, what does not go on like one is no damage."""

    def text(data: bytes) -> bytes:
        return len(data).to_bytes(8, "little") + data

    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:5000")
    set_name = b"\x01" + text(b"/rpc_prefix_0/names/0") + text(b"worker0")
    network.write(number, set_name + b"p" * 40)
    network.write(number, b"\x00", from_client=False)
    outcome = play(network, syn=syn)
    assert bool(outcome.reasons) == syn
    assert outcome.messages == []


def test_a_server_that_talks_first() -> None:
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:22")
    network.write(number, b"SSH-2.0-OpenSSH\r\n", from_client=False)
    outcome = play(network)
    assert outcome.demux.registry.skipped_bytes == 17
    assert outcome.messages == []


def test_what_a_connection_of_another_protocol_says_later_counts() -> None:
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:80")
    network.write(number, b"GET / HTTP/1.1\r\n\r\n")
    for said in (b"x" * 1000, b"y" * 99):
        network.write(number, said, from_client=False)
    assert play(network, block=1).demux.registry.skipped_bytes == 18 + 1099


def test_a_client_that_says_next_to_nothing() -> None:
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:80")
    network.write(number, b"QUIT\n")
    network.write(number, b"x" * 1000, from_client=False)
    assert play(network, block=1).demux.registry.skipped_bytes == 1005


def test_a_server_that_talks_before_the_hello() -> None:
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:5000")
    network.write(number, b"x" * 50, from_client=False)
    pipe = PipeTalk(network)
    network.writes = [Write(0, w.from_client, w.data) if w.connection == 1 else w for w in network.writes]
    network.write(number, message_frames(Said(id=5)))
    outcome = play(network)
    assert pipe.sent[True] == []
    assert [m.payloads[1][0] for m in outcome.messages] == [5]
    assert any("handshake" in reason for reason in outcome.reasons)


@pytest.mark.parametrize("body", [b"\xb8\x00\xb9\x01\xbd\x83" + b"\xff" * 8, b"\xb8\x01\xb9\x01\xbd\x01x"])
def test_a_hello_that_is_none(body: bytes) -> None:
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:5000")
    network.write(number, frame(body))
    assert play(network).demux.registry.skipped_bytes == 8 + len(body)


@pytest.mark.parametrize("length", [2**26, 2**31, 2**60, 2**64 - 1])
@pytest.mark.parametrize("place", ["hello", "brochure", "answer", "mpt hello", "lane"])
def test_absurd_lengths(place: str, length: int) -> None:
    network = Network()
    pipe = PipeTalk(network, channel="mpt_uv")
    pipe.send(Said(tensors=(b"abc",)))
    connection, side, index = {
        "hello": (0, True, 0),
        "brochure": (0, True, 1),
        "answer": (0, False, 0),
        "mpt hello": (pipe.extra[0], False, 0),
        "lane": (pipe.lanes[3], True, 1),
    }[place]
    found = [
        at for at, w in enumerate(network.writes) if (w.connection, w.from_client) == (connection, side)
    ][index]
    write = network.writes[found]
    network.writes[found] = Write(connection, side, length.to_bytes(8, "little") + write.data[8:])
    outcome = play(network)
    assert len(outcome.messages) <= 1
    for message in outcome.messages:
        assert outcome.heard(message).payloads == pipe.sent[True][0].all_payloads


@pytest.mark.parametrize("length", [2**31, 2**40, 2**60, 2**63 - 1, 2**64 - 1])
@pytest.mark.parametrize("channel", ["basic", "mpt_uv", "cuda_basic"])
def test_absurd_tensors(channel: str, length: int) -> None:
    network = Network()
    pipe = PipeTalk(network, channel=channel)
    pipe.send(Said(id=1, tensors=(b"abc",)))
    marker = (201).to_bytes(1, "little")
    said = pipe.send(Said(id=2, tensors=(b"\xaa" * 201,)))
    last = [at for at, w in enumerate(network.writes) if w.connection == pipe.descriptor][-1]
    frames = message_frames(said)
    assert frames.count(b"\xb9\x04\x80" + marker) == 1
    changed = frames.replace(b"\xb9\x04\x80" + marker, b"\xb9\x04\x83" + length.to_bytes(8, "little"))
    body = int.from_bytes(changed[:8], "little") + 7
    network.writes[last] = Write(pipe.descriptor, True, body.to_bytes(8, "little") + changed[8:])
    outcome = play(network)
    first, second = sorted(outcome.messages, key=lambda m: m.offset)
    assert outcome.heard(first).tensors == (b"abc",)
    assert second.tensors[0].descriptor.length == length


def test_one_answer_that_names_a_channel_nobody_knows() -> None:
    network = Network()
    pipe = PipeTalk(network)
    answer = answer_of(channels=(("warp", (1, 2)), ("basic", (3,))))
    network.writes = [
        Write(w.connection, False, frame(answer)) if (w.connection, w.from_client) == (0, False) else w
        for w in network.writes
    ]
    pipe.send(Said(tensors=(b"abc",)))
    outcome = play(network)
    assert [outcome.heard(m).tensors for m in outcome.messages] == [("missing",)]
    assert outcome.demux.registry.pipes[0].pipe.invisible_channels == {"warp"}


def test_the_same_id_is_explained_twice() -> None:
    network = Network()
    for name in ("worker0", "worker1"):
        chat(PipeTalk(network, name=name))
    outcome = play(network)
    assert len(outcome.messages) == 10


# --- nothing is quadratic ---


def seconds(network: Network, **how: int) -> float:
    rows = segments(network, sizes=(how.pop("size", 1448),))
    start = time.process_time()
    play(network, rows=rows, block=how.pop("block", 2000))
    return time.process_time() - start


def test_many_tiny_connections() -> None:
    network = Network()
    for number in range(2000):
        connection = network.connect(f"10.0.{number >> 8}.{number & 255}", "10.0.0.2:5000")
        network.write(connection, (hello(), requested(number), b"\1", b"x" * 40)[number % 4])
    assert seconds(network) < 4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_false_signatures_with_long_lengths(layout: ControlLayout) -> None:
    network = Network()
    connection = network.connect("10.0.0.1", "10.0.0.2:5000")
    size = 1 << 20
    gap = b"" if layout is ControlLayout.V1_9 else b"\xb8\x04"
    fake = (size // 2).to_bytes(8, "little") + gap + DESCRIPTOR_SIGNATURE + b"\xff"
    network.write(connection, b"\xff" * 8 + fake * (size // len(fake)))
    assert seconds(network, size=60_000) < 4


def test_a_stream_of_many_holes_and_messages() -> None:
    network = Network()
    pipe = PipeTalk(network)
    for number in range(1500):
        pipe.send(Said(id=number, tensors=(b"abcdefgh",)))
    rows = segments(network, sizes=(100,))
    rows = [row for at, row in enumerate(rows) if at % 5 or at < 60]
    start = time.process_time()
    outcome = play(network, rows=rows, block=1000)
    assert time.process_time() - start < 12
    assert outcome.messages


def test_many_segments_in_pairs_that_are_swapped() -> None:
    network = Network()
    pipe = PipeTalk(network)
    for number in range(800):
        pipe.send(Said(id=number, tensors=(bytes(300),)))
    rows = segments(network, sizes=(60,))
    for at in range(60, len(rows) - 60, 2):
        rows[at], rows[at + 1] = rows[at + 1], rows[at]
    start = time.process_time()
    outcome = play(network, rows=rows, block=10**6)
    assert time.process_time() - start < 12
    assert len(outcome.messages) == 800


def test_a_garbage_frame_where_mpt_greets_is_read_once() -> None:
    network = Network()
    pipe = PipeTalk(network, channel="mpt_uv")
    control = pipe.extra[0]
    found = next(
        at for at, w in enumerate(network.writes) if (w.connection, w.from_client) == (control, False)
    )
    network.writes[found] = Write(control, False, frame(b"\xff" * (1 << 22)))
    for _ in range(600):
        network.write(control, b"y", from_client=False)
    rows = segments(network, sizes=(60_000,))
    start = time.process_time()
    outcome = play(network, rows=rows, block=1)
    assert time.process_time() - start < 9
    assert outcome.messages == []


def test_an_acknowledgment_far_ahead_costs_nothing() -> None:
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:5000")
    network.write(number, b"\xfe" * 60)
    rows = segments(network, end=0)
    rows.append(Segment(flow=1, sequence=70_001, acknowledgment=rows[-1].acknowledgment + (1 << 30)))
    start = time.process_time()
    play(network, rows=rows)
    assert time.process_time() - start < 3


def test_the_same_port_again_and_again() -> None:
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:5000")
    rows = [Segment(flow=2 * number, sequence=1000 * n, flags=SYN) for n in range(8000)]
    start = time.process_time()
    player = Player(network)
    for at in range(0, len(rows), 1000):
        player.feed(rows[at : at + 1000])
    player.finish()
    assert time.process_time() - start < 12


# --- ports that are used again ---


def test_a_port_that_is_used_again_within_one_block() -> None:
    network = Network()
    first = PipeTalk(network, name="worker0")
    chat(first)
    second = PipeTalk(network, name="worker1", first_id=2)
    chat(second)
    gap = len(network.flows) // 2
    rows = []
    for row in segments(network):
        again = row.flow >= 2 * gap  # the same ports with other sequence numbers
        rows.append(replace(row, flow=row.flow - 2 * gap) if again else row)
    outcome = play(network, rows=rows, block=10**6)
    flow = str(network.flows[first.descriptor])
    said = [(m.pipe.client_name, outcome.heard(m)) for m in outcome.messages if m.from_client]
    wanted = first.expected()[flow, True]
    assert [heard for name, heard in said if name == "worker0"] == wanted
    assert [heard for name, heard in said if name == "worker1"] == wanted
