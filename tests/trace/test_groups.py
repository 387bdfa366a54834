"""Messages are grouped by who sends them to whom, over all pipes, in the order in which they came."""

from __future__ import annotations

from rpcinspect.trace.groups import Group, Groups
from rpcinspect.trace.run import Run
from rpcinspect.trace.wire_facts import WireFacts
from tests.replay.talks import Workers


def test_groups() -> None:
    workers = Workers(2)
    workers.call(1, 0, 30, 40)
    workers.call(0, 1, 10, 20)
    workers.call(0, 1, 50, 60)
    groups = Groups(workers.builder.columns)
    for row, what in ((4, "a"), (0, "a"), (2, "a"), (3, "a"), (4, "b")):
        groups.add(row, what)
    found = list(groups.finish(Run(workers.finish(), WireFacts())))
    assert found == [
        Group(0, "w0", "w1", "a", (0, 4)),
        Group(0, "w1", "w0", "a", (1, 2)),
        Group(0, "w0", "w1", "b", (4,)),
    ]


def test_nothing() -> None:
    workers = Workers(2)
    assert list(Groups(workers.builder.columns).finish(Run(workers.finish(), WireFacts()))) == []
