"""Captures that grow in one dimension: whatever costs the square of one shows when it is twice as large.

In: how many of something. Out: the bytes of a capture. Each is made to meet one list that could be walked for
each message: requests that wait, contexts, forks, holes, pieces, ports. `python -m tests.growing` prints the
table in docs/robustness.md.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from rpcinspect.rpc.command import (
    Command,
    PropagateGradientsReq,
    PythonCall,
    PythonRemoteCall,
    PythonResp,
    PythonRRefFetchCall,
    PythonRRefFetchRet,
    RemoteRet,
    RRefAck,
    RRefForkRequest,
    RRefUserDelete,
)
from rpcinspect.rpc.command_codec import message_type_of, to_payload
from rpcinspect.rpc.envelope import (
    AutogradMetadata,
    Envelope,
    ProfilerConfig,
    RpcWithAutograd,
    RpcWithProfilingReq,
    RpcWithProfilingResp,
    wrap,
)
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.profiling import LegacyEvent
from rpcinspect.rpc.tensor import TensorMeta, to_tensor_table
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.rpclog.header import LoggedFailure, LoggedMessage, LoggedStorage
from rpcinspect.rpclog.write import FIRST_LINE, failure_line, message_line
from tests.builders import ACK, SYN, Captured, ethernet, ipv4_fragments, packet, pcap_file, tcp
from tests.cli.runner import ask
from tests.replayer.planning.pickled import name, request, rref
from tests.replayer.talks import NONE
from tests.session.records import gradient as table_of
from tests.tensorpipe.conversations import (
    Hole,
    Network,
    PipeTalk,
    Said,
    hello,
    message_frames,
    packets,
    segments,
)

BOUND = 2.3
"""The most that twice the size may cost."""
MILLISECOND, SECOND = 10**6, 10**9


class Growth(Struct, frozen=True):
    """One dimension."""

    what: str
    made: Callable[[int], bytes]
    size: int
    """For a test; the table is of ten times that."""
    words: tuple[str, ...] = ("decode", "--format", "jsonl")
    """What is asked."""


# --- logs ---


def udf(function: str = "f", args: bytes = b")") -> bytes:
    return (
        b"\x80\x04ctorch.distributed.rpc.internal\nPythonUDF\ncapp\n%b\n" % function.encode()
        + args
        + (b"}\x87\x81.")
    )


def failing(text: bytes) -> PythonResp:
    kind = b"ctorch.distributed.rpc.internal\nRemoteException\n"
    size = len(text).to_bytes(4, "little")
    return PythonResp(b"\x80\x04" + kind + b"X" + size + text + b"cbuiltins\nValueError\n\x86\x81.")


CALL, ANSWER = PythonCall(udf(), False), PythonResp(b"\x80\x04N.")
ONE_TENSOR = table_of(1)


def in_context(context: int, edge: int) -> tuple[Envelope, ...]:
    return (
        RpcWithAutograd(
            message_type=int(MessageType.FORWARD_AUTOGRAD_REQ),
            autograd_metadata=AutogradMetadata(context, edge),
            from_worker_id=0,
            device_map={},
            wrapped_message_type=int(MessageType.PYTHON_CALL),
        ),
    )


def gradient(context: int, edge: int) -> PropagateGradientsReq:
    return PropagateGradientsReq(AutogradMetadata(context, edge), (0,), False)


class Log:
    """Messages one after the other, a millisecond apart."""

    def __init__(self) -> None:
        self.parts = [FIRST_LINE]
        self.now = SECOND

    def say(
        self,
        src: str,
        dst: str,
        command: Command,
        id: int,
        *,
        request: bool = True,
        envelopes: Sequence[Envelope] = (),
        tensors: int = 0,
        after: int = MILLISECOND,
    ) -> None:
        self.now += after
        payload = to_payload(command)
        kind = envelopes[0].message_type if envelopes else message_type_of(command)
        payload = wrap(envelopes, payload) if envelopes else payload
        its_table = (ONE_TENSOR if tensors == 1 else table_of(tensors)) if tensors else b""
        said = LoggedMessage(
            time_ns=self.now,
            end_ns=self.now + 1000,
            src=src,
            dst=dst,
            type=kind,
            id=id,
            request=request,
            payload=len(payload),
            table=len(its_table),
            storages=tuple(LoggedStorage(length=4) for _ in range(tensors)),
        )
        self.parts += [message_line(said), payload, its_table, b"\1\1\1\1" * tensors, b"\n"]

    def exchange(self, src: str, dst: str, command: Command, answer: Command, id: int) -> None:
        self.say(src, dst, command, id)
        self.say(dst, src, answer, id, request=False)

    def silence(self) -> None:
        """The log goes on for long enough that all that is open is missed."""
        self.now += 1000 * SECOND
        self.exchange("z", "zz", CALL, ANSWER, 0)

    def whole(self) -> bytes:
        return b"".join(self.parts)


def chain(count: int) -> bytes:
    log = Log()
    for n in range(count):
        log.say(f"w{n}", f"w{n + 1}", CALL, n)
    log.silence()
    return log.whole()


def circle(count: int) -> bytes:
    log = Log()
    for n in range(count):
        log.say(f"w{n}", f"w{(n + 1) % count}", CALL, n)
    log.silence()
    return log.whole()


def hub(count: int) -> bytes:
    log = Log()
    for n in range(count):
        log.say(f"a{n}", "hub", CALL, n)
        log.say("hub", f"b{n}", CALL, n)
    log.silence()
    return log.whole()


def open_calls(count: int) -> bytes:
    """A worker serves all of them when it makes as many calls itself."""
    log = Log()
    for n in range(count):
        log.say("a", "b", CALL, n)
    for n in range(count):
        log.exchange("b", "c", CALL, ANSWER, n)
    for n in range(count):
        log.say("b", "a", ANSWER, n, request=False)
    return log.whole()


def telling_calls(count: int) -> bytes:
    """The same with values of their own and one RRef, which is fetched for each; every fork is given back."""
    log, made = Log(), [request(name("app", "f"), rref(7, fork=n % 250), n) for n in range(count)]
    for n, data in enumerate(made):
        log.say("b0", "b", PythonCall(data, False), n)
    fetch, answer = PythonRRefFetchCall(0, GloballyUniqueId(0, 7)), PythonRRefFetchRet((), NONE)
    for n in range(count):
        log.exchange("b", "c", PythonCall(request(name("app", "g"), n), False), ANSWER, n)
        log.exchange("b", "b0", fetch, answer, n)
    for n in range(count):
        log.say("b0", "b", ANSWER, n, request=False)
    return log.whole()


def deep_calls(count: int) -> bytes:
    log, error = Log(), failing(b"On WorkerInfo(id=1, name=w):\nValueError('x')\n")
    for n in range(count):
        log.say(f"w{n}", f"w{n + 1}", CALL, n)
    for n in reversed(range(count)):
        log.say(f"w{n + 1}", f"w{n}", error, n, request=False)
    return log.whole()


def passes_without_answer(count: int) -> bytes:
    """As many contexts, each with an edge that got no gradient, and a pass that waits for it."""
    log = Log()
    for n in range(count):
        log.say("a", f"b{n}", CALL, 3 * n, envelopes=in_context(n, 3 * n), tensors=1)
        log.say(f"b{n}", "c", CALL, 3 * n + 1, envelopes=in_context(n, 3 * n + 1), tensors=1)
        log.say("a", f"b{n}", gradient(n, 3 * n + 2), 3 * n + 2, tensors=1)
    log.silence()
    return log.whole()


def gradients_of_a_context(count: int) -> bytes:
    log = Log()
    for n in range(count):
        log.say("a", "b", gradient(5, n), n, tensors=1)
    for n in range(count):
        log.say("b", "c", gradient(5, count + n), count + n, tensors=1)
    return log.whole()


def steps_meanwhile(count: int) -> bytes:
    """Every step of an optimizer comes between forward and gradient of every context."""
    step = udf("f", b"(K\1K\1t").replace(
        b"capp\nf\n", b"ctorch.distributed.optim.optimizer\n_local_optimizer_step\n"
    )
    log = Log()
    for n in range(count):
        log.say("b", "a", CALL, n, envelopes=in_context(n + 10, n), tensors=1)
    for n in range(count):
        log.exchange("a", "b", PythonCall(step, False), ANSWER, count + n)
    for n in range(count):
        log.say("a", "b", gradient(n + 10, n), 2 * count + n, tensors=1)
    return log.whole()


def forks_of_an_rref(count: int) -> bytes:
    log, rref = Log(), GloballyUniqueId(0, 0)
    first = GloballyUniqueId(0, 1)
    call = PythonRemoteCall(
        tensors=(),
        serialized_py_obj=udf(),
        ret_rref_id=rref,
        ret_fork_id=first,
        is_async_execution=False,
    )
    log.exchange("a", "b", call, RemoteRet(rref, first), 0)
    for n in range(2, count):
        log.exchange("c", "b", RRefForkRequest(rref, GloballyUniqueId(0, n)), RRefAck(), n)
    return log.whole()


def housekeeping_of_unknown_forks(count: int) -> bytes:
    log = Log()
    for n in range(count):
        log.exchange("a", "b", CALL, ANSWER, n)
    for n in range(count):
        fork = GloballyUniqueId(0, n + 2)
        log.exchange("b", "c", RRefUserDelete(GloballyUniqueId(0, 1), fork), RRefAck(), count + n)
    return log.whole()


def given_up(count: int) -> bytes:
    """All of them have the same id."""
    log = Log()
    for n in range(count):
        log.say("a", "b", CALL, 7)
        ended = LoggedFailure(time_ns=log.now + 5, src="a", dst="b", id=7, reason="timeout", text=f"{n}")
        log.parts.append(failure_line(ended))
    return log.whole()


def allocations(count: int) -> bytes:
    """Events of a profiler: operators that are all open, and as many allocations."""

    def event(kind: int, handle: int, time_ns: int) -> LegacyEvent:
        return LegacyEvent(
            kind=kind,
            name=f"aten::op{handle}",
            thread_id=1,
            handle=float(handle),
            node_id=1,
            cpu_ns=time_ns,
            cpu_memory=8,
            cuda_recorded=False,
            cuda_memory=0,
            cuda_device=-1,
            cuda_us=-1.0,
            shapes=(),
        )

    events = [event(1, n, n) for n in range(count)]
    events += [event(3, 0, count + n) for n in range(count)]
    events += [event(2, n, 9 * count - n) for n in range(count)]
    asked = RpcWithProfilingReq(
        message_type=int(MessageType.RUN_WITH_PROFILING_REQ),
        profiler_config=ProfilerConfig(state=1, report_input_shapes=False, profile_memory=True),
        profiling_id=GloballyUniqueId(0, 1),
        wrapped_message_type=int(MessageType.PYTHON_CALL),
    )
    told = RpcWithProfilingResp(
        message_type=int(MessageType.RUN_WITH_PROFILING_RESP),
        profiling_id=GloballyUniqueId(0, 1),
        profiled_events=tuple(events),
        wrapped_message_type=int(MessageType.PYTHON_RET),
    )
    log = Log()
    log.say("a", "b", CALL, 0, envelopes=(asked,))
    log.say("b", "a", ANSWER, 0, request=False, envelopes=(told,))
    return log.whole()


def tensors_of_a_message(count: int) -> bytes:
    log = Log()
    log.say("a", "b", CALL, 0, tensors=count)
    log.say("b", "a", ANSWER, 0, request=False)
    return log.whole()


def damaged_records(count: int) -> bytes:
    log = Log()
    for n in range(count):
        log.parts.append(b'{"rpc":"message","time_ns":[]}\n')
        log.say("a", "b", CALL, n)
    return log.whole()


# --- packets ---


def written(network: Network, *, sizes: Sequence[int] = (1448,), holes: Sequence[Hole] = ()) -> bytes:
    return pcap_file(packets(network, segments(network, sizes=sizes, holes=holes)))


def holes(count: int) -> bytes:
    """Of the connection that carries the messages, between every two of them."""
    network = Network()
    talk = PipeTalk(network)
    for n in range(count):
        talk.send(Said(id=n, payload=b"p" * 100))
    size = len(message_frames(Said(payload=b"p" * 100)))
    start = len(network.written(talk.descriptor)) - count * size
    lost = [Hole(talk.descriptor, True, start + n * size, start + n * size + 40) for n in range(1, count, 2)]
    return written(network, sizes=(64,), holes=lost)


def views_of_a_storage(count: int, stride: int = 1) -> bytes:
    """A storage in as many segments as there are tensors that are views of it."""
    numel = 8 * stride * count
    metas = [
        TensorMeta(
            dtype="float32",
            sizes=(8,),
            strides=(stride,),
            storage_offset=8 * n,
            storage=0,
            storage_numel=numel,
        )
        for n in range(count)
    ]
    network = Network()
    said = Said(payload=to_payload(CALL), table=to_tensor_table(metas), tensors=(b"\1\2\3\4" * numel,))
    PipeTalk(network).send(said)
    return written(network, sizes=(32,))


def strided_views_of_a_storage(count: int) -> bytes:
    return views_of_a_storage(count, 2)


def second_copies(count: int) -> bytes:
    """Small segments behind a hole, and large ones over all of them."""
    out = [Captured(tcp_packet(999, b"", SYN))]
    out += [Captured(tcp_packet(2000 + 20 * n, b"a" * 10)) for n in range(count)]
    out += [Captured(tcp_packet(2000 + 1000 * n, b"a" * 3000)) for n in range(count // 50)]
    return pcap_file([*out, *some_messages()])


def tcp_packet(sequence: int, data: bytes, flags: int = ACK, source: str = "10.0.0.1:40000") -> bytes:
    return packet(data, source, "10.9.9.9:80", sequence=sequence, flags=flags)


def some_messages() -> list[Captured]:
    network = Network()
    PipeTalk(network).send(Said(id=1))
    return packets(network, segments(network))


def half_open(count: int) -> bytes:
    syns = [
        Captured(tcp_packet(77 * n, b"", SYN, f"10.{1 + n // 50_000}.3.4:{1024 + n % 50_000}"))
        for n in range(count)
    ]
    return pcap_file([*syns, *some_messages()])


def ports_used_again(count: int) -> bytes:
    out = []
    for n in range(count):
        first = n * 7_777_777 % (1 << 31)
        out += [Captured(tcp_packet(first, b"", SYN)), Captured(tcp_packet(first + 1, b"x" * 50))]
        out.append(Captured(tcp_packet(first + 51, b"", ACK | 1)))
    return pcap_file([*out, *some_messages()])


def pipes(count: int) -> bytes:
    network = Network()
    for n in range(count):
        network.write(network.connect(f"10.1.{n >> 8}.{n & 255}", "10.0.0.2:5000"), hello(f"w{n}"))
    PipeTalk(network).send(Said(id=1))
    return written(network)


def pipes_in_use(count: int) -> bytes:
    network = Network()
    for n in range(count):
        PipeTalk(network, name=f"w{n}", client=f"10.1.{n >> 8}.{n & 255}", first_id=4 * n).send(Said(id=1))
    return written(network)


def headless_pipes(count: int) -> bytes:
    """Between the same two hosts; any of their other connections may hold the tensors of each."""
    network = Network()
    talks = [PipeTalk(network, name=f"w{n}", first_id=4 * n) for n in range(count)]
    before = len(network.writes)
    for n, talk in enumerate(talks):
        talk.send(Said(id=1, tensors=(b"x" * (10 + n % 7),)))
    said = segments(network, syn=False, writes=network.writes[before:])
    return pcap_file(packets(network, said))


def store_keys(count: int) -> bytes:
    """All workers listen at one address."""

    def item(data: bytes) -> bytes:
        return len(data).to_bytes(8, "little") + data

    data = bytes.fromhex("00cef7853c")
    for n in range(count):
        data += b"\1" + item(b"/rpc_prefix_0/names/%d" % n) + item(b"w%d" % n)
        data += b"\1" + item(b"/rpc_prefix_0/addrs/w%d" % n) + item(b"0://uv://10.0.0.2:5000")
    network = Network()
    network.write(network.connect("10.0.0.1", "10.0.0.9:29500"), data)
    for n in range(count // 10):
        network.write(network.connect(f"10.1.{n >> 8}.{n & 255}", "10.0.0.2:5000"), hello(f"c{n}"))
    PipeTalk(network).send(Said(id=1))
    return written(network)


def fragments(count: int) -> bytes:
    body = b"z" * 64
    firsts = [
        ipv4_fragments(tcp(body, 40_000, 80), "10.0.0.1", "10.9.9.9", [24], number=n & 0xFFFF)[0]
        for n in range(count)
    ]
    return pcap_file([*[Captured(ethernet(first)) for first in firsts], *some_messages()])


LATENCY, RREFS, PROFILE = ("latency",), ("rrefs",), ("profile",)
GROWTHS = (
    Growth("calls that nobody answers, one after the other", chain, 300),
    Growth("the same in a circle", circle, 200),
    Growth("callers of one worker, and workers that it calls", hub, 150),
    Growth("open requests of a worker that makes calls", open_calls, 400, LATENCY),
    Growth("open requests that tell which calls are theirs", telling_calls, 200, LATENCY),
    Growth("calls in calls, an error that all of them pass on", deep_calls, 150),
    Growth("passes that wait for a gradient, a context each", passes_without_answer, 150),
    Growth("gradients of one context that came and went on", gradients_of_a_context, 500, LATENCY),
    Growth("steps of an optimizer in open contexts", steps_meanwhile, 250),
    Growth("forks of one RRef", forks_of_an_rref, 800, RREFS),
    Growth("deletes of RRefs that nobody has seen", housekeeping_of_unknown_forks, 500, LATENCY),
    Growth("calls of one id that were given up", given_up, 800),
    Growth("operators and allocations of a profile", allocations, 600, PROFILE),
    Growth("tensors of one message", tensors_of_a_message, 600),
    Growth("records of a log that can't be", damaged_records, 300),
    Growth("holes of a stream", holes, 300),
    Growth("views of one storage in as many segments", views_of_a_storage, 500),
    Growth("strided views", strided_views_of_a_storage, 400),
    Growth("small segments, second copies over all of them", second_copies, 500),
    Growth("half-open connections", half_open, 400),
    Growth("connections on the same ports", ports_used_again, 250),
    Growth("pipes of which only the beginning is there", pipes, 150),
    Growth(
        "pipes, each with a message, as they come",
        pipes_in_use,
        40,
        ("decode", "--stream", "--format", "jsonl"),
    ),
    Growth("pipes whose beginning is not there", headless_pipes, 260),
    Growth("workers at one address in the store", store_keys, 300),
    Growth("fragments that wait for others", fragments, 300),
)


def cost(path: Path, words: Sequence[str]) -> float:
    """Seconds of the processor."""
    gc.collect()
    begin = time.process_time()
    done = ask(words, path)
    took = time.process_time() - begin
    assert done.code in (0, 1), done.err
    return took


def costs(growth: Growth, size: int, rounds: int, enough: float = 0.0) -> tuple[float, float]:
    """Of `size` and twice that, the least of some rounds, or as soon as their ratio is small enough: what
    else the machine does only adds.
    """
    one = two = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("one", "two")]
        for path, count in zip(paths, (size, 2 * size), strict=True):
            path.write_bytes(growth.made(count))
        for _ in range(rounds):
            one, two = min(one, cost(paths[0], growth.words)), min(two, cost(paths[1], growth.words))
            if two <= enough * one:
                break
    return one, two


def main() -> None:
    """Prints the table."""
    print("| what there is twice as much of | size | seconds | of twice the size | ratio |")
    print("|---|---|---|---|---|")
    for growth in GROWTHS:
        size = 10 * growth.size
        one, two = costs(growth, size, int(sys.argv[1]) if len(sys.argv) > 1 else 3)
        print(f"| {growth.what} | {size:,} | {one:.2f} | {two:.2f} | {two / one:.2f} |", flush=True)


if __name__ == "__main__":
    main()
