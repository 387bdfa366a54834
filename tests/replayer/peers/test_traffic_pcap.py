"""What a replay's sockets sent, written as a pcap: read back by our own stages, by tshark, and decoded."""

from __future__ import annotations

import gc
import itertools
import resource
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import ClassVar
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, field
from msgspec.structs import replace

from rpcinspect.capture.tshark import find_program
from rpcinspect.errors import OutputError
from rpcinspect.replayer.options import ReplayOptions
from rpcinspect.replayer.peers import traffic_pcap as recorder
from rpcinspect.replayer.peers.loop import Loop, RequestArrived, ResponseArrived
from rpcinspect.replayer.peers.membership import PREFIX
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.peers.traffic_pcap import TrafficRecorder
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.playing.outcome import TrafficRecording
from rpcinspect.replayer.replayer import replay
from rpcinspect.replayer.workers.live_group import LiveGroup
from rpcinspect.replayer.workers.workers import WorkerOptions
from rpcinspect.rpc.message import NO_TENSORS, MessageType, RpcMessage
from rpcinspect.rpc.tensor import TensorMeta, to_tensor_table
from rpcinspect.run.run import RunModel, open_run
from rpcinspect.tcp.packetize import MAX_PAYLOAD, HostPort
from tests.replayer.captured import autograd_message_id, captured, remapped
from tests.replayer.live_calls import SECONDS, members
from tests.tensorpipe.reading import Reading, read_streams
from tests.thorough import examples

ENDS: tuple[tuple[HostPort, HostPort], ...] = (
    (("127.0.0.1", 40000), ("127.0.0.1", 5000)),
    (("127.0.0.1", 40001), ("127.0.0.1", 5000)),
    (("::1", 40000), ("::1", 5000)),
    (("127.0.0.2", 5000), ("127.0.0.1", 40000)),
)
"""(client, server) of connections that follow each other."""


def text(source: HostPort, destination: HostPort) -> str:
    """A flow as the segment stage writes it."""
    return ">".join(
        [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in (source, destination)]
    )


class Told(Struct):
    """A connection as the tap was told of it."""

    client: HostPort
    server: HostPort
    bytes: dict[bool, bytearray] = field(default_factory=lambda: {True: bytearray(), False: bytearray()})
    """By whether the client sent them."""


class Teller:
    """Tells a recorder of made-up connections, and keeps what it told."""

    def __init__(self, record: TrafficRecorder, told: list[Told] | None = None) -> None:
        self.record = record
        self.told: list[Told] = [] if told is None else told
        self.open: dict[int, Told] = {}

    def do(self, number: int, from_client: bool, data: bytes | None) -> None:
        """Data on a connection, which is opened if it isn't open; None ends it. Odd ones are accepted."""
        client, server = ENDS[number]
        accepted = number % 2 == 1
        ends = (server, client) if accepted else (client, server)
        if number not in self.open:
            self.told.append(Told(client, server))
            self.record.opened(*ends, accepted)
            self.open[number] = self.told[-1]
        if data is None:
            del self.open[number]
            self.record.closed(*ends)
        else:
            self.open[number].bytes[from_client] += data
            self.record.data(*ends, from_client != accepted, data)


def check(reading: Reading, told: list[Told]) -> None:
    """Every connection, in order, with every byte and nothing else."""
    assert reading.problems == []
    assert reading.other == {}
    assert len(reading.talks) == len(told)
    for talk, one in zip(reading.talks, told, strict=True):
        assert set(talk) == {text(one.client, one.server), text(one.server, one.client)}
        for from_client, ends in ((True, (one.client, one.server)), (False, (one.server, one.client))):
            stream = talk[text(*ends)]
            assert (b"" if stream is None else stream.content) == bytes(one.bytes[from_client])
            if stream is not None:
                assert (stream.holes, stream.conflicts, stream.cut_bytes) == ([], [], 0)


SOME = st.builds(
    lambda part, times: part * times, st.binary(max_size=5), st.sampled_from([1, 1, 300, 30_000])
)


