"""Streams → TensorPipe messages: each connection is fed to the handler of what it is.

In: the streams that grew. Out: complete `TpMessage`s; in the registry, the pipes, what the TCPStore was told,
and how many bytes belong to nobody here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rpcinspect.errors import Location
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.tcp.segment import Flow
from rpcinspect.tcp.stream import Stream
from rpcinspect.tensorpipe.classify import NewHandler
from rpcinspect.tensorpipe.handler import Handler
from rpcinspect.tensorpipe.orphans import adopt, hosts_of
from rpcinspect.tensorpipe.rebuild import ReadTable
from rpcinspect.tensorpipe.records import Placement, TpMessage
from rpcinspect.tensorpipe.registry import Registry
from rpcinspect.unexpected import unexpected

T = TypeVar("T")


class Demux:
    """The stage: `feed` streams that grew, then `finish`."""

    def __init__(
        self, limits: Limits = DEFAULT_LIMITS, *, patient: bool = True, read_table: ReadTable | None = None
    ) -> None:
        """`patient`: see `PipeState`; `read_table`: see `rebuild`."""
        self.registry = Registry(limits, patient=patient, read_table=read_table)
        self.given_up: set[str] = set()
        """Flows of which messages may be lost because their reading failed."""
        self._handlers: dict[int, Handler] = {}

    def feed(self, streams: list[Stream]) -> list[TpMessage]:
        """Every message that became complete because these streams grew."""
        done: list[TpMessage] = []
        for stream in streams:
            number = stream.connection.number
            handler = self._handlers.get(number)
            if handler is None:
                handler = self._handlers[number] = NewHandler(self.registry, stream.connection)
            try:
                self._advance(handler, done)
            except Exception as error:
                self._give_up(stream.flow, error, number)
        return done

    def _advance(self, handler: Handler, done: list[TpMessage]) -> None:
        """Until the connection's role is known, as far as what was captured of it tells."""
        successor = handler.advance(done)
        while successor is not None:
            self._handlers[successor.connection.number] = successor
            successor = successor.advance(done)

    def finish(self) -> list[TpMessage]:
        """The streams have ended: everything that is left comes out."""
        done: list[TpMessage] = []
        for number, handler in list(self._handlers.items()):
            self._try(partial(self._advance, handler, done), handler.connection.flow, number)
        for number, handler in list(self._handlers.items()):
            self._try(partial(handler.end, done), handler.connection.flow, number)
        pipes = self.registry.pipes
        for state in pipes:
            done += self._try(state.finish_messages, state.pipe.flow) or ()
        orphans = [self._try(handler.orphan, handler.connection.flow) for handler in self._handlers.values()]
        found = [orphan for orphan in orphans if orphan is not None]
        adopted = self._try(partial(adopt, pipes, found)) or set()
        for number, handler in self._handlers.items():
            if number not in adopted:
                self._try(handler.finish, handler.connection.flow)
        strays = hosts_of(one for one in found if one.connection.number not in adopted)
        for state in pipes:
            ends = state.pipe.client.host, state.pipe.server.host
            elsewhere = Placement.UNCERTAIN if ends in strays else Placement.MISSING
            done += self._try(partial(state.finish, elsewhere), state.pipe.flow) or ()
            self.registry.problems += state.problems
        return done

    def _try(self, work: Callable[[], T], flow: Flow | None = None, number: int | None = None) -> T | None:
        """What it gives; None where it fails against expectation."""
        try:
            return work()
        except Exception as error:
            self._give_up(flow, error, number)
            return None

    def _give_up(self, flow: Flow | None, error: Exception, number: int | None) -> None:
        """What the connection of that number brings is looked at no more, but by others that wait for it."""
        where = Location() if flow is None else Location(flow=str(flow))
        self.registry.problems.append(unexpected(error, "tensorpipe", where))
        if flow is not None:
            self.given_up |= {str(flow), str(flow.reversed)}
        if number is not None:
            self._handlers[number] = Handler(self.registry, self._handlers[number].connection)
