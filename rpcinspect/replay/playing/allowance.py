"""How much memory live workers may take, by what the capture has.

In: a planned session and its captured exchanges. Out: bytes for each live worker, beyond those that it has
once it has joined. Captured bytes count, not announced ones: a capture can't raise the bound by a lie.
"""

from __future__ import annotations

from collections.abc import Mapping

from rpcinspect.replay.planning.model import PlannedSession
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.exchanges import Exchange

LEAST = 4 * 10**9
"""A model of some hundred million parameters, with gradients and the state of an optimizer, is made by a
message of a few numbers."""
TIMES = 16
"""Of all bytes that are sent and come back: as if all were kept, with gradients, copies and what is computed
between them."""


def allowance(planned: PlannedSession, calls: Mapping[int, Exchange]) -> int:
    """Bytes for each live worker of a session."""
    replayed = [calls[step.message] for step in planned.steps if step.action != "skip"]
    both = [record for call in replayed for record in (call.request, call.response) if record is not None]
    return max(LEAST, TIMES * sum(map(captured_bytes, both)))


def captured_bytes(record: RpcRecord) -> int:
    """Of payloads and tensors."""
    tensors = (
        tensor.descriptor.length - tensor.missing_bytes
        for tensor in record.tp.tensors
        if tensor.extent is not None
    )
    return sum(map(len, record.tp.payloads)) + sum(tensors)
