"""Counting a plan."""

from __future__ import annotations

from rpcinspect.replayer.planning.model import REASONS
from tests.replayer.talks import Workers

CONTRACT = """
missing-bytes · older-rref · older-state · no-gradient · nested-in-answer · driver-not-live · self-call ·
outside-rpc · control · not-allowed · unsupported
"""


def test_reasons_are_the_contracts_and_one_more() -> None:
    fixed = {code.strip() for code in CONTRACT.replace("\n", " ").split("·")}
    assert set(REASONS) == fixed | {"both-played"}


def test_counts() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 60)
    workers.call(1, 0, 20, 50)
    workers.call(2, 1, 70, 80)
    plan = workers.plan()
    assert plan.roles == ("w0", "w2")
    assert [session.cast.roles for session in plan.sessions] == [("w0",), ("w2",)]
    assert (plan.count("send"), plan.count("answer"), plan.count("skip")) == (2, 1, 3)
    assert plan.skips() == {"driver-not-live": 3}
    assert [session.count("send") for session in plan.sessions] == [1, 1]
    assert plan.refused == ()
