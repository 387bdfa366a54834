"""`rpcinspect leave`: workers that died are taken out of a group that runs, and only these."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcinspect.replayer.peers.membership import MEMBERS, PREFIX, TOKEN, read_members
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.workers.live_group import LiveGroup
from tests.cli.runner import rpcinspect

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def store(group: LiveGroup) -> Iterator[StoreClient]:
    with StoreClient("127.0.0.1", group.port, prefix=PREFIX) as client:
        yield client


def test_dead_members(group: LiveGroup, store: StoreClient) -> None:
    where = f"tcp://127.0.0.1:{group.port}"
    group.start("worker1", 1)
    store.append(MEMBERS, b"ghost-9,phantom-8,")
    refused = rpcinspect("leave", where, "ghost")
    assert refused.code == 4
    assert read_members(store).keys() == {"worker1", "ghost", "phantom"}
    store.set(TOKEN, b"Token_for_ghost_leave")
    ran = rpcinspect("leave", where, "ghost", "phantom", "--yes")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.splitlines() == [
        "rpcinspect: the group's token, which it still held, was given back: Token_for_ghost_leave",
        "rpcinspect: ghost is no longer a member",
        "rpcinspect: phantom is no longer a member",
    ]
    assert read_members(store) == {"worker1": 1}


def test_members_that_live(group: LiveGroup) -> None:
    group.start("worker1", 1)
    ran = rpcinspect("leave", f"tcp://127.0.0.1:{group.port}", "worker1", "--yes")
    assert ran.code == 1
    assert ran.err.startswith("rpcinspect: nothing was changed: worker1 still answers, at 127.0.0.1:")
