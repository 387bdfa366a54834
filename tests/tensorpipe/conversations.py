"""Whole TensorPipe conversations as TCP segments: what two workers would have written, cut up anyhow.

A `Network` records who wrote what on which connection. `PipeTalk` writes what a pipe's two ends say:

    network = Network()
    pipe = PipeTalk(network, channel="mpt_uv")      # hello, brochure, answer, extra connections, lanes
    pipe.send(Said(payload=b"x", tensors=(b"abc",)))              # a request
    pipe.send(Said(type=0x203, tensors=(b"abc",)), from_client=False)
    outcome = play(network, sizes=(3, 1, 7), holes=[Hole(0, True, 40, 50)])
    outcome.said() == pipe.expected()

`play` turns that into segments (SYNs, data, acknowledgments, FINs), feeds them through `Tcp` and `Demux`, and
keeps what came out. Connections are numbered as they are opened; a pipe begins with its descriptor's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import cycle

from msgspec import Struct, field
from msgspec.structs import replace

from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.tcp.connections import Tcp
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.tcp.segment import Endpoint, Flow
from rpcinspect.tcp.stream import Stream
from rpcinspect.tensorpipe.control import (
    frame,
    write_brochure,
    write_brochure_answer,
    write_descriptor,
    write_first_frame,
    write_mpt_hello,
)
from rpcinspect.tensorpipe.control_types import (
    Brochure,
    BrochureAnswer,
    CmaDescriptor,
    ControlLayout,
    LaneAdvertisement,
    MptClientHello,
    MptServerHello,
    RequestedConnection,
    SpontaneousConnection,
    TpDescriptor,
    TpDevice,
    TpPayload,
    TpTensorDescriptor,
)
from rpcinspect.tensorpipe.demux import Demux
from rpcinspect.tensorpipe.nop import write_int, write_structure
from rpcinspect.tensorpipe.records import TpMessage, Visibility
from tests.builders import ACK, FIN, RST, SYN, Captured, Segment, packet, segment_block

CPU, CUDA = TpDevice("cpu", 0), TpDevice("cuda", 0)
LANES = 16
CHUNK = 1 << 20
NO_TENSORS = b"\x80\x02ctorch.jit._pickle\nbuild_tensorlist\nq\x00(](etR."


def endpoint(text: str) -> Endpoint:
    """From `ip:port` or `[v6]:port`."""
    host, _, port = text.rpartition(":")
    return Endpoint(host.strip("[]"), int(port))


# --- what is written ---


class Write(Struct, frozen=True):
    """Bytes that one end of a connection writes at once."""

    connection: int
    from_client: bool
    data: bytes


class Network:
    """Connections, and everything written on them, in order."""

    def __init__(self) -> None:
        self.flows: list[Flow] = []
        """Of each connection, from its client."""
        self.writes: list[Write] = []
        self._port = 40_000

    def connect(self, client_host: str, server: str) -> int:
        """The number of a new connection from the next free port."""
        self._port += 1
        self.flows.append(Flow(Endpoint(client_host, self._port), endpoint(server)))
        return len(self.flows) - 1

    def write(self, connection: int, data: bytes, *, from_client: bool = True) -> None:
        """One end writes."""
        self.writes.append(Write(connection, from_client, data))

    def written(self, connection: int, *, from_client: bool = True) -> bytes:
        """All that one end wrote."""
        return b"".join(
            w.data for w in self.writes if w.connection == connection and w.from_client == from_client
        )


class Said(Struct, frozen=True):
    """An RPC message as TensorPipe carries it."""

    type: int = 0x102
    id: int = 0
    payload: bytes = b"payload"
    table: bytes = NO_TENSORS
    tensors: tuple[bytes, ...] = ()
    device: TpDevice = CPU
    payloads: tuple[bytes, ...] | None = None
    """Instead of the usual four."""

    @property
    def all_payloads(self) -> tuple[bytes, ...]:
        if self.payloads is not None:
            return self.payloads
        kind, identifier = self.type.to_bytes(4, "little"), self.id.to_bytes(8, "little")
        return kind, identifier, self.payload, self.table


def descriptor_of(said: Said, layout: ControlLayout, channel: str) -> bytes:
    """The body of the descriptor's frame."""
    old = layout is ControlLayout.V1_8
    tensors = tuple(
        TpTensorDescriptor(
            length=len(data),
            source_device=said.device if not old else replace(said.device, index=-1),
            target_device=None if old else said.device,
            channel=channel if old else None,
            channel_descriptor=b"" if old else None,
        )
        for data in said.tensors
    )
    if old:  # what `UNKNOWN_INDEX` says of cuda; cpu has index 0 there too
        tensors = tuple(
            replace(t, source_device=CPU) if t.source_device.type == "cpu" else t for t in tensors
        )
    payloads = tuple(TpPayload(len(payload)) for payload in said.all_payloads)
    return write_descriptor(TpDescriptor(b"", payloads, tensors), layout)


