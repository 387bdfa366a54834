"""For each finding, captures that cause it, and captures that nearly do and must not.

*Recorded* ones are bundled (captures/README.md). *Damaged* ones are copies of bundled ones with packets left
out, cut or doubled, as a sniffer or a network does it. *Made* ones are written by our own encoders where no
worker on a CPU would send such a thing.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.rpc.command import Command, PythonCall, PythonResp, ScriptCall, ScriptResp
from rpcinspect.rpc.command_codec import message_type_of, to_payload
from rpcinspect.rpc.envelope import AutogradMetadata, RpcWithAutograd, wrap
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.tensor import TensorMeta, to_tensor_table
from tests import places
from tests.builders import ACK, RST, SYN, Captured, packet, pcap_file
from tests.carriers import frames, tcp_header
from tests.decoded import Json, decode
from tests.replayer.talks import NONE, udf
from tests.tensorpipe.conversations import NO_TENSORS, Network, PipeTalk, Said, packets, segments
from tests.truth import capture_of


class Case(Struct, frozen=True):
    """A capture."""

    label: str
    """How it came about, and which one it is."""
    path: Callable[[Path], Path]
    """Where it is, written into this folder if need be."""


def recorded(name: str) -> Case:
    return Case(f"recorded: {name}", lambda folder: capture_of(name))


def log(name: str) -> Case:
    return Case(name, lambda folder: places.recorded(name))


# --- damaged ------------------------------------------------------------------------------------------------


Damage = Callable[[list[Captured], list[Json]], Sequence[Captured]]
"""Packets of a capture and its messages → the packets of the copy."""


def damaged(label: str, name: str, damage: Damage, snap_length: int = 1 << 18) -> Case:
    def make(folder: Path) -> Path:
        source = capture_of(name)
        whole = [Captured(frame, time_ns) for frame, _, time_ns, _ in frames(source)]
        path = folder / "damaged.pcap"
        copy = damage(whole, decode(source).messages)
        path.write_bytes(pcap_file(copy, link_type=_link_type(source), snap_length=snap_length))
        return path

    return Case(f"damaged: {label}", make)


def _link_type(path: Path) -> int:
    return next(link for _, link, _, _ in frames(path))


def _own(messages: list[Json], *, request: bool) -> Json:
    """The last message of the user's own of this kind that answers, or asks for, a result."""
    its = [m for m in messages if m["request"] == request and not m["control"] and "CLEANUP" not in m["type"]]
    return its[-1]


def without_an_answer(whole: list[Captured], messages: list[Json]) -> Sequence[Captured]:
    """The packet in which an answer begins was not captured."""
    lost: int = _own(messages, request=False)["location"]["packet"]
    return [one for number, one in enumerate(whole, 1) if number != lost]


def until_before_an_answer(whole: list[Captured], messages: list[Json]) -> Sequence[Captured]:
    """The capture was stopped between a request and its answer."""
    end: int = _own(messages, request=False)["location"]["packet"]
    return whole[: end - 1]


def refused_once(whole: list[Captured], messages: list[Json]) -> Sequence[Captured]:
    """The first connection, to the store, was tried a little before, when nobody listened yet."""
    header = tcp_header(whole[0].data, 1)
    assert header is not None
    client, server = f"{header.flow.source.host}:999", str(header.flow.destination)
    before_ns = whole[0].time_ns - 1_000_000_000
    asked = packet(b"", client, server, sequence=5, flags=SYN)
    no = packet(b"", server, client, acknowledgment=6, flags=RST | ACK)
    return [Captured(asked, before_ns), Captured(no, before_ns + 1000), *whole]


def cut_to(size: int) -> Damage:
    def damage(whole: list[Captured], messages: list[Json]) -> Sequence[Captured]:
        return [replace(one, data=one.data[:size], length=len(one.data)) for one in whole]

    return damage


