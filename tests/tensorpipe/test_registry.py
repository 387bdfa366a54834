"""The base of all handlers: what a connection is that nobody has anything to say about."""

from __future__ import annotations

from rpcinspect.limits import DEFAULT_LIMITS
from rpcinspect.tensorpipe.pipe import PipeState
from rpcinspect.tensorpipe.records import Pipe
from rpcinspect.tensorpipe.registry import Handler, Registry, Role
from tests.tcp.test_connections import Bench, data, syn


def test_a_handler_that_knows_nothing_does_nothing() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"ab"), data(4, b"ef")])
    bench.finish()
    registry = Registry(DEFAULT_LIMITS, patient=True, read_table=None)
    handler = Handler(registry, bench.tcp.connections[0])
    done: list[object] = []
    handler.advance(done)  # type: ignore[arg-type]
    handler.finish()
    assert (done, handler.orphan(), registry.skipped_bytes) == ([], None, 0)


def test_skipping_counts_what_was_captured() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"ab"), data(4, b"ef")])
    bench.finish()
    registry = Registry(DEFAULT_LIMITS, patient=True, read_table=None)
    Handler(registry, bench.tcp.connections[0])._skip()
    assert registry.skipped_bytes == 4  # the two bytes of the hole are not


def test_a_role_is_explicit_unless_it_says_otherwise() -> None:
    bench = Bench()
    bench.feed([syn()])
    registry = Registry(DEFAULT_LIMITS, patient=True, read_table=None)
    state = PipeState(Pipe(0, bench.tcp.connections[0].flow), registry.shapes, registry.limits)
    role = Role(state, "channel", "basic", 0)
    assert not role.implied
    assert role == Role(state, "channel", "basic")
