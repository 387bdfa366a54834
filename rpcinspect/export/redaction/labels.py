"""Who and where, with other names: workers by stand-ins, hosts by numbers in the order in which they come.

In: a session, `Pseudonyms`. Out: the same session for writers. 127.0.0.1 and ::1 stay; other hosts become
10.0.0.1, 10.0.0.2, …, fd00::1, …; ports stay.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from msgspec.structs import replace

from rpcinspect.export.redaction.pseudonyms import Pseudonyms
from rpcinspect.export.redaction.public import DEVICE
from rpcinspect.pickles.semantic import python_udf
from rpcinspect.pickles.tree import Dict, Set
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import CallFailure, Session, Worker
from rpcinspect.session.workers import is_address, is_name
from rpcinspect.tcp.segment import Endpoint, Flow
from rpcinspect.tensorpipe.channel_kinds import CHANNELS
from rpcinspect.tensorpipe.control_types import TpDevice
from rpcinspect.tensorpipe.records import Pipe


def worker_names(session: Session) -> frozenset[str]:
    """Every name of a worker."""
    found = {worker.name for worker in session.workers if worker.name is not None}
    labels = {*session.clients, *session.servers, *[pipe.client_name for pipe in session.pipes]}
    return frozenset(found | {label for label in labels if label and is_name(label)})


def gathered_names(record: RpcRecord) -> Iterator[str]:
    """Yields names that agents send each other: torch's leader is the smallest of them."""
    pickle = record.facts.pickle
    udf = python_udf(pickle.root) if pickle is not None and record.facts.control else None
    if udf is None or type(udf.args) is not tuple:
        return
    for value in udf.args:
        keys = [key for key, _ in value.pairs] if type(value) is Dict else []
        items = value.items if type(value) is Set else value if isinstance(value, (list, tuple)) else [value]
        yield from [name for name in (*keys, *items) if type(name) is str and name]


class Labels:
    """Pseudonyms of the names of workers, which keep the order of the names."""

    def __init__(self, words: Pseudonyms) -> None:
        self._words = words
        self._hosts: dict[str, str] = {}

    def session(self, session: Session, *, network: bool) -> Session:
        """`network`: for packets; logs know no addresses but those of listeners, and find pipes by theirs."""
        pipes = tuple([self._pipe(pipe) for pipe in session.pipes]) if network else session.pipes
        return replace(
            session,
            workers=tuple([self._worker(worker) for worker in session.workers]),
            pipes=pipes,
            clients=tuple(map(self.label, session.clients)),
            servers=tuple(map(self.label, session.servers)),
            failures={row: self._failure(failure) for row, failure in session.failures.items()},
            lost_calls=tuple(map(self._failure, session.lost_calls)),
        )

    def label(self, label: str) -> str:
        """A label of an end of a pipe."""
        if is_name(label):
            return self._name(label)
        return self._address(label) if is_address(label) else label

    def _name(self, name: str) -> str:
        return self._words.word(name.encode("utf-8", "surrogateescape")).decode("ascii")

    def _worker(self, worker: Worker) -> Worker:
        return replace(
            worker,
            name=None if worker.name is None else self._name(worker.name),
            addresses=tuple(map(self._address, worker.addresses)),
            elsewhere=tuple(map(self._elsewhere, worker.elsewhere)),
            ended=None if worker.ended is None else replace(worker.ended, error=None, pid=None),
        )

    def _pipe(self, pipe: Pipe) -> Pipe:
        return replace(
            pipe,
            flow=Flow(self._end(pipe.client, pipe.logged), self._end(pipe.server, pipe.logged)),
            listener=None if pipe.listener is None else self._end(pipe.listener, pipe.logged),
            client_name=None if pipe.client_name is None else self._name(pipe.client_name),
            server_name=None if pipe.server_name is None else self._name(pipe.server_name),
            channels=tuple(
                [
                    ((self.device(a), self.device(b)), self.channel(name) or "")
                    for (a, b), name in pipe.channels
                ]
            ),
            reason=None,
        )

    def _end(self, end: Endpoint, logged: bool) -> Endpoint:
        return Endpoint(self.label(end.host) if logged else self._host(end.host), end.port)

    def channel(self, name: str | None) -> str | None:
        """Names of channels that TensorPipe has stay."""
        return name if name is None or name in CHANNELS or name in UNSEEN else self._name(name)

    def device(self, device: TpDevice) -> TpDevice:
        known = DEVICE.fullmatch(device.type.encode("utf-8", "surrogateescape")) is not None
        return device if known else TpDevice(self._name(device.type), device.index)

    def _address(self, address: str) -> str:
        host, _, port = address.rpartition(":")
        known = self._host(host.strip("[]"))
        return f"[{known}]:{port}" if ":" in known else f"{known}:{port}"

    def _elsewhere(self, address: str) -> str:
        scheme, mark, rest = address.partition("://")
        return f"{scheme}{mark}{self._name(rest)}" if mark and scheme in SCHEMES else self._name(address)

    def _host(self, host: str) -> str:
        try:
            ip = ipaddress.ip_address(host)
        except ValueError:
            return self._name(host)
        if ip.is_loopback or ip.is_unspecified:
            return host
        number = len(self._hosts) + 1
        return self._hosts.setdefault(host, str(NETWORKS[ip.version] + number))

    def _failure(self, failure: CallFailure) -> CallFailure:
        text = self._words.text(failure.text.encode("utf-8", "surrogatepass"))
        return replace(
            failure,
            caller=self.label(failure.caller),
            callee=self.label(failure.callee),
            text=text.decode("utf-8", "replace"),
        )


NETWORKS = {4: ipaddress.ip_address("10.0.0.0"), 6: ipaddress.ip_address("fd00::")}
SCHEMES = frozenset({"shm", "uv", "ibv", "tcp"})
UNSEEN = frozenset({"cma", "xth", "cuda_ipc", "cuda_gdr", "cuda_xth", "cuda_basic", "mpt_uv", "basic"})
"""Channels of TensorPipe, also those whose bytes no capture has."""
