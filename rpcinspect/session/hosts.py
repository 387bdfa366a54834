"""Between which hosts messages were not captured, and by whose clocks they have their times.

In: a session. Out: hosts, by the addresses of its pipes and workers. Packets are captured at one host, or at
several: where all captured ones are from or to one, what others send to each other is not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from rpcinspect.session.model import Session, Worker
from rpcinspect.tensorpipe.records import Pipe


def host_of(address: str) -> str:
    """Returns the host of `ip:port`, perhaps with a transport before it; IPv6 without brackets."""
    return address.rpartition("://")[2].rpartition(":")[0].strip("[]")


def unseen_hosts(session: Session) -> tuple[str | None, list[str]]:
    """Returns the host whose packets are captured, and those whose messages to each other are not; (None, [])
    where that can't be told, or nothing is missing."""
    if {capture.reader for capture in session.captures} == {"log"}:
        return None, []
    ends = [{pipe.client.host, pipe.server.host} for pipe in session.pipes]
    hosts = sorted({host_of(at) for one in session.workers for at in one.addresses}.union(*ends))
    here = set(hosts).intersection(*ends)
    others = [host for host in hosts if host not in here]
    return (here.pop(), others) if len(here) == 1 and len(others) > 1 else (None, [])


def on_one_host(workers: Iterable[Worker]) -> bool:
    """Returns whether nothing says that workers are on several hosts, by whose clocks processes end."""
    return len({host_of(one.addresses[0]) for one in workers if one.addresses}) < 2


def sniffers_of(session: Session) -> Mapping[int, int]:
    """Returns capture → the first of the same sniffer, which began another file now and then."""
    found: dict[int, int] = {}
    for one in session.captures:
        before = one.vantage.goes_on
        found[one.capture] = one.capture if before is None else found[before]
    return found


class Sniffers(Struct, frozen=True):
    """Who made the captures of a session."""

    of_capture: Mapping[int, int]
    hosts: Mapping[int, frozenset[str]]
    """Sniffer → the hosts that are at an end of whatever it captured."""
    doubts: Mapping[int, int]
    """Sniffer → by how much its times may be wrong, in nanoseconds."""

    @classmethod
    def of(cls, session: Session) -> Sniffers:
        """Reads them off the session."""
        found = sniffers_of(session)
        doubts = {found[c.capture]: c.clock.error_ns for c in session.captures if c.clock is not None}
        hosts: dict[int, frozenset[str]] = {}
        for one in session.captures:
            sniffer, ends = found[one.capture], one.vantage.hosts
            hosts[sniffer] = hosts.get(sniffer, ends) & ends
        alone, _ = unseen_hosts(session)
        if alone is not None and len(session.captures) == 1:
            hosts = {session.captures[0].capture: frozenset((alone,))}
        return cls(found, hosts, doubts)

    def is_at_sender(self, capture: int, pipe: Pipe) -> bool:
        """Returns whether requests on a pipe were certainly captured where they were sent."""
        here = self.hosts.get(self.of_capture.get(capture, capture))
        return pipe.logged or here == frozenset((pipe.client.host,)) or pipe.client.host == pipe.server.host

    def doubt_ns(self, captures: Iterable[int]) -> int:
        """Returns by how much two times of these captures may be wrong against each other."""
        sniffers = {self.of_capture.get(capture, capture) for capture in captures}
        doubts = sorted(self.doubts.get(one, 0) for one in sniffers)
        return sum(doubts[-2:]) if len(sniffers) > 1 else 0


def clocks(session: Session) -> dict[tuple[int, int], tuple[str, int | str]]:
    """Returns (pipe, capture) → whose clock the times of its messages there are of: in a log of the caller's
    host, or the log's own where no address tells it; of captures each sniffer's of which none shares packets
    with the first."""
    columns = session.messages
    hosts = {(one.job, one.label): host_of(one.addresses[0]) for one in session.workers if one.addresses}
    sniffer_of = sniffers_of(session)
    compared = {0, *(sniffer_of[one.capture] for one in session.captures if one.clock is not None)}
    found: dict[tuple[int, int], tuple[str, int | str]] = {}
    for pipe, capture in set(zip(columns.pipe, columns.capture, strict=True)):
        host = hosts.get((session.jobs[pipe], session.clients[pipe]))
        if not session.pipes[pipe].logged:
            sniffer = sniffer_of.get(capture, capture)
            found[pipe, capture] = "capture", 0 if sniffer in compared else sniffer
        else:
            found[pipe, capture] = ("log", capture) if host is None else ("host", host)
    return found
