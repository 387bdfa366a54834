"""One pipe: what the handshake agreed on, messages of both directions, and which tensors can be sure."""

from __future__ import annotations

import pytest
from msgspec import structs

from rpcinspect.limits import DEFAULT_LIMITS
from rpcinspect.tcp.segment import Endpoint, Flow
from rpcinspect.tensorpipe.control import read_brochure_answer
from rpcinspect.tensorpipe.control_types import ControlLayout, TpDevice
from rpcinspect.tensorpipe.pipe import FROM_CLIENT, FROM_SERVER, PipeState
from rpcinspect.tensorpipe.records import Pipe, Placement, Visibility
from rpcinspect.tensorpipe.shape_table import ShapeTable
from tests.builders import FIN, RST
from tests.tensorpipe.conversations import (
    CPU,
    CUDA,
    Hole,
    Network,
    Outcome,
    PipeTalk,
    Said,
    Write,
    answer_of,
    descriptor_of,
    frame,
    play,
    segments,
)

FLOW = Flow(Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 2))


def fresh() -> PipeState:
    return PipeState(Pipe(0, FLOW), ShapeTable(DEFAULT_LIMITS), DEFAULT_LIMITS)


def agreed(**how: object) -> PipeState:
    state = fresh()
    answer, layout = read_brochure_answer(answer_of(**how))  # type: ignore[arg-type]
    state.agree(answer, layout)
    return state


@pytest.mark.parametrize(
    ("how", "visible"),
    [
        ({}, Visibility.FULL),
        ({"channels": ()}, Visibility.FULL),
        ({"channels": (("cma", (1, 2)),)}, Visibility.NO_TENSORS),
        ({"channels": (("cma", (1, 2)), ("basic", (3,)))}, Visibility.FULL),
        ({"channels": (("warp", (1,)),)}, Visibility.FULL),
        ({"transport": "shm", "descriptor": 5}, Visibility.HANDSHAKE_ONLY),
        ({"transport": "shm"}, Visibility.FULL),
        ({"transport": "ibv", "descriptor": 5}, Visibility.HANDSHAKE_ONLY),
    ],
)
def test_what_a_capture_can_show(how: dict[str, object], visible: Visibility) -> None:
    pipe = agreed(**how).pipe
    assert pipe.visible is visible
    assert (pipe.reason is None) == (visible is Visibility.FULL)


def test_the_channel_of_1_8_is_that_of_its_only_selection() -> None:
    pipe = agreed(layout=ControlLayout.V1_8).pipe
    assert pipe.layout is ControlLayout.V1_8
    assert pipe.channels == (((CPU, CPU), "basic"),)


def test_a_pipe_of_which_nothing_came() -> None:
    state = agreed()
    assert state.advance() == []
    assert state.finish() == []
    assert (state.frame_bytes, state.tensor_bytes, state.problems) == (0, 0, [])


def test_lanes_that_do_not_exist_are_not_attached() -> None:
    state = fresh()
    network = Network()
    talk = PipeTalk(network)
    stream = play(network).tcp.connections[0].forward
    state.attach_lane("basic", 7, (stream, stream), (0, 0))
    state.attach_lane("cma", 0, (stream, stream), (0, 0))
    state.attach_connection("basic", 3, (stream, stream), (0, 0))
    state.attach_connection("mpt_uv", 0, (stream, stream), (0, 0))
    assert talk.channel == "basic"
    assert state.finish() == []
    assert state.pipe.invisible_channels == {"cma"}


# --- which channel carries a tensor ---


@pytest.mark.parametrize("from_client", [True, False])
def test_the_channel_is_that_of_server_and_client_device(from_client: bool) -> None:
    """Keys of the answer are (server's device, client's device), whoever sends."""
    pairs = [((CUDA, CPU), "basic"), ((CPU, CUDA), "cma")]
    state = agreed(channels=(("basic", (1,)), ("cma", (2, 3))), pairs=pairs)
    source, target = (CPU, CUDA) if from_client else (CUDA, CPU)
    said = Said(tensors=(b"abc",), device=source)
    body = descriptor_of(said, ControlLayout.V1_9, "")
    assert body.count(b"\xbd\x03cpu\x00") + body.count(b"\xbd\x04cuda\x00") == 2
    shape = ShapeTable(DEFAULT_LIMITS).get(body)
    tensor = shape.descriptor.tensors[0]
    structs.force_setattr(tensor, "target_device", target)
    found = state._channel_of(FROM_CLIENT if from_client else FROM_SERVER, tensor)
    assert found is not None
    assert found.name == "basic"


