"""Remote references under torch's own ids."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.replay.agent.ids import OwnRRefs
from rpcinspect.replay.playing.arrived import LiveRecords
from rpcinspect.rpc.command import PythonCall, PythonResp
from rpcinspect.rpc.types import GloballyUniqueId
from tests.replay.captured import captured
from tests.truth import capture_of


def messages_with_rrefs(kind: type) -> list[object]:
    with captured(str(capture_of("ps_race_lock"))) as messages:
        return [m for m in messages if m.record.facts.forks and isinstance(m.record.rpc.command, kind)]


def test_an_argument_gets_the_ids_that_torch_gave() -> None:
    message = messages_with_rrefs(PythonCall)[0]
    (fork,) = message.record.facts.forks  # type: ignore[attr-defined]
    rrefs = OwnRRefs()
    rrefs.made(GloballyUniqueId(*fork.rref_id), (1, 70))
    asked: list[Sequence[int]] = []

    def new_fork(rref: Sequence[int]) -> tuple[int, int]:
        asked.append(rref)
        return 1, 99

    changed = rrefs.with_own_ids(message.message, message.tensors, new_fork)  # type: ignore[attr-defined]
    (now,) = LiveRecords().decode(changed, message.tensors, 0).record.facts.forks  # type: ignore[attr-defined]
    assert (now.rref_id, now.fork_id, now.owner_id, now.parent) == (
        (1, 70),
        (1, 99),
        fork.owner_id,
        fork.parent,
    )
    assert asked == [(1, 70)]


def test_one_that_was_not_made_can_not_be_handed_on() -> None:
    message = messages_with_rrefs(PythonCall)[0]
    with pytest.raises(ReplayError, match="was not made here"):
        OwnRRefs().with_own_ids(message.message, message.tensors, lambda rref: (0, 0))  # type: ignore[attr-defined]


def test_what_an_answer_brings_can_be_used() -> None:
    message = messages_with_rrefs(PythonResp)[0]
    (fork,) = message.record.facts.forks  # type: ignore[attr-defined]
    rrefs = OwnRRefs()
    brought = rrefs.brought(message.record.rpc.command.serialized_py_obj)  # type: ignore[attr-defined]
    assert brought == [[fork.owner_id, *fork.rref_id, *fork.fork_id, fork.parent, fork.type_str]]
    assert rrefs.real_pair(fork.rref_id) == fork.rref_id
    assert rrefs.brought(b"N.") == []
