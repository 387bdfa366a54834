"""What workers do in a reproducer: synchronous or not, contexts, passes, and the order between workers."""

from __future__ import annotations

import pytest

from rpcinspect.replay.reproduction.program_model import Await, Block, Pass, Program, Send, blocks_of
from rpcinspect.replay.reproduction.programs import programs
from tests.replay.reproduction.test_reproduction import NAMES, made
from tests.truth import capture_of


def only(name: str) -> Program:
    (program,) = programs(made(name))
    return program


def said(block: Block) -> list[str]:
    """Events in short."""
    out = []
    for event in block.events:
        if isinstance(event, Send):
            out.append(f"{'sync' if event.waits else 'async'} {event.call.index}")
        elif isinstance(event, Await):
            out.append(f"await {event.call.index}")
        else:
            out.append(f"backward {event.first.index}")
    return out


def test_a_context_is_a_block() -> None:
    program = only("basic_chain.pcap")
    (block,) = blocks_of(program)
    assert block.context == 0
    assert said(block) == ["sync 6", "sync 8", "backward 10"]


def test_a_gradient_that_followed_another_is_linked() -> None:
    """The gradient for the answer to 6 was sent when that for the arguments of 8 had come."""
    program = only("basic_chain.pcap")
    one = blocks_of(program)[0].events[-1]
    assert isinstance(one, Pass)
    assert [gradient.request for gradient in one.roots] == [8]
    assert [gradient.request for gradient in one.linked] == [6]
    assert {request: list(link.outputs) for request, link in program.links.items()} == {8: [6]}
    assert sorted(gradient.call.index for gradient in one.back) == [11, 15]


@pytest.mark.parametrize("name", NAMES)
def test_everything_has_its_place_once(name: str) -> None:
    reproduction = made(capture_of(name).name)
    calls: list[int] = []
    gradients: list[int] = []
    for program in programs(reproduction):
        for block in blocks_of(program):
            for event in block.events:
                if isinstance(event, Send):
                    calls.append(event.call.index)
                elif isinstance(event, Pass):
                    gradients += [g.call.index for g in (*event.sent, *event.back)]
                    calls += [] if event.trigger is None else [event.trigger.index]
    assert sorted(calls) == sorted(reproduction.calls)
    assert sorted(gradients) == sorted([*reproduction.sent, *reproduction.back])
