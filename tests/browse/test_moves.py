"""Moves from a message: what the run says, each way back leads to where one came from."""

from __future__ import annotations

import pytest

from rpcinspect.browse.moves import MOVES, targets
from rpcinspect.run.run import RunModel
from tests.places import recorded

BY_NAME = {move.name: move for move in MOVES}
CAPTURES = ("basic_chain.pcap", "rref_relay.pcap", "bwd_boom.pcap", "reports/concurrent/chain_ctx1.pcap")


def numbers(name: str, run: RunModel, index: int) -> list[int]:
    return [target.message for target in targets(BY_NAME[name], run, index)]


@pytest.mark.parametrize("name", CAPTURES)
def test_each_move_has_its_way_back(name: str) -> None:
    with RunModel.open([str(recorded(name))]) as run:
        for index in range(len(run)):
            for partner in numbers("partner", run, index):
                assert numbers("partner", run, partner) == [index]
            for child in numbers("children", run, index):
                request = index if run.message(index).is_request else numbers("partner", run, index)[0]
                assert numbers("parent", run, child) == [request]
            for other in numbers("gradient", run, index):
                back = numbers("gradient", run, other)
                request = run.message(index).exchange
                assert index in back or (request is not None and request.index in back)


def test_gradients_lead_to_the_forward_message_of_their_edge() -> None:
    """basic_chain: the gradient of an edge names the edge's ids."""
    with RunModel.open([str(recorded("basic_chain.pcap"))]) as run:
        assert {index: numbers("gradient", run, index) for index in (6, 7, 8, 9)} == {
            6: [15],
            7: [13],
            8: [11],
            9: [10],
        }
        ids = {
            index: run.messages[index].rpc.command.autograd_metadata.autograd_message_id  # type: ignore[attr-defined]
            for index in (10, 11, 13, 15)
        }
        for gradient, edge in ids.items():
            (forward,) = numbers("gradient", run, gradient)
            envelope = run.messages[forward].rpc.envelopes[-1]
            assert envelope.autograd_metadata.autograd_message_id == edge  # type: ignore[union-attr]


def test_the_life_of_a_reference_is_what_its_messages_name() -> None:
    """Whoever fetches, forks or deletes an RRef names its id on the wire."""
    with RunModel.open([str(recorded("rref_relay.pcap"))]) as run:
        moved = 0
        for index in range(len(run)):
            found = targets(BY_NAME["rref"], run, index)
            moved += bool(found)
            assert all("rref " in target.text for target in found)
            for target in found:
                assert index in numbers("rref", run, target.message)
        assert moved > 4


def test_an_uncertain_cause_is_told_as_such() -> None:
    with RunModel.open([str(recorded("reports/names/guests.pcap"))]) as run:
        for index, doubt in run.causes.doubts.items():
            found = targets(BY_NAME["parent"], run, index)
            assert [target.message for target in found] == list(doubt.parents)
            assert all("ambiguous" in target.text for target in found)
            assert "ambiguous" in BY_NAME["parent"].none(run, index)
        assert run.causes.doubts