def test_a_pair_that_nobody_agreed_on_has_no_channel() -> None:
    network = Network()
    pipe = PipeTalk(network)
    pipe.send(Said(tensors=(b"abc",), device=TpDevice("cuda", 7)))
    pipe.send(Said(id=2))
    outcome = play(network)
    assert [[t.placement for t in m.tensors] for m in outcome.messages] == [[Placement.MISSING], []]


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5 << 19])
def test_cuda_basic(size: int) -> None:
    network = Network()
    pipe = PipeTalk(network, channel="cuda_basic")
    pipe.send(Said(id=1, tensors=(b"ab",)))
    pipe.send(Said(id=2, tensors=(bytes(range(250)) * (size // 250) + b"z" * (size % 250), b"cd")))
    pipe.send(Said(type=0x203, id=2, tensors=(b"x" * 9,)), from_client=False)
    outcome = play(network, sizes=(60_000,))
    assert outcome.said() == pipe.expected()
    assert outcome.demux.registry.skipped_bytes == 0


# --- what is lost costs certainty, never truth ---


def two_exchanges(channel: str = "basic") -> tuple[Network, PipeTalk]:
    network = Network()
    pipe = PipeTalk(network, channel=channel)
    for number in range(4):
        pipe.send(Said(id=number, tensors=(bytes([65 + number]) * 32,)))
    pipe.send(Said(type=0x203, id=0, tensors=(b"answer",)), from_client=False)
    return network, pipe


def tensors(outcome: Outcome, *, from_client: bool = True) -> dict[int, bytes | str]:
    """By message id."""
    return {
        int.from_bytes(m.payloads[1], "little"): outcome.heard(m).tensors[0]
        for m in outcome.messages
        if m.from_client is from_client
    }


@pytest.mark.parametrize("block", [1, 3, 1000])
@pytest.mark.parametrize("end", [0, FIN])
def test_a_lost_message_makes_tensors_uncertain_unless_the_end_is_known(block: int, end: int) -> None:
    network, pipe = two_exchanges()
    start = len(network.writes[0].data) + len(network.writes[1].data)
    size = len([w for w in network.writes if w.connection == pipe.descriptor][-2].data)
    outcome = play(
        network,
        holes=[Hole(pipe.descriptor, True, start + size + 20, start + size + 25)],
        sizes=(50,),
        block=block,
        end=end,
    )
    rest = {2: b"C" * 32, 3: b"D" * 32} if end else {2: "uncertain", 3: "uncertain"}
    assert tensors(outcome) == {0: b"A" * 32, **rest}
    assert tensors(outcome, from_client=False) == {0: b"answer"}  # the other direction has its own order


def test_a_hole_in_a_tensor_costs_that_tensor_only() -> None:
    network, pipe = two_exchanges()
    outcome = play(network, holes=[Hole(pipe.extra[0], True, 13 + 40 + 10, 13 + 40 + 15)], sizes=(11,))
    found = tensors(outcome)
    assert found[0] == b"A" * 32
    assert found[1] == b"B" * 2 + bytes(5) + b"B" * 25
    assert found[2] == b"C" * 32
    damaged = next(m for m in outcome.messages if m.payloads[1][0] == 1)
    assert damaged.tensors[0].missing_bytes == 5


def test_a_hole_over_lengths_of_tensors_costs_nothing_else() -> None:
    network, pipe = two_exchanges()
    outcome = play(network, holes=[Hole(pipe.extra[0], True, 13 + 38, 13 + 50)], sizes=(11,))
    found = tensors(outcome)
    assert found[0] == b"A" * 30 + bytes(2)
    assert found[1] == bytes(2) + b"B" * 30
    assert found[3] == b"D" * 32
    assert outcome.reasons == []


def test_a_payload_that_was_lost_leaves_the_tensors() -> None:
    network, pipe = two_exchanges()
    start = len(network.writes[0].data) + len(network.writes[1].data)
    size = len([w for w in network.writes if w.connection == pipe.descriptor][-2].data)
    at = start + 2 * size - 5
    outcome = play(network, holes=[Hole(pipe.descriptor, True, at, at + 3)], sizes=(50,))
    assert tensors(outcome) == {n: bytes([65 + n]) * 32 for n in range(4)}
    assert [m.payload_missing is None for m in outcome.messages if m.from_client] == [True, False, True, True]


def test_a_frame_of_another_length_is_told() -> None:
    network, pipe = two_exchanges()
    found = [at for at, w in enumerate(network.writes) if w.connection == pipe.extra[0] and w.from_client]
    network.writes[found[2]] = Write(pipe.extra[0], True, frame(b"B" * 31))
    outcome = play(network)
    assert tensors(outcome) == {0: b"A" * 32, 1: "uncertain", 2: "uncertain", 3: "uncertain"}
    assert outcome.reasons == [
        "tensors can't be placed: a tensor of 32 bytes was due, a frame of 31 bytes is there"
    ]


@pytest.mark.parametrize("end", [0, FIN, RST])
def test_the_end_inside_a_message_says_how_it_ended(end: int) -> None:
    network = Network()
    pipe = PipeTalk(network)
    pipe.send(Said(id=1))
    last = network.writes[-1]
    network.writes[-1] = Write(last.connection, True, last.data[:20])
    outcome = play(network, end=end)
    wanted = "the capture ends inside a message" if not end else "the connection was closed inside a message"
    assert outcome.reasons == [wanted]


@pytest.mark.parametrize("end", [0, FIN, RST])
def test_when_a_pipe_ended(end: int) -> None:
    outcome = play(two_exchanges()[0], end=end)
    (state,) = outcome.demux.registry.pipes
    outcome.demux.registry.note_ends()
    ended = state.pipe.ended_ns
    assert (ended is None) == (end == 0)
    assert ended is None or ended > max(message.last_ns for message in outcome.messages)


def test_bytes_are_counted_once() -> None:
    network, _ = two_exchanges()
    outcome = play(network)
    [state] = outcome.demux.registry.pipes
    written = sum(len(w.data) for w in network.writes)
    assert state.frame_bytes + state.tensor_bytes == written
    assert state.tensor_bytes == 4 * 32 + 6
    assert outcome.demux.registry.skipped_bytes == 0


@pytest.mark.parametrize("channel", ["basic", "mpt_uv"])
def test_every_byte_of_mpt_is_counted_too(channel: str) -> None:
    network, _ = two_exchanges(channel)
    [state] = play(network).demux.registry.pipes
    assert state.frame_bytes + state.tensor_bytes == sum(len(w.data) for w in network.writes)


def test_messages_of_a_late_capture_are_not_kept_back() -> None:
    """Their channel can't be known, so nothing is gained by waiting."""
    network = Network()
    pipe = PipeTalk(network)
    for number in range(3):
        pipe.send(Said(id=number, tensors=(b"abc",)))
    rows = [r for r in segments(network, syn=False) if r.flow == 0 and r.payload][2:]
    outcome = play(network, rows=rows, end=0)
    assert [m.payloads[1][0] for m in outcome.messages] == [0, 1, 2]


def test_tensors_that_waited_for_their_channel_come_first() -> None:
    network = Network()
    pipe = PipeTalk(network, opened_in_sight=False)
    hellos = list(network.writes)
    one = pipe.send(Said(id=1, tensors=(b"first",)))
    two = pipe.send(Said(id=2, tensors=(b"other",)))
    del network.writes[len(hellos) :]
    pipe.sent[True].clear()
    pipe.network.write(pipe.descriptor, frame(descriptor_of(one, pipe.layout, "basic")))
    for payload in one.all_payloads:
        network.write(pipe.descriptor, frame(payload))
    pipe.sent[True].append(one)
    rows = segments(network, end=0)
    before = len(rows)
    pipe.send_tensor(b"first")
    pipe.send(two)
    rows = segments(network, end=0)
    late = rows[before:]
    late.sort(key=lambda row: -row.flow)  # the channel's segments first
    outcome = play(network, rows=[*rows[:before], *late], block=before)
    assert [outcome.heard(m).tensors for m in sorted(outcome.messages, key=lambda m: m.offset)] == [
        (b"first",),
        (b"other",),
    ]
