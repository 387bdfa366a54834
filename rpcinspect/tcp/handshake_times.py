"""At which end of a connection a sniffer sits, by the times of TCP's handshake.

In: the TCP segments of captures, a block at a time. Out: the host at which each capture was made, where its
handshakes agree. At the client's host SYN and SYN/ACK are a round trip apart, and the ACK follows at once; at
the server's it is the other way round. A sniffer between the two, or one that many hosts share, sees either,
or neither.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from rpcinspect.capture.block import SegmentBlock
from rpcinspect.tcp.segment import ACK, RST, SYN, Flow

AT_ONCE = 4
"""One pause is a round trip, and the other is none, where it is so many times as long,"""
LEAST_NS = 20_000
"""and lasts so long."""
LEAST_HANDSHAKES = 4
MAX_OPEN = 1000
"""Handshakes that are followed at once."""


class _Handshake(Struct):
    """A handshake that has begun."""

    number: int
    """Of the client's flow, in the segmenter's table."""
    syn_ns: int
    reply_ns: int | None = None
    """When the SYN/ACK was captured."""
    again: bool = False
    """SYN or SYN/ACK came more than once: something was lost, and the times tell nothing."""


class HandshakeTimes:
    """Follows the handshakes of captures that are read one after the other."""

    def __init__(self) -> None:
        self._open: dict[Flow, _Handshake] = {}
        """By the client's flow."""
        self._capture = -1
        self._found: dict[int, Counter[str]] = defaultdict(Counter)
        """Capture → host → handshakes by which it was made there."""

    def host(self, capture: int) -> str | None:
        """Returns where a capture was made; None where that is not certain."""
        found = self._found.get(capture, Counter())
        told = [host for host, count in found.items() if count >= LEAST_HANDSHAKES]
        return told[0] if told and len(found) == 1 else None

    def note(self, block: SegmentBlock, flows: Sequence[Flow]) -> None:
        """Takes the segments of a block; `flows` is the segmenter's table."""
        if block.capture != self._capture:
            self._capture, self._open = block.capture, {}
        numbers = {one.number for one in self._open.values()}
        numbers.update(block.flow[(block.flags & SYN) != 0].tolist())
        if numbers:
            for row in np.flatnonzero(np.isin(block.flow, list(numbers))).tolist():
                number = int(block.flow[row])
                self._step(flows[number], number, int(block.flags[row]), int(block.time_ns[row]))

    def _step(self, flow: Flow, number: int, flags: int, time_ns: int) -> None:
        one = self._open.get(flow)
        if flags & SYN and flags & ACK:
            one = self._open.get(flow.reversed)
            if one is not None:
                one.again = one.again or one.reply_ns is not None
                one.reply_ns = time_ns
        elif flags & SYN and one is not None:
            one.again = True
        elif flags & SYN:
            if len(self._open) < MAX_OPEN and flow.source.host != flow.destination.host:
                self._open[flow] = _Handshake(number, time_ns)
        elif one is not None:
            del self._open[flow]
            if one.reply_ns is not None and not one.again and not flags & RST:
                self._judge(flow, one.reply_ns - one.syn_ns, time_ns - one.reply_ns)

    def _judge(self, flow: Flow, first_ns: int, second_ns: int) -> None:
        """Notes what a handshake tells by its two pauses."""
        if first_ns >= max(LEAST_NS, AT_ONCE * second_ns):
            self._found[self._capture][flow.source.host] += 1
        elif second_ns >= max(LEAST_NS, AT_ONCE * first_ns):
            self._found[self._capture][flow.destination.host] += 1
