"""`unexpected-envelope`: messages that travel otherwise than PyTorch's rule for wrapping has it.

The rule is that of `rpc/wrapping.py`. Kept are the device map of each pipe, and the rows that break the rule.
"""

from __future__ import annotations

from collections.abc import Iterable

from rpcinspect.checks.check import Check, MessageDigest, MessageGroups, finding_of
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import DeviceMapping
from rpcinspect.rpc.wrapping import WRAPPED, wrong_answer, wrong_request
from rpcinspect.session.model import Finding, MessageColumns
from rpcinspect.session.words import counted, numbers


class UnexpectedEnvelopes(Check):
    def __init__(self, columns: MessageColumns) -> None:
        self._columns = columns
        self._groups = MessageGroups(columns)
        self._maps: dict[int, DeviceMapping] = {}
        """Pipe → the map in the first envelope: a worker has one for each other, as long as it lives."""

    def feed(self, record: RpcRecord, digest: MessageDigest) -> bool:
        found = self._wrong(record, digest)
        for wrong in found:
            self._groups.add(record.row, wrong)
        return bool(found)

    def _wrong(self, record: RpcRecord, digest: MessageDigest) -> list[str]:
        """Returns in which ways a message breaks the rule."""
        if not digest.whole:
            return []
        found = []
        row = record.row
        if (digest.types or digest.kind in WRAPPED) and self._columns.from_client[row]:
            wrong = wrong_request(digest.kind, digest.builtin, digest.types, digest.grads)
            if wrong is not None:
                found.append(wrong)
        if not digest.wrapped:
            return found
        for envelope in record.like.envelopes:
            if type(envelope) is RpcWithAutograd:
                if envelope.message_type == MessageType.FORWARD_AUTOGRAD_REQ:
                    known = self._maps.setdefault(self._columns.pipe[row], envelope.device_map)
                    if known is not envelope.device_map and known != envelope.device_map:
                        found.append("the device map differs from that of earlier requests")
                elif envelope.device_map:
                    found.append("the envelope of an answer has a device map")
        return found

    def exchange(self, row: int, request: MessageDigest, answer_row: int, answer: MessageDigest) -> bool:
        found = _wrong_pair(request, answer)
        for wrong in found:
            self._groups.add(answer_row, wrong)
        return bool(found)

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        for group in self._groups.gathered(evidence):
            yield finding_of(
                group,
                "unexpected-envelope",
                "warning",
                f"{counted(len(group.indexes), 'message')} {group.way} ({numbers(group.indexes)}): "
                f"{group.what}.",
                "No release of PyTorch up to 2.14 does this: look at the bytes (decode --message N), and who "
                "wrote them.",
            )


def _wrong_pair(request: MessageDigest, answer: MessageDigest) -> list[str]:
    """Returns in which ways an answer does not fit its request."""
    if not (request.types or answer.types) or not (request.whole and answer.whole):
        return []
    found = []
    exception = answer.kind == MessageType.EXCEPTION
    wrong = wrong_answer(request.types, answer.types, answer.grads, exception)
    if wrong is not None:
        found.append(wrong)
    if answer.profiling is not None and answer.profiling != request.profiling:
        found.append("the answer's profiling id differs from its request's")
    return found
