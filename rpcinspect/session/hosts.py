"""Between which hosts messages were not captured.

In: a session. Out: hosts, by the addresses of its pipes and workers. Packets are captured at one host, or at
several: where all captured ones are from or to one, what others send to each other is not there.
"""

from __future__ import annotations

from rpcinspect.session.model import Session


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
