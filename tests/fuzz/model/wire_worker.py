"""What happens to a message of TorchScript in a live worker, which is the agent of the oracle's own fork.

A peer of ours, in the same process, sends the payload over the loopback interface; torch's C++ reads and runs
it. The answer tells: classes and functions that it looked for, and whether a canary ran.
"""

from __future__ import annotations

import re
from typing import Any

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.loop import Loop
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.rpc.message import MessageType, RpcMessage
from tests.fuzz.model.jobs import Fault, Job, Seen
from tests.fuzz.model.script_values import STORAGES, TABLE

SECONDS = 5.0
_UNKNOWN = re.compile(rb"Unknown type name '([\w.]+)'")


class WireWorker:
    """Sends to the agent of this process."""

    def __init__(self, address: str) -> None:
        self._loop = Loop()
        self._peer = Peer(self._loop, "w1", 1)
        self._peer.addresses["w0"] = address

    def examine(self, job: Job) -> Seen:
        """What came of the message."""
        try:
            answer = self._peer.call(
                "w0", RpcMessage(int(job.sort), 0, job.data, TABLE), STORAGES, timeout_s=SECONDS
            )
        except ReplayError as error:
            return Seen((Fault("answer", str(error)),))
        return Seen(
            tuple(self._faults(job, answer.message.payload)), (), answer.message.type != MessageType.EXCEPTION
        )

    def _faults(self, job: Job, payload: bytes) -> Any:
        if b"canary ran" in payload:
            yield Fault("called", "canary.scripted")
        for found in _UNKNOWN.findall(payload):
            name = found.decode()
            if name not in job.named and name.removeprefix("__torch__.") not in job.named:
                yield Fault("import", name)
