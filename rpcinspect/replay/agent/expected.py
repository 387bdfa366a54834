"""What is taken from the capture where torch's agent does not show it: who asks, and with which marks.

In: the captured questions of live workers to a played one, and their gradients. Out: the captured question
that a live one looks like, which tells its sender and whether its function is asynchronous; the
`retain_graph` of a gradient.
"""

from __future__ import annotations

from collections.abc import Iterable

from rpcinspect.rpc.command import PropagateGradientsReq, PythonCall
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.run.exchanges import Exchange


class ExpectedQuestions:
    """Captured questions in Python that have not come yet, in order."""

    def __init__(self, asked: Iterable[Exchange]) -> None:
        self._asked = list(asked)

    def take(self, pickle: bytes, sender: str | None) -> Exchange | None:
        """The first with these bytes, otherwise the first of all; `sender`: of this worker's only, if it is
        known. It won't be found again."""
        same = [call for call in self._asked if sender is None or call.caller == sender]
        exact = [call for call in same if _pickle(call) == pickle]
        for call in (exact or same)[:1]:
            self._asked.remove(call)
            return call
        return None


def is_async_call(call: Exchange) -> bool:
    """Whether a function is marked as asynchronous."""
    command = call.request.rpc.command
    return isinstance(command, PythonCall) and command.is_async_execution


def retained(calls: Iterable[Exchange], metadata: AutogradMetadata, number: int) -> bool:
    """`retain_graph` of the gradients that came for an edge as the `number`th, from 0."""
    found = [
        call.request.rpc.command.retain_graph
        for call in calls
        if isinstance(call.request.rpc.command, PropagateGradientsReq)
        and call.request.rpc.command.autograd_metadata == metadata
    ]
    return found[min(number, len(found) - 1)] if found else False


def _pickle(call: Exchange) -> bytes:
    command = call.request.rpc.command
    return command.serialized_py_obj if isinstance(command, PythonCall) else b""
