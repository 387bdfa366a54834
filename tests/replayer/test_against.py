"""Two replays of one capture: what is said of a message that both give, by comparing what really came."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.equality.rules import Rules
from rpcinspect.replayer.against import MessagePair, SourceResult, pairs
from rpcinspect.replayer.options import ReplayOptions
from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.planning.sources import Sources
from rpcinspect.replayer.playing.inputs import KeptMessages
from rpcinspect.replayer.playing.report import report
from rpcinspect.replayer.replayer import replay
from rpcinspect.replayer.workers.workers import WorkerOptions
from rpcinspect.run.run import RunModel
from tests.cli.runner import CHAIN

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_left")

STRICT = Rules(strict=True)
SOURCE = """
import torch

def scale(x, weight, gain=1.0):
    return torch.clamp(x * weight, -1, 1) * gain * {factor}
"""


def source(folder: Path, factor: float, room: int) -> SourceResult:
    """The bundled chain with a function whose answer is so many times the captured one."""
    folder.mkdir(exist_ok=True)
    (folder / "basic_chain.py").write_text(SOURCE.format(factor=factor))
    options = ReplayOptions(workers=WorkerOptions(path=(str(folder),)), kept=KeptMessages(room))
    with RunModel.open([str(CHAIN)]) as opened:
        made = plan(opened, PlanOptions(), ExecutionPolicy((), Sources(None, [folder])))
        outcome = replay(opened, made, options)
    return SourceResult(label=folder.name, outcome=outcome, report=report(outcome), error=None)


def told(first: SourceResult, second: SourceResult) -> dict[int, MessagePair]:
    return {one.step.message: one for one in pairs(first, second, STRICT) if one.differs}


def test_what_two_live_messages_have_in_common(tmp_path: Path) -> None:
    old, same = source(tmp_path / "old", 1.5, 1 << 20), source(tmp_path / "same", 1.5, 1 << 20)
    other, right = source(tmp_path / "other", 1.25, 1 << 20), source(tmp_path / "right", 1.0, 1 << 20)
    assert {index: one.verdict for index, one in told(old, same).items()} == {
        6: "both-differ-alike",
        15: "both-differ-alike",
    }
    apart = told(old, other)
    assert {one.verdict for one in apart.values()} == {"all-differ"}
    first = apart[6].apart
    assert first is not None
    assert first.b_value / first.a_value == pytest.approx(1.25 / 1.5)
    assert {one.verdict for one in told(old, right).values()} == {"first-differs"}
    assert {one.verdict for one in told(right, old).values()} == {"second-differs"}
    assert told(right, right) == {}
    assert {one.verdict for one in pairs(right, right, STRICT)} == {"same"}


def test_messages_for_which_there_was_no_room(tmp_path: Path) -> None:
    """Nothing is said of the two then."""
    old, same = source(tmp_path / "old", 1.5, 0), source(tmp_path / "same", 1.5, 1 << 20)
    assert {one.verdict for one in told(old, same).values()} == {"both-differ"}