def doubled(*, changed: bool) -> Damage:
    """The packet of a request comes again at once, with another last byte or with the same one."""

    def damage(whole: list[Captured], messages: list[Json]) -> Sequence[Captured]:
        at = _own(messages, request=True)["location"]["packet"]
        one = whole[at - 1]
        header = tcp_header(one.data, 1)
        assert header is not None
        last = header.payload + header.length - 1
        data = bytearray(one.data)
        data[last] ^= changed
        return [*whole[:at], replace(one, data=bytes(data)), *whole[at:]]

    return damage


# --- made ---------------------------------------------------------------------------------------------------


def made(label: str, say: Callable[[PipeTalk], None], channel: str = "basic") -> Case:
    """`say`: what w0, which has the pipe, and w1 say to each other."""

    def make(folder: Path) -> Path:
        network = Network()
        say(PipeTalk(network, name="w0", channel=channel))
        path = folder / "made.pcap"
        path.write_bytes(pcap_file(packets(network, segments(network), step_ns=100_000)))
        return path

    return Case(f"made: {label}", make)


def exchange(
    pipe: PipeTalk,
    request: Command,
    answer: Command,
    *,
    context: int | None = None,
    device_map: dict[str, str] | None = None,
    tensor: TensorMeta | None = None,
) -> None:
    """A call with at most one tensor, in an autograd envelope if there is a context."""
    kind, payload = int(message_type_of(request)), to_payload(request)
    if context is not None:
        envelope = RpcWithAutograd(
            message_type=int(MessageType.FORWARD_AUTOGRAD_REQ),
            autograd_metadata=AutogradMetadata(context, 1),
            from_worker_id=0,
            device_map=device_map or {},
            wrapped_message_type=kind,
        )
        kind, payload = envelope.message_type, wrap([envelope], payload)
    table = NO_TENSORS if tensor is None else to_tensor_table([tensor])
    data = () if tensor is None else (bytes(4),)
    pipe.send(Said(kind, 7, payload, table, data))
    pipe.send(Said(int(message_type_of(answer)), 7, to_payload(answer)), from_client=False)


def operator(*, grads: bool) -> Callable[[PipeTalk], None]:
    """An operator in an autograd envelope, which PyTorch sends only if a tensor requires grad."""

    def say(pipe: PipeTalk) -> None:
        schema = "aten::relu(Tensor self) -> Tensor"
        call = ScriptCall(args=(1,), schema=schema, qualified_name="torch.ops.aten.relu")
        exchange(pipe, call, ScriptResp(1), context=1, tensor=_tensor("cpu", grads) if grads else None)

    return say


def on_a_gpu(device_map: dict[str, str]) -> Callable[[PipeTalk], None]:
    """A call in a context whose tensor is on a GPU, and the map that its sender has."""

    def say(pipe: PipeTalk) -> None:
        call = PythonCall(udf("app.f"), False)
        tensor = _tensor("cuda:0", requires_grad=False)
        exchange(pipe, call, PythonResp(NONE), context=1, device_map=device_map, tensor=tensor)

    return say


def _tensor(device: str, requires_grad: bool) -> TensorMeta:
    return TensorMeta(
        dtype="float32",
        sizes=(1,),
        strides=(1,),
        device=device,
        requires_grad=requires_grad,
        storage=0,
        storage_numel=1,
    )


def arguments(pickled: bytes) -> Callable[[PipeTalk], None]:
    """A call of app.f with one argument."""

    def say(pipe: PipeTalk) -> None:
        head, _, _ = udf("app.f").partition(b")}")
        exchange(pipe, PythonCall(head + pickled + b"\x85}\x87\x81.", False), PythonResp(NONE))

    return say


def called(pickled: bytes) -> Callable[[PipeTalk], None]:
    """A call by this PythonUDF."""
    return lambda pipe: exchange(pipe, PythonCall(pickled, False), PythonResp(NONE))