def message_frames(said: Said, layout: ControlLayout = ControlLayout.V1_9, channel: str = "basic") -> bytes:
    """Descriptor and payloads."""
    return frame(descriptor_of(said, layout, channel)) + b"".join(map(frame, said.all_payloads))


def answer_of(
    *,
    transport: str = "uv",
    address: str = "10.0.0.2:5000",
    descriptor: int | None = None,
    reply: int = 0,
    channels: Sequence[tuple[str, tuple[int, ...]]] = (("basic", (1,)),),
    pairs: Sequence[tuple[tuple[TpDevice, TpDevice], str]] | None = None,
    layout: ControlLayout = ControlLayout.V1_9,
) -> bytes:
    """The body of a brochure answer."""
    old = layout is ControlLayout.V1_8
    transport_ids = ((0, descriptor),) if descriptor is not None else ()
    devices = tuple((name, ((CPU, "any"),)) for name, _ in channels)
    if pairs is None:
        pairs = [((CPU, CPU), name) for name, _ in channels[:1]]
    return write_brochure_answer(
        BrochureAnswer(
            transport=transport,
            address=address,
            transport_registration_ids=transport_ids if old else (*transport_ids, (1, reply)),
            transport_domain_descriptor=f"{transport}:*",
            channel_registration_ids=tuple(channels),
            channel_device_descriptors=devices,
            channel_for_device_pair=() if old else tuple(pairs),
        ),
        layout,
    )


CONNECTIONS = {"basic": 1, "mpt_uv": 1, "cma": 2, "cuda_basic": 2}


def write_cma_descriptor(value: CmaDescriptor) -> bytes:
    """What cma's sender writes of a tensor."""
    return write_structure(write_int(value.pid), write_int(value.ptr))


