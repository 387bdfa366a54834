"""What is taken from the TCP stage."""

from __future__ import annotations

from rpcinspect.trace.wire_facts import WireFacts
from tests.trace.talks import of_capture
from tests.wire.conversations import Hole, Network, PipeTalk, Said, play


def test_nothing() -> None:
    assert WireFacts.of([]) == WireFacts()


def test_holes() -> None:
    network = Network()
    talk = PipeTalk(network)
    talk.send(Said(id=1, payload=b"x" * 500))
    outcome = play(
        network, holes=[Hole(talk.descriptor, True, 100, 130), Hole(talk.descriptor, True, 200, 201)]
    )
    wire = WireFacts.of(outcome.tcp.connections)
    flow = str(network.flows[talk.descriptor])
    assert wire.holes == ((flow, 2, 31),)
    assert wire.damaged == {flow}
    assert (wire.cut_bytes, wire.conflicts) == (0, ())


def test_the_end_of_a_connection_is_known() -> None:
    """A worker died in this run, and the other one is told by its missing answer."""
    _, found = of_capture("faults/dies")
    assert any("the connection was closed" in finding.text for finding in found)
