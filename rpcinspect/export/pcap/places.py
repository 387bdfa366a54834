"""Ends on a network for what a log tells of, so that it can be written as packets.

In: a session. Out: the same one where it was read from packets; of a log, one whose pipes have ends and whose
workers listen somewhere: where they did, if the log says so, else at ports of one host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from msgspec.structs import replace

from rpcinspect.export.pcap.flows import Ports
from rpcinspect.export.pcap.stores import NOWHERE
from rpcinspect.session.model import Session, Worker
from rpcinspect.tcp.segment import Endpoint, Flow
from rpcinspect.tensorpipe.records import MessageOrigin


def placed(session: Session) -> Session:
    """Returns the session with made-up addresses for pipes of logs, which have none."""
    if not session.logged:
        return session
    listeners = dict(_known(session))
    ports = Ports(set(listeners.values()))
    pipes = []
    for pipe in session.pipes:
        number = pipe.number
        job, client, server = session.jobs[number], session.clients[number], session.servers[number]
        listener = listeners.get((job, server))
        if listener is None:
            listener = listeners[job, server] = ports.take(NOWHERE)
        host = listeners[job, client].host if (job, client) in listeners else listener.host
        if (":" in host) != (":" in listener.host):
            host = listener.host  # a connection has both ends in one family
        flow = Flow(ports.take(host), listener)
        pipes.append(replace(pipe, flow=flow, listener=listener, origin=MessageOrigin.PACKET))
    workers = [
        replace(worker, addresses=(str(listeners[worker.job, worker.name]),))
        if worker.name is not None and (worker.job, worker.name) in listeners
        else replace(worker, addresses=())
        for worker in session.workers
    ]
    return replace(session, pipes=tuple(pipes), workers=tuple(workers))


def _known(session: Session) -> Iterator[tuple[tuple[int, str], Endpoint]]:
    """Of workers that are said to have listened somewhere on the network, and of those that only an address
    stands for."""
    for worker in reversed(session.workers):
        for address in worker.addresses[:1]:
            end = endpoint(address)
            if end is not None:
                yield (worker.job, _label(worker, address)), end


def _label(worker: Worker, address: str) -> str:
    if worker.name is not None:
        return worker.name
    return address if worker.id is None else f"worker:{worker.id}"


def endpoint(address: str) -> Endpoint | None:
    """An address as workers publish it; None if it is none of an IP network."""
    host, _, port = address.rpartition(":")
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    if not port.isascii() or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 1 << 16:
        return None
    return Endpoint(str(ip), int(port))
