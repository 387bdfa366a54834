"""What is taken from the TCP stage."""

from __future__ import annotations

from rpcinspect.trace.wire_facts import ConnectionEnd, Ends, WireFacts
from tests.session.records import pipe
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
    assert any("it closed the connection first" in finding.text for finding in found)


def test_an_end_belongs_to_the_pipe_of_its_time() -> None:
    """A port that is used again."""

    def end(begin_ns: int, by_client: bool) -> ConnectionEnd:
        return ConnectionEnd(
            flow="10.0.0.1:1000>10.0.0.2:5000",
            begin_ns=begin_ns,
            last_ns=begin_ns + 9,
            by_client=by_client,
            how="closed",
            time_ns=begin_ns + 9,
        )

    ends = Ends([end(0, True), end(100, False)])
    made = pipe()
    for first_ns, by_client in ((5, True), (105, False)):
        made.first_ns = first_ns
        found = ends.of(made)
        assert found is not None
        assert found.by_client is by_client
    made.first_ns = 50
    assert ends.of(made) is None