@settings(max_examples=examples(60), deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, len(ENDS) - 1), st.booleans(), st.none() | SOME), max_size=30),
    initial=st.lists(
        st.integers(2**32 - 40_000, 2**32 - 1) | st.integers(0, 2**32 - 1), min_size=2, unique=True
    ),
)
def test_what_was_told_is_read_back(steps: list[tuple[int, bool, bytes | None]], initial: list[int]) -> None:
    numbers = dict.fromkeys(itertools.chain(initial, range(0, 2**32, 77_777_777)))
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(recorder.secrets, "randbits", side_effect=numbers),
    ):
        path = Path(folder) / "out.pcap"
        with TrafficRecorder(path) as record:
            teller = Teller(record)
            for step in steps:
                teller.do(*step)
        check(read_streams([path]), teller.told)


def test_a_large_message_is_split_and_times_are_in_order(tmp_path: Path) -> None:
    path = tmp_path / "out.pcap"
    data = bytes(range(256)) * 12_000
    before = time.time_ns()
    with TrafficRecorder(path) as record:
        teller = Teller(record)
        teller.do(0, True, data)
        with mock.patch.object(recorder.time, "time_ns", return_value=1):  # the clock is set back
            teller.do(0, False, data)
        teller.do(0, True, None)
    reading = read_streams([path])
    check(reading, teller.told)
    assert reading.packets == 3 + 2 * -(-len(data) // MAX_PAYLOAD) + 3
    there, back = (reading[text(*ends)].stamp for ends in (ENDS[0], ENDS[0][::-1]))
    assert before <= there[0] == there[1] == back[0] == back[1] <= time.time_ns()


@pytest.mark.skipif(find_program("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "out.pcap"
    with TrafficRecorder(path) as record:
        teller = Teller(record)
        for turn in range(12):
            teller.do(turn % 3, turn % 5 < 2, bytes([turn]) * (turn * 20_000))
        teller.do(1, True, None)
    for number, told in enumerate(teller.told):
        command = ["tshark", "-r", str(path), "-q", "-z", f"follow,tcp,raw,{number}"]
        done = subprocess.run(command, check=True, capture_output=True, timeout=60, text=True)
        lines = done.stdout.split("Node 1:")[1].splitlines()[1:-1]
        for from_client in (True, False):  # what the server sent is indented
            its = "".join([line.strip() for line in lines if line.startswith("\t") != from_client])
            assert bytes.fromhex(its) == told.bytes[from_client]


# --- what goes wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none/out.pcap", "No such file or directory"),
        (".", "Is a directory"),
        ("\0", "null byte"),
        ("/dev/full", "No space left on device"),
    ],
)
def test_a_path_that_can_not_be_written(name: str, reason: str, tmp_path: Path, nothing_left: None) -> None:
    with pytest.raises(OutputError, match=f"can't be written: .*{reason}"):
        TrafficRecorder(tmp_path / name)


@pytest.fixture
def small_files() -> Iterator[int]:
    """No file may grow larger than this: what a full disk does, without one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    bound = 2_500_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (bound, hard))
    yield bound
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_ends_the_recording_only(
    tmp_path: Path, small_files: int, nothing_left: None
) -> None:
    path = tmp_path / "out.pcap"
    record = TrafficRecorder(path)
    teller = Teller(record)
    for turn in range(60):
        teller.do(turn % 2, True, bytes([turn]) * 100_000)
    assert record.failure is not None
    assert "File too large" in record.failure
    teller.do(0, True, None)
    record.close()
    record.close()
    assert record.failure == f"{path}: can't be written: File too large"
    assert 1_000_000 < path.stat().st_size <= small_files
    reading = read_streams([path])
    assert reading.problems == []  # whole packets only
    for told in teller.told:
        content = reading[text(told.client, told.server)].content
        assert bytes(told.bytes[True]).startswith(content)


def test_what_fails_at_the_very_end_is_told(tmp_path: Path, small_files: int) -> None:
    with TrafficRecorder(tmp_path / "out.pcap") as record:
        teller = Teller(record)
        teller.do(0, True, bytes(2_200_000))
        teller.do(0, True, bytes(700_000))
        assert record.failure is None
    assert record.failure is not None


def test_ctrl_c_leaves_a_whole_file(tmp_path: Path, nothing_left: None) -> None:
    def press(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def talk(path: Path, seconds: float, told: list[Told]) -> None:
        with TrafficRecorder(path) as record:
            teller = Teller(record, told)
            end, turn = time.monotonic() + 10, 0
            signal.setitimer(signal.ITIMER_REAL, seconds)
            try:
                while time.monotonic() < end:
                    turn += 1
                    teller.do(turn % 2, turn % 3 == 0, bytes([turn % 256]) * (turn * 997 % 200_000))
            finally:  # as the loop does it
                for number in list(teller.open):
                    teller.do(number, False, None)

    before = signal.signal(signal.SIGALRM, press)
    gc.disable()  # hypothesis listens to the collector, and Python drops what is raised there
    try:
        for attempt in range(40):
            path = tmp_path / f"{attempt}.pcap"
            every: list[Told] = []
            with pytest.raises(KeyboardInterrupt):
                talk(path, 0.001 * (attempt + 1), every)
            reading = read_streams([path])
            path.unlink()
            assert reading.problems == []
            for told in every:
                there, back = (told.client, told.server), (told.server, told.client)
                for from_client, ends in ((True, there), (False, back)):
                    for stream in reading.streams.get(text(*ends), []):
                        assert stream.holes == stream.conflicts == []
                        assert bytes(told.bytes[from_client]).startswith(stream.content)
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- peers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_connection_of_two_peers_is_recorded_once(host: str, tmp_path: Path) -> None:
    path = tmp_path / "out.pcap"
    table = to_tensor_table(
        [
            TensorMeta(dtype="uint8", sizes=(n,), strides=(1,), storage=i, storage_numel=n)
            for i, n in enumerate((3, 2_000_000))
        ]
    )
    tensors = (b"abc", bytes(range(250)) * 8000)
    with TrafficRecorder(path) as record, Loop(tap=record) as loop:
        one, two = Peer(loop, "one", 1, host=host), Peer(loop, "two", 2, host=host)
        one.addresses["two"] = two.address
        ask = RpcMessage(int(MessageType.PYTHON_CALL), 0, b"\0\x80\x02N.", table)
        give = RpcMessage(int(MessageType.PYTHON_RET), 0, b"\x80\x02N.", NO_TENSORS)
        for _ in range(2):
            one.send("two", ask, tensors)
            request = loop.wait_until(lambda event: isinstance(event, RequestArrived), SECONDS)
            assert isinstance(request, RequestArrived)
            assert two.answer(request, give)
            assert loop.wait_until(lambda event: isinstance(event, ResponseArrived), SECONDS)
            one.forget("two")  # so that the next request opens other connections
            one.addresses["two"] = two.address
    assert record._connections == {}  # nothing is kept of what has ended
    reading = read_streams([path])
    assert len(reading.connections) == 6
    with open_run(str(path)) as opened:
        assert opened.session.problems == ()
        assert opened.session.findings == ()
        assert [pipe.client_name for pipe in opened.session.pipes] == ["one", "one"]
        messages = opened.messages
        assert [m.rpc.message.type for m in messages] == [ask.type, give.type] * 2
        for message in messages[::2]:
            extents = [tensor.extent for tensor in message.tp.tensors]
            assert tuple(opened.read(extent) for extent in extents if extent is not None) == tensors


# --- live --------------------------------------------------------------------------------------------------


class Sent(Struct, frozen=True, order=True):
    """A message of a user, as it was sent or as it was decoded."""

    client: str
    server: str
    from_client: bool
    message_id: int
    type: int
    payload: bytes
    table: bytes
    tensors: tuple[bytes, ...]

    @classmethod
    def of(cls, ends: tuple[str, str, bool], message: RpcMessage, tensors: tuple[bytes, ...]) -> Sent:
        return cls(*ends, message.id, message.type, message.payload, message.tensor_table, tensors)


class Played:
    """A played worker that sends to worker1, answers what it asks, and keeps all that was said."""

    ANSWERS: ClassVar = {
        int(MessageType.BACKWARD_AUTOGRAD_REQ): int(MessageType.BACKWARD_AUTOGRAD_RESP),
        int(MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ): int(MessageType.CLEANUP_AUTOGRAD_CONTEXT_RESP),
    }

    def __init__(self, loop: Loop, peer: Peer) -> None:
        self.loop = loop
        self.peer = peer
        self.talk: list[Sent] = []
        self.open: set[int] = set()

    def send(self, message: RpcMessage, tensors: tuple[bytes, ...]) -> None:
        number = self.peer.send("worker1", message, tensors, timeout_s=SECONDS)
        self.open.add(number)
        self.talk.append(Sent.of(("worker0", "worker1", True), replace(message, id=number), tensors))

    def settle(self) -> list[ResponseArrived]:
        """Waits until everything is answered and the worker asks nothing any more."""
        answers = []
        while events := self.loop.wait(SECONDS if self.open else 0.3):
            for event in events:
                if isinstance(event, ResponseArrived):
                    self.open.remove(event.message.id)
                    self.talk.append(Sent.of(("worker0", "worker1", False), event.message, event.tensors))
                    answers.append(event)
                    continue
                assert isinstance(event, RequestArrived)
                self.talk.append(Sent.of(("worker1", "worker0", True), event.message, event.tensors))
                given = RpcMessage(self.ANSWERS[event.message.type], event.message.id, b"", NO_TENSORS)
                assert self.peer.answer(event, given)
                self.talk.append(Sent.of(("worker1", "worker0", False), given, ()))
        assert not self.open
        return answers


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_replayed_backward_pass_is_decoded_from_its_recording(
    group: LiveGroup, repo: Path, tmp_path: Path, host: str
) -> None:
    path = tmp_path / "out.pcap"
    group.start("worker1", 1)
    with (
        TrafficRecorder(path) as record,
        StoreClient("127.0.0.1", group.port, prefix=PREFIX, timeout_s=SECONDS, tap=record) as store,
        Loop(tap=record) as loop,
        captured(str(repo / "captures" / "basic_chain.pcap")) as messages,
    ):
        ours = [m for m in messages if m.client == "worker0"]
        then = {m.message.id: m.message for m in ours if not m.from_client}
        peer = Peer(loop, "worker0", 0, host=host)
        played = Played(loop, peer)
        with members(store, [peer]):
            live_ids: dict[int, int] = {}
            for m in [m for m in ours if m.from_client]:
                if m.message.type == MessageType.FORWARD_AUTOGRAD_REQ:
                    played.send(m.message, m.tensors)
                    answer = played.settle()[-1]
                    live_ids[autograd_message_id(then[m.message.id])] = autograd_message_id(answer.message)
                elif m.message.type == MessageType.BACKWARD_AUTOGRAD_REQ:
                    played.send(remapped(m, live_ids), m.tensors)  # the pass needs all of them at once
                else:
                    played.settle()
                    played.send(m.message, m.tensors)
            played.settle()
        group.workers["worker1"].leave()
    assert len(played.talk) == 16
    with open_run(str(path)) as opened:
        session = opened.session
        assert session.problems == ()
        assert session.findings == ()
        assert {(w.name, w.id, len(w.addresses)) for w in session.workers} == {
            ("worker0", 0, 1),
            ("worker1", 1, 1),
        }
        found = []
        control: set[tuple[int, int]] = set()
        for message in opened.messages:
            pipe = message.tp.pipe.number
            key = pipe, message.rpc.message.id
            if message.facts.control:
                control.add(key)
            if key not in control:
                tensors = tuple(opened.read(t.extent) for t in message.tp.tensors if t.extent is not None)
                ends = session.clients[pipe], session.servers[pipe], message.tp.from_client
                found.append(Sent.of(ends, message.rpc.message, tensors))
    assert sorted(found) == sorted(played.talk)


def test_a_recording_holds_every_session_of_a_replay(repo: Path, tmp_path: Path, nothing_left: None) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "out.pcap"
    options = ReplayOptions(
        workers=WorkerOptions(path=(str(repo / "captures"),), imports=("basic_chain",)), repeat=2, record=path
    )
    with open_run(str(repo / "captures" / "basic_chain.pcap")) as opened:
        made = plan(opened, PlanOptions(trust=True))
        outcome = replay(opened, made, options)
    assert outcome.recording == TrafficRecording(path=path, failure=None)
    with open_run(str(path)) as opened:
        session = opened.session
        assert session.problems == ()
        assert {(w.job, w.name, w.id) for w in session.workers} == {
            (job, f"worker{number}", number) for job in range(2) for number in range(2)
        }
        calls = RunModel(session, opened.messages).exchanges.calls
    requests = Counter((call.job, call.caller) for call in calls if not call.control)
    assert requests == {
        (job, worker): count
        for job, (played,) in enumerate(outcome.runs)
        for worker, count in (("worker0", played.planned.count("send")), ("worker1", len(played.inbound)))
    }
