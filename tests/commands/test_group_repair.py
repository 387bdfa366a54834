"""`rpcinspect replay --leave`: what it says, and when it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcinspect.replay.peers.membership import MEMBERS, PREFIX, TOKEN, read_members
from rpcinspect.replay.peers.store_client import StoreClient
from rpcinspect.replay.workers.live_group import LiveGroup
from tests.commands.runner import rpcinspect

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def store(group: LiveGroup) -> Iterator[StoreClient]:
    with StoreClient("127.0.0.1", group.port, prefix=PREFIX) as client:
        yield client


def test_dead_members(group: LiveGroup, store: StoreClient) -> None:
    where = ("--connect", f"tcp://127.0.0.1:{group.port}")
    group.start("worker1", 1)
    store.append(MEMBERS, b"ghost-9,phantom-8,")
    refused = rpcinspect("replay", "--leave", "ghost", *where)
    assert refused.code == 4
    assert read_members(store).keys() == {"worker1", "ghost", "phantom"}
    store.set(TOKEN, b"Token_for_ghost_leave")
    ran = rpcinspect("replay", "--leave", "ghost,phantom", *where, "--yes-join")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.splitlines() == [
        "rpcinspect: the group's token, which it had kept, is given back: Token_for_ghost_leave",
        "rpcinspect: ghost is no member any more",
        "rpcinspect: phantom is no member any more",
    ]
    assert read_members(store) == {"worker1": 1}


def test_members_that_live(group: LiveGroup) -> None:
    group.start("worker1", 1)
    ran = rpcinspect(
        "replay", "--leave", "worker1", "--connect", f"tcp://127.0.0.1:{group.port}", "--yes-join"
    )
    assert ran.code == 1
    assert ran.err.startswith("rpcinspect: nothing was changed: worker1 still answers, at 127.0.0.1:")