def foreign(folder: Path) -> Path:
    """A capture of another protocol."""
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:80")
    network.write(number, b"GET / HTTP/1.1\r\n\r\n")
    network.write(number, b"HTTP/1.1 204 No Content\r\n\r\n", from_client=False)
    path = folder / "foreign.pcap"
    path.write_bytes(pcap_file(packets(network, segments(network))))
    return path


def nothing(folder: Path) -> Path:
    """A capture without packets."""
    path = folder / "nothing.pcap"
    path.write_bytes(pcap_file([]))
    return path


PLAIN = pickle.dumps({"a": (1, [2.5, None])}, 2)[2:-1]
"""Without the opcodes at both ends."""


# --- which finding ------------------------------------------------------------------------------------------


CAUSED: dict[tuple[str, str], tuple[Case, ...]] = {
    ("error-response", "error"): (
        recorded("bwd_boom"),
        recorded("pairs/error_nested"),
        recorded("reports/findings/errs_die"),
        recorded("reports/findings/errs_remote"),
    ),
    ("unanswered-request", "error"): (recorded("faults/dies"), log("reports/ends/ends.rpclog")),
    ("unanswered-request", "info"): (
        damaged("basic_chain, stopped before an answer", "basic_chain", until_before_an_answer),
    ),
    ("missing-gradient", "error"): (
        recorded("faults/unused_result"),
        recorded("faults/second_pass"),
        recorded("bwd_boom"),
    ),
    ("dangling-send", "error"): (recorded("pairs/error_nested"),),
    ("lost-edge", "warning"): (recorded("faults/leaks"), recorded("faults/tidy")),
    ("detached-parameter", "warning"): (recorded("param_detach"),),
    ("stale-gradient", "warning"): (recorded("ps_race"), recorded("reports/findings/stale_shared")),
    ("optimizer-without-gradients", "warning"): (recorded("reports/findings/plain_sgd"),),
    ("leaked-context", "warning"): (recorded("faults/leaks"),),
    ("leaked-rref", "warning"): (recorded("faults/leaks"),),
    ("zero-gradient", "info"): (recorded("faults/leaks"),),
    ("nonfinite-tensor", "warning"): (
        *(log(f"reports/job/{name}") for name in ("nan.pcap", "nan_late.pcap", "two_a.rpclog")),
    ),
    ("device-map-missing", "error"): (
        recorded("faults/unfit"),
        made("a tensor of a GPU without a map", on_a_gpu({"cuda:1": "cuda:1"}), "cuda_basic"),
    ),
    ("invisible-transport", "error"): (recorded("transport_matrix_default"),),
    ("invisible-transport", "info"): (recorded("transport_matrix_uv_only"),),
    ("capture-gap", "warning"): (damaged("basic_chain, a packet lost", "basic_chain", without_an_answer),),
    ("truncated-packets", "warning"): (
        damaged("basic_chain, snap length 300", "basic_chain", cut_to(300), 300),
    ),
    ("conflicting-overlap", "warning"): (
        damaged("basic_chain, another copy of a packet", "basic_chain", doubled(changed=True)),
    ),
    ("unsafe-pickle", "error"): (recorded("faults/unfit"),),
    ("unsafe-pickle", "info"): (
        made("an argument that is a class of the user's", arguments(b"capp\nThing\n")),
    ),
    ("dangerous-call", "error"): (
        made("eval is called", called(udf("builtins.eval"))),
        made("pickle.loads is called", called(udf("_pickle.loads"))),
    ),
    ("failed-init", "error"): (
        recorded("reports/findings/elastic"),
        recorded("reports/failures/again"),
        recorded("reports/failures/nobody"),
        recorded("devmap_cpu_refused"),
    ),
    ("no-rpc", "error"): (Case("made: another protocol", foreign), Case("made: no packets", nothing)),
    ("unexpected-envelope", "warning"): (
        made("an operator without gradients in an envelope", operator(grads=False)),
    ),
    ("startup-skew", "info"): (recorded("costs/one_by_one"), recorded("costs/first_late")),
    ("sequential-awaits", "info"): (recorded("costs/one_by_one"),),
    ("empty-results", "info"): (recorded("costs/one_by_one"),),
}
"""(code, severity) → captures that cause it."""

