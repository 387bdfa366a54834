"""The connections of one pipe: ends, ids, names, and when what is said."""

from __future__ import annotations

from rpcinspect.export.pcap.flows import CLIENT, SERVER, Ports, Talk
from rpcinspect.export.pcap.pipes import Numbered, pipe_talks
from rpcinspect.run.run import RunModel
from rpcinspect.tcp.segment import Endpoint
from rpcinspect.tensorpipe.control import read_brochure_answer, read_first_frame
from rpcinspect.tensorpipe.control_types import ControlLayout, RequestedConnection, SpontaneousConnection
from tests.places import recorded
from tests.truth import CAPTURES, capture_of


def talks_of(name: str, registration_id: int = 4) -> tuple[list[Talk], list[Numbered]]:
    with RunModel.open([str(capture_of(name))]) as opened:
        pipe = opened.session.pipes[0]
        messages = [
            Numbered(index, record) for index, record in enumerate(opened.messages) if record.tp.pipe is pipe
        ]
        return pipe_talks(pipe, "name", messages, registration_id, Ports(set())), messages


def frames(talk: Talk, side: int, count: int) -> list[bytes]:
    """The bodies of the first frames."""
    data = b"".join(p.said for p in talk.pieces if p.side == side and isinstance(p.said, bytes))
    found = []
    for _ in range(count):
        size = int.from_bytes(data[:8], "little")
        found.append(data[8 : 8 + size])
        data = data[8 + size :]
    return found


def test_the_handshake_says_where_everything_is() -> None:
    (descriptors, reply, channel), messages = talks_of("basic_chain")
    pipe = messages[0].record.tp.pipe
    assert (descriptors.client, descriptors.server) == (pipe.client, pipe.listener)
    assert {talk.server for talk in (reply, channel)} == {pipe.listener}
    assert len({talk.client for talk in (descriptors, reply, channel)}) == 3
    assert read_first_frame(frames(descriptors, CLIENT, 1)[0]) == SpontaneousConnection("name")
    assert read_first_frame(frames(reply, CLIENT, 1)[0]) == RequestedConnection(4)
    assert read_first_frame(frames(channel, CLIENT, 1)[0]) == RequestedConnection(5)
    answer, layout = read_brochure_answer(frames(descriptors, SERVER, 1)[0])
    assert layout is ControlLayout.V1_9
    assert (answer.transport, answer.address) == ("uv", str(pipe.listener))
    assert answer.transport_registration_ids == ((1, 4),)
    assert answer.channel_registration_ids == (("basic", (5,)),)


def test_1_8_has_no_connection_for_replies() -> None:
    with RunModel.open([str(recorded("versions/torch-1.8.1.pcap"))]) as opened:
        pipe = opened.session.pipes[0]
        messages = [Numbered(n, r) for n, r in enumerate(opened.messages) if r.tp.pipe is pipe]
        talks = pipe_talks(pipe, "", messages, 0, Ports(set()))
    assert len(talks) == 2
    assert read_brochure_answer(frames(talks[0], SERVER, 1)[0])[1] is ControlLayout.V1_8


def test_first_and_last_byte_have_their_times() -> None:
    talks, messages = talks_of("dtype_zoo")
    for message in messages:
        pieces = [p for talk in talks for p in talk.pieces if p.index == message.index]
        times = [p.time_ns for p in pieces]
        assert (min(times), max(times)) == (message.record.tp.first_ns, message.record.tp.last_ns)


def test_nothing_is_said_before_what_stands_before_it() -> None:
    talks, _ = talks_of("transport_matrix_uv_basic")
    for talk in talks:
        for side in (CLIENT, SERVER):
            its = [p for p in talk.pieces if p.side == side]
            assert [p.time_ns for p in its] == sorted(p.time_ns for p in its)
            ends = [p.at for p in its]
            assert ends == sorted(ends)


def test_ends_that_are_taken_are_not_given_to_extra_connections() -> None:
    with RunModel.open([str(CAPTURES / "basic_chain.pcap")]) as opened:
        pipe = opened.session.pipes[0]
        taken = {Endpoint(pipe.client.host, port) for port in range(60900, 61000)}
        message = next(Numbered(n, r) for n, r in enumerate(opened.messages) if r.tp.pipe is pipe)
        talks = pipe_talks(pipe, "name", [message], 0, Ports(taken))
    assert {talk.client for talk in talks[1:]}.isdisjoint(taken)
