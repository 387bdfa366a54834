"""Blocks of a program: synchronous or not, lanes of contexts that overlapped, numbers of contexts."""

from __future__ import annotations

from rpcinspect.replay.reproduction.program_model import Together, blocks_of
from rpcinspect.replay.reproduction.program_parts import is_optimizers
from tests.replay.reproduction.test_programs import only, said
from tests.replay.reproduction.test_reproduction import made
from tests.truth import workload


def test_overlapping_calls_are_asynchronous() -> None:
    blocks = blocks_of(only("pairs/base.pcap.gz"))
    reports = said(next(block for block in blocks if block.context is None and len(block.events) > 5))
    assert reports[:6] == ["async 58", "async 59", "async 60", "await 58", "await 60", "await 59"]
    assert reports[6:] == ["sync 64", "sync 66", "sync 68"]


def test_contexts_that_overlapped_run_together() -> None:
    """Four threads, each of which makes two contexts."""
    program = only("ctx_crowd.pcap.gz")
    parts = [part for part in program.parts if isinstance(part, Together)]
    for part in parts:
        contexts = [lane.context for lane in part.lanes]
        assert contexts == sorted(contexts, key=lambda context: context or 0)
    assert [lane.context for lane in parts[0].lanes] == [0, 1, 2, 3]
    made_there = {event["context_id"] for event in workload("ctx_crowd").of("context")}
    assert {block.context for block in blocks_of(program)} == made_there


def test_contexts_are_numbered_where_user_code_got_their_ids() -> None:
    """Two contexts of `ctx_crowd` alone: 1, whose id is given to a function, and 3."""
    whole = blocks_of(only("ctx_crowd.pcap.gz"))
    assert {block.skips for block in whole} == {None}  # they are made in order anyway
    from rpcinspect.replay.reproduction.programs import programs

    (program,) = programs(made("ctx_crowd.pcap.gz", context=3))
    assert [(block.context, block.skips) for block in blocks_of(program)] == [(3, 3)]


def test_optimizers() -> None:
    calls = made("pairs/base.pcap.gz").calls.values()
    assert sum(is_optimizers(call) for call in calls) == 4  # made once, and three steps