NEARLY: dict[str, tuple[Case, ...]] = {
    "error-response": (
        recorded("ps_race_lock"),
        recorded("pairs/base"),
        recorded("reports/findings/errs_priv"),
    ),
    "unanswered-request": (
        recorded("faults/tidy"),
        damaged("basic_chain, the answer is in a gap", "basic_chain", without_an_answer),
    ),
    "missing-gradient": (recorded("faults/used_result"), recorded("pairs/error_nested")),
    "dangling-send": (recorded("pairs/error"),),
    "lost-edge": (
        recorded("faults/used_result"),
        recorded("faults/split"),
        recorded("ctx_crowd"),
        recorded("torch-suite/DistOptimizerTest.test_dist_optim_none_grads"),
    ),
    "detached-parameter": (
        recorded("basic_chain"),
        recorded("ps_race_lock"),
        recorded("reports/findings/enum_operator"),
    ),
    "stale-gradient": (recorded("ps_race_lock"), recorded("reports/findings/stale_own")),
    "optimizer-without-gradients": (recorded("reports/job/plain"), recorded("ps_race")),
    "leaked-context": (recorded("faults/tidy"), recorded("faults/second_pass"), recorded("bwd_boom")),
    "leaked-rref": (
        recorded("faults/tidy"),
        recorded("rref_relay"),
        recorded("reports/findings/enum_operator"),
        recorded("reports/replay/part"),
    ),
    "zero-gradient": (recorded("faults/tidy"),),
    "nonfinite-tensor": (log("reports/job/plain.pcap"), recorded("basic_chain")),
    "device-map-missing": (
        recorded("faults/fit"),
        recorded("devmap_cpu"),
        made("a tensor of a GPU with its map", on_a_gpu({"cuda:0": "cuda:0"}), "cuda_basic"),
    ),
    "invisible-transport": (recorded("transport_matrix_uv_mpt"), recorded("transport_matrix_uv_basic")),
    "capture-gap": (
        damaged("basic_chain, the same packet twice", "basic_chain", doubled(changed=False)),
        damaged("basic_chain, stopped before an answer", "basic_chain", until_before_an_answer),
    ),
    "truncated-packets": (damaged("basic_chain, snap length 65,535", "basic_chain", cut_to(65_535), 65_535),),
    "conflicting-overlap": (
        damaged("basic_chain, the same packet twice", "basic_chain", doubled(changed=False)),
    ),
    "dangerous-call": (
        made("an operator of Python's is called", called(udf("_operator.add"))),
        made("a function of the user's is called", called(udf("app.eval"))),
    ),
    "unsafe-pickle": (
        recorded("faults/fit"),
        recorded("ps_race"),
        made("plain data as argument", arguments(PLAIN)),
    ),
    "failed-init": (
        recorded("reinit"),
        recorded("reports/names/three_jobs"),
        damaged("basic_chain, refused before the store is there", "basic_chain", refused_once),
        damaged("basic_chain, a packet lost", "basic_chain", without_an_answer),
    ),
    "no-rpc": (recorded("basic_chain"), recorded("torch/snap300")),
    "unexpected-envelope": (
        recorded("ctx_crowd"),
        made("an operator with gradients in an envelope", operator(grads=True)),
    ),
    "startup-skew": (recorded("costs/at_once"), recorded("reinit"), recorded("torch/dyn")),
    "sequential-awaits": (recorded("costs/at_once"), recorded("costs/in_turn")),
    "empty-results": (recorded("costs/at_once"), recorded("ps_race_lock")),
}
"""Code → captures that nearly cause it, and must not."""
