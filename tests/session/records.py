"""Records of messages that a test makes up, without any capture."""

from __future__ import annotations

from collections.abc import Sequence

from rpcinspect.rpc.command import Command
from rpcinspect.rpc.command_codec import message_type_of, to_payload
from rpcinspect.rpc.envelope import AutogradMetadata, Envelope, RpcWithAutograd, wrap
from rpcinspect.rpc.message import RpcMessage
from rpcinspect.rpc.record import RecordDecoder, RpcRecord
from rpcinspect.rpc.tensor import TensorMeta, to_tensor_table
from rpcinspect.rpclog.header import LoggedFailure
from rpcinspect.session.builder import SessionBuilder
from rpcinspect.session.model import Session
from rpcinspect.session.workers import resolve_workers
from rpcinspect.store.directory import StoreEntry
from rpcinspect.tcp.ranges import Extent
from rpcinspect.tcp.segment import Endpoint, Flow
from rpcinspect.tensorpipe.control_types import (
    ControlLayout,
    TpDescriptor,
    TpDevice,
    TpPayload,
    TpTensorDescriptor,
)
from rpcinspect.tensorpipe.records import Pipe, Placement, TpMessage, TpTensor

CPU = TpDevice("cpu", 0)


def endpoint(text: str) -> Endpoint:
    host, _, port = text.rpartition(":")
    return Endpoint(host.strip("[]"), int(port))


def pipe(
    number: int = 0,
    client: str = "10.0.0.1:1000",
    server: str = "10.0.0.2:5000",
    name: str | None = None,
    *,
    opened: int = 0,
    ended: int | None = None,
) -> Pipe:
    """A pipe between two endpoints; `name` is the context name in its handshake."""
    made = Pipe(number, Flow(endpoint(client), endpoint(server)), client_name=name)
    made.listener = made.server
    made.first_ns, made.ended_ns = opened, ended
    return made


def entry(
    key: str,
    value: str,
    *,
    group: int = 0,
    at: int = 0,
    operation: str = "set",
    store: str = "",
    root: str = "",
) -> StoreEntry:
    """What the store says, e.g. of `names/0`."""
    data = value.encode("utf-8", "surrogateescape")
    return StoreEntry(f"{root}/rpc_prefix_{group}/{key}", data, len(data), operation, at, store)


def met(
    *workers: tuple[str, str], at: int = 0, store: str = "", root: str = "", operation: str = "set"
) -> tuple[StoreEntry, ...]:
    """What workers of these names, by id, who listen at these addresses, tell their store when they begin."""
    names = [
        entry(f"names/{number}", name, at=at, store=store, root=root, operation=operation)
        for number, (name, _) in enumerate(workers)
    ]
    addresses = [
        entry(f"addrs/{name}", f"uv://{address}", at=at + 1, store=store, root=root, operation=operation)
        for name, address in workers
    ]
    return *names, *addresses


def tp_message(
    pipe: Pipe,
    payloads: Sequence[bytes],
    *,
    from_client: bool = True,
    time_ns: int = 0,
    missing: Sequence[int] | None = None,
    tensors: Sequence[TpTensor] = (),
    offset: int = 0,
) -> TpMessage:
    """A message as the wire stage gives it."""
    lengths = [len(p) for p in payloads]
    if missing is not None:
        lengths = [n + lost for n, lost in zip(lengths, missing, strict=True)]
    descriptor = TpDescriptor(b"", tuple(TpPayload(n) for n in lengths), tuple(t.descriptor for t in tensors))
    return TpMessage(
        pipe,
        from_client,
        descriptor,
        ControlLayout.V1_9,
        b"",
        tuple(payloads),
        None if missing is None else tuple(missing),
        list(tensors),
        0,
        time_ns,
        time_ns + 1,
        0,
        time_ns + 1,
        time_ns + 1,
        time_ns + 1,
        pipe.flow if from_client else pipe.flow.reversed,
        offset,
        sum(lengths),
        False,
    )


def tp_tensor(length: int, placement: Placement = Placement.CERTAIN, missing: int = 0) -> TpTensor:
    """A tensor of so many bytes, the last of which may be missing."""
    descriptor = TpTensorDescriptor(length=length, source_device=CPU, target_device=CPU)
    if placement is not Placement.CERTAIN:
        return TpTensor(descriptor, placement, None)
    lost = ((length - missing, length),) if missing else ()
    return TpTensor(descriptor, placement, Extent(length, ((0, 0, length - missing),), lost))


def gradient(count: int) -> bytes:
    """A table of float tensors that require grad."""
    meta = [
        TensorMeta(dtype="float32", sizes=(1,), strides=(1,), requires_grad=True, storage=n, storage_numel=1)
        for n in range(count)
    ]
    return to_tensor_table(meta)


class Talk:
    """Feeds a builder; messages count up in time unless told otherwise."""

    def __init__(self, *pipes: Pipe) -> None:
        self.pipes = pipes or (pipe(),)
        self.builder = SessionBuilder()
        self.decoder = RecordDecoder()
        self.records: list[RpcRecord] = []

    def say(
        self,
        command: Command,
        *,
        pipe: int = 0,
        id: int = 0,
        from_client: bool = True,
        time_ns: int | None = None,
        autograd: tuple[int, int, int] | None = None,
        tensors: int = 0,
    ) -> RpcRecord:
        """`autograd`: (context id, autograd message id, sender's worker id) of an envelope."""
        kind = message_type_of(command)
        envelopes: list[Envelope] = []
        if autograd is not None:
            context, message, sender = autograd
            outer = 0x10F if from_client else 0x210
            envelopes = [
                RpcWithAutograd(
                    message_type=outer,
                    autograd_metadata=AutogradMetadata(context, message),
                    from_worker_id=sender,
                    device_map={},
                    wrapped_message_type=kind,
                )
            ]
            kind = outer
        table = gradient(tensors)
        message = RpcMessage(kind, id, wrap(envelopes, to_payload(command)), table)
        tp = tp_message(
            self.pipes[pipe],
            message.to_payloads(),
            from_client=from_client,
            time_ns=len(self.records) if time_ns is None else time_ns,
            tensors=[tp_tensor(4) for _ in range(tensors)],
        )
        return self.feed(tp)

    def feed(self, tp: TpMessage) -> RpcRecord:
        record = self.decoder.decode(tp)
        assert record.row == len(self.records)
        self.records.append(record)
        self.builder.feed([record])
        self.builder.count_problems([record])
        return record

    def finish(
        self,
        *entries: StoreEntry,
        by_completion: bool = False,
        failed: Sequence[tuple[int, LoggedFailure]] = (),
    ) -> Session:
        return self.builder.finish(
            captures=[],
            pipes=self.pipes,
            identities=resolve_workers(self.pipes, entries, self.builder.evidence),
            problems=[],
            sums=(1, 2, 3, 4),
            by_completion=by_completion,
            failed=failed,
        )
