"""The base of all handlers: what a connection is that nobody has anything to say about."""

from __future__ import annotations

from rpcinspect.wire.demux import Demux
from rpcinspect.wire.handler import Handler, Role
from rpcinspect.wire.pipe import PipeState
from rpcinspect.wire.records import Pipe
from tests.wire.test_tcp import Bench, data, syn


def test_a_handler_that_knows_nothing_does_nothing() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"ab"), data(4, b"ef")])
    bench.finish()
    demux = Demux()
    handler = Handler(demux, bench.tcp.connections[0])
    done: list[object] = []
    handler.advance(done)  # type: ignore[arg-type]
    handler.finish()
    assert (done, handler.orphan(), demux.skipped_bytes) == ([], None, 0)


def test_skipping_counts_what_was_captured() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"ab"), data(4, b"ef")])
    bench.finish()
    demux = Demux()
    Handler(demux, bench.tcp.connections[0])._skip()
    assert demux.skipped_bytes == 4  # the two bytes of the hole are not


def test_a_role_is_explicit_unless_it_says_otherwise() -> None:
    bench = Bench()
    bench.feed([syn()])
    demux = Demux()
    state = PipeState(Pipe(0, bench.tcp.connections[0].flow), demux.shapes, demux.limits)
    role = Role(state, "channel", "basic", 0)
    assert not role.implied
    assert role == Role(state, "channel", "basic")