class PipeTalk:
    """Both ends of one pipe."""

    def __init__(
        self,
        network: Network,
        *,
        name: str = "worker0",
        client: str = "10.0.0.1",
        server: str = "10.0.0.2:5000",
        channel: str = "basic",
        layout: ControlLayout = ControlLayout.V1_9,
        first_id: int = 0,
        lane_id: int = 0,
        address: str | None = None,
        transport: str = "uv",
        moved: bool = False,
        opened_in_sight: bool = True,
        early: bool = False,
    ) -> None:
        """`address`: what the answer advertises, if it is not where the server really listens. `moved`:
        messages go to a connection of their own (key 0). `early`: extra connections come before the answer.
        """
        self.network, self.channel, self.layout = network, channel, layout
        self.name, self.client, self.server = name, client, server
        self.lane_id = lane_id
        self.lanes: list[int] = []
        self.sent: dict[bool, list[Said]] = {True: [], False: []}
        identifier = first_id
        descriptor = reply = -1
        if moved or not opened_in_sight:
            descriptor, identifier = identifier, identifier + 1
        if layout is ControlLayout.V1_9:
            reply, identifier = identifier, identifier + 1
        ids = tuple(range(identifier, identifier + CONNECTIONS[channel]))
        self.answer = answer_of(
            transport=transport,
            address=address or server,
            descriptor=descriptor if descriptor >= 0 else None,
            reply=reply,
            channels=((channel, ids),),
            pairs=[((CUDA, CUDA) if channel == "cuda_basic" else (CPU, CPU), channel)],
            layout=layout,
        )
        if opened_in_sight:
            self.opening = self.descriptor = network.connect(client, server)
            self._open_in_sight(early=early)
        if descriptor >= 0:
            self.descriptor = self._requested(descriptor)
        if reply >= 0:
            self._requested(reply)
        self.extra = [self._requested(n) for n in ids]
        self._open_channel()
        if opened_in_sight and early:
            network.write(self.opening, frame(self.answer), from_client=False)

    def _open_in_sight(self, *, early: bool) -> None:
        cuda = self.channel == "cuda_basic"
        domains = (("uv", "uv:*"),)
        device = CPU if not cuda or self.layout is ControlLayout.V1_9 else replace(CUDA, index=-1)
        brochure = Brochure(domains, ((self.channel, ((device, "any"),)),))
        hello = write_first_frame(SpontaneousConnection(self.name))
        self.network.write(self.opening, frame(hello))
        self.network.write(self.opening, frame(write_brochure(brochure, self.layout)))
        if not early:
            self.network.write(self.opening, frame(self.answer), from_client=False)

    def _requested(self, identifier: int) -> int:
        connection = self.network.connect(self.client, self.server)
        self.network.write(connection, frame(write_first_frame(RequestedConnection(identifier))))
        return connection

    def _open_channel(self) -> None:
        if self.channel == "mpt_uv":
            host = endpoint(self.server).host
            host = f"[{host}]" if ":" in host else host
            lanes = tuple(LaneAdvertisement(f"{host}:{6000 + i}", self.lane_id + i) for i in range(LANES))
            self.network.write(
                self.extra[0], frame(write_mpt_hello(MptServerHello(lanes))), from_client=False
            )
            for lane in lanes:
                connection = self.network.connect(self.client, lane.address)
                hello = write_mpt_hello(MptClientHello(lane.registration_id))
                self.network.write(connection, frame(hello))
                self.lanes.append(connection)

    def send(self, said: Said, *, from_client: bool = True, tensors_first: bool = False) -> Said:
        """A message, its tensors before or after it."""
        if self.channel == "cuda_basic":
            said = replace(said, device=CUDA)
        self.sent[from_client].append(said)
        if tensors_first:
            self._send_tensors(said, from_client=from_client)
        frames = message_frames(said, self.layout, self.channel)
        self.network.write(self.descriptor, frames, from_client=from_client)
        if not tensors_first:
            self._send_tensors(said, from_client=from_client)
        return said

    def _send_tensors(self, said: Said, *, from_client: bool) -> None:
        for data in said.tensors:
            self.send_tensor(data, from_client=from_client)

    def send_tensor(self, data: bytes, *, from_client: bool = True) -> None:
        """What the channel writes for one tensor."""
        write = self.network.write
        if not data and self.layout is ControlLayout.V1_9:
            return
        if self.channel == "basic":
            write(self.extra[0], frame(data), from_client=from_client)
        elif self.channel == "mpt_uv":
            for i, lane in enumerate(self.lanes):
                part = data[len(data) * i // LANES : len(data) * (i + 1) // LANES]
                write(lane, frame(part), from_client=from_client)
        elif self.channel == "cma":
            where = write_cma_descriptor(CmaDescriptor(4711, 0x55C6473A8FC0))
            write(self.extra[0], frame(where), from_client=from_client)
            write(self.extra[1], frame(b""), from_client=not from_client)
        else:
            for at in range(0, len(data), CHUNK):
                write(self.extra[1], frame(b""), from_client=from_client)
                write(self.extra[0], frame(data[at : at + CHUNK]), from_client=from_client)

    def expected(self) -> dict[tuple[str, bool], list[Heard]]:
        """What a perfect reading gives, by descriptor connection and direction."""
        flow = str(self.network.flows[self.descriptor])
        return {
            (flow, side): [Heard(said.all_payloads, said.tensors) for said in messages]
            for side, messages in self.sent.items()
            if messages
        }


# --- how it travels ---


class Hole(Struct, frozen=True):
    """Bytes [start, end) of one direction that were not captured."""

    connection: int
    from_client: bool
    start: int
    end: int


class Heard(Struct, frozen=True):
    """Payloads and tensors as they came out; a tensor that is not certain is the name of its placement."""

    payloads: tuple[bytes, ...]
    tensors: tuple[bytes | str, ...]


class Outcome(Struct):
    """Everything that came out."""

    tcp: Tcp
    demux: Demux
    bytes: CaptureBytes
    messages: list[TpMessage] = field(default_factory=list)

    @property
    def reasons(self) -> list[str]:
        """Of all problems."""
        return [problem.reason for problem in self.demux.registry.problems]

    def heard(self, message: TpMessage) -> Heard:
        """One message, its tensors read."""
        tensors = [
            t.placement.value if t.extent is None else t.extent.read(self.bytes) for t in message.tensors
        ]
        return Heard(message.payloads, tuple(tensors))

    def said(self) -> dict[tuple[str, bool], list[Heard]]:
        """Messages of each direction in the order of its stream."""
        out: dict[tuple[str, bool], list[Heard]] = defaultdict(list)
        for message in sorted(self.messages, key=lambda m: m.offset):
            out[str(message.pipe.flow), message.from_client].append(self.heard(message))
        return dict(out)


def segments(
    network: Network,
    *,
    sizes: Sequence[int] = (1448,),
    holes: Iterable[Hole] = (),
    syn: bool = True,
    end: int = FIN,
    writes: Sequence[Write] | None = None,
) -> list[Segment]:
    """The segments of all connections; `sizes` are taken in turn, `end` is the flag of the last ones.

    Flow 2n is connection n from its client, 2n + 1 the other direction.
    """
    lost: dict[tuple[int, bool], list[Hole]] = defaultdict(list)
    for hole in holes:
        lost[hole.connection, hole.from_client].append(hole)
    sent: dict[tuple[int, bool], int] = defaultdict(int)
    opened: set[int] = set()
    out: list[Segment] = []
    size = cycle(sizes)
    order = network.writes if writes is None else writes

    def isn(connection: int, from_client: bool) -> int:
        return 0xFFFF_FFF0 + connection * 70_000 if from_client else 70_000 + connection * 50_000

    def one(connection: int, from_client: bool, payload: bytes = b"", flags: int = ACK) -> Segment:
        return Segment(
            flow=2 * connection + (not from_client),
            sequence=isn(connection, from_client) + 1 + sent[connection, from_client],
            acknowledgment=isn(connection, not from_client) + 1 + sent[connection, not from_client],
            payload=payload,
            flags=flags,
        )

    for write in order:
        key = number, side = write.connection, write.from_client
        if syn and number not in opened:
            first = replace(one(number, True, flags=SYN), sequence=isn(number, True))
            second = replace(one(number, False, flags=SYN | ACK), sequence=isn(number, False))
            out += [replace(first, acknowledgment=0), second]
        opened.add(number)
        data, at = write.data, 0
        while at < len(data):
            step = min(next(size), len(data) - at)
            start = sent[key]
            edges = {start, start + step}
            for hole in lost[key]:
                edges |= {edge for edge in (hole.start, hole.end) if start < edge < start + step}
            for low, high in zip(sorted(edges), sorted(edges)[1:], strict=False):
                if not any(hole.start <= low < hole.end for hole in lost[key]):
                    piece = data[at + low - start : at + high - start]
                    out.append(one(number, side, piece))
                sent[key] += high - low
            at += step
        out.append(one(number, not side))
    if end:
        for number in sorted(opened):
            sides = (True, False) if end == FIN else (True,)
            out += [one(number, side, flags=end | ACK if end != RST else RST) for side in sides]
    return out


def packets(network: Network, rows: Sequence[Segment], *, step_ns: int = 1000) -> list[Captured]:
    """The segments as Ethernet frames."""
    out = []
    for number, row in enumerate(rows, 1):
        flow = network.flows[row.flow // 2]
        flow = flow.reversed if row.flow % 2 else flow
        data = packet(
            row.payload,
            str(flow.source),
            str(flow.destination),
            sequence=row.sequence,
            acknowledgment=row.acknowledgment,
            flags=row.flags,
        )
        out.append(Captured(data, number * step_ns))
    return out


class Player:
    """A TCP stage and a demultiplexer, fed block by block."""

    def __init__(
        self, network: Network, *, patience_ns: int | None = None, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        flows = [one for flow in network.flows for one in (flow, flow.reversed)]
        self._window = b""
        source = CaptureBytes(self._pread)
        self.outcome = Outcome(Tcp(source, flows, patience_ns), Demux(limits), source)
        self._packets = 0
        self._windows: list[bytes] = []
        self._base = 0

    def _pread(self, capture: int, offset: int, length: int) -> bytes:
        if self._windows:
            self._window += b"".join(self._windows)
            self._windows = []
        data = self._window[offset : offset + length]
        assert len(data) == length, "the stage reads what was not captured"
        return data

    def feed(self, rows: Sequence[Segment]) -> list[TpMessage]:
        """The next block."""
        block = segment_block(rows, window_offset=self._base, first_number=self._packets + 1)
        self._packets += len(rows)
        self._windows.append(block.window)
        self._base += len(block.window)
        found = self.outcome.demux.feed(self.outcome.tcp.feed(block))
        self.outcome.messages += found
        return found

    def finish(self) -> Outcome:
        """The end of the capture."""
        outcome = self.outcome
        outcome.messages += outcome.demux.feed(list(outcome.tcp.finish()))
        outcome.messages += outcome.demux.finish()
        return outcome


def play(
    network: Network,
    *,
    sizes: Sequence[int] = (1448,),
    holes: Iterable[Hole] = (),
    syn: bool = True,
    end: int = FIN,
    writes: Sequence[Write] | None = None,
    rows: Sequence[Segment] | None = None,
    block: int = 100,
    patience_ns: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Outcome:
    """The whole way of a conversation; `block` segments come at once, `rows` stand in for its segments."""
    player = Player(network, patience_ns=patience_ns, limits=limits)
    if rows is None:
        rows = segments(network, sizes=sizes, holes=holes, syn=syn, end=end, writes=writes)
    for at in range(0, len(rows), block):
        player.feed(rows[at : at + block])
    return player.finish()


def stream_of(
    data: bytes, *, sizes: Sequence[int] = (1448,), holes: Sequence[tuple[int, int]] = ()
) -> Stream:
    """One whole stream with these bytes, and with holes."""
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:5000")
    network.write(number, data)
    player = Player(network)
    rows = segments(network, sizes=sizes, holes=[Hole(number, True, a, b) for a, b in holes])
    player.outcome.tcp.feed(segment_block(rows))
    list(player.outcome.tcp.finish())
    window = segment_block(rows).window
    player._window, player._windows = bytes(1000) + window, []
    return player.outcome.tcp.connections[0].forward


# --- what most tests say and ask ---


def chat(pipe: PipeTalk) -> None:
    """Requests and answers with and without tensors, an empty payload, an empty tensor."""
    pipe.send(Said(id=1, payload=b"first"))
    pipe.send(Said(id=2, payload=b"", tensors=(b"abc", b"", b"0123456789" * 7)))
    pipe.send(Said(type=0x203, id=2, tensors=(b"answer",)), from_client=False, tensors_first=True)
    pipe.send(Said(id=3, tensors=(b"x" * 40,)), tensors_first=True)
    pipe.send(Said(type=0x203, id=1, payload=b"last"), from_client=False)


def hello(name: str = "worker0") -> bytes:
    return frame(write_first_frame(SpontaneousConnection(name)))


def requested(identifier: int) -> bytes:
    return frame(write_first_frame(RequestedConnection(identifier)))


def only(outcome: Outcome) -> Visibility:
    [state] = outcome.demux.registry.pipes
    return state.pipe.visible
