"""`unexpected-envelope`: messages that travel otherwise than PyTorch's rule for wrapping has it.

The rule is that of `rpc/wrapping.py`. Kept are the device map of each pipe, and the rows that break the rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from rpcinspect.checks.check import Check, MessageGroups, finding_of
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.rpc.envelope import RpcWithAutograd, RpcWithProfilingReq, RpcWithProfilingResp
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import DeviceMapping, ProfilingId
from rpcinspect.rpc.wrapping import WRAPPED, wrong_answer, wrong_request
from rpcinspect.session.model import NONE, Finding, Session
from rpcinspect.session.provenance import MessageKind
from rpcinspect.session.words import counted, numbers
from rpcinspect.tcp.rows import distinct_numbers


class UnexpectedEnvelopes(Check):
    def __init__(self) -> None:
        self._groups = MessageGroups()
        self._maps: dict[int, DeviceMapping] = {}
        """Pipe → the map in the first envelope: a worker has one for each other, as long as it lives."""
        self._profilings: dict[int, ProfilingId] = {}
        """Of messages in envelopes of the profiler, by row."""

    def feed(self, record: RpcRecord, kind: MessageKind) -> bool:
        for envelope in record.like.envelopes:
            if isinstance(envelope, (RpcWithProfilingReq, RpcWithProfilingResp)):
                self._profilings[record.row] = envelope.profiling_id
        found = self._wrong(record, kind)
        for wrong in found:
            self._groups.add(record.row, wrong)
        return bool(found) or record.row in self._profilings

    def _wrong(self, record: RpcRecord, kind: MessageKind) -> list[str]:
        """Returns in which ways a message breaks the rule."""
        if not kind.whole:
            return []
        found = []
        if (kind.envelopes or kind.type in WRAPPED) and record.tp.from_client:
            wrong = wrong_request(kind.type, kind.builtin, kind.envelopes, kind.grads > 0)
            if wrong is not None:
                found.append(wrong)
        if not kind.autograd:
            return found
        for envelope in record.like.envelopes:
            if type(envelope) is RpcWithAutograd:
                if envelope.message_type == MessageType.FORWARD_AUTOGRAD_REQ:
                    known = self._maps.setdefault(record.tp.pipe.number, envelope.device_map)
                    if known is not envelope.device_map and known != envelope.device_map:
                        found.append("the device map differs from that of earlier requests")
                elif envelope.device_map:
                    found.append("the envelope of an answer has a device map")
        return found

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        for row, wrong in self._wrong_answers(evidence.session):
            self._groups.add(row, wrong)
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

    def _wrong_answers(self, session: Session) -> Iterator[tuple[int, str]]:
        """Yields rows of answers that do not fit their requests, and in which way."""
        columns, kinds = session.messages, session.provenance.kinds
        kind, partner = np.asarray(session.provenance.kind, np.int64), np.asarray(columns.partner)
        rows = np.flatnonzero((np.asarray(columns.from_client) == 0) & (partner != NONE))
        pairs = kind[partner[rows]] * len(kinds) + kind[rows]
        wrong = {
            pair: told
            for pair in distinct_numbers(pairs)
            if (told := _wrong_pair(kinds[pair // len(kinds)], kinds[pair % len(kinds)])) is not None
        }
        of_wrong = np.isin(pairs, list(wrong))
        for row, pair in zip(rows[of_wrong].tolist(), pairs[of_wrong].tolist(), strict=True):
            yield row, wrong[pair]
        for row, profiling in self._profilings.items():
            asked, kind_of = columns.partner[row], session.provenance.kind_of
            if columns.from_client[row] or asked == NONE or profiling == self._profilings.get(asked):
                continue
            if kind_of(row).whole and kind_of(asked).whole:
                yield row, "the answer's profiling id differs from its request's"


def _wrong_pair(request: MessageKind, answer: MessageKind) -> str | None:
    """Returns in which way the envelopes of an answer do not fit those of its request."""
    if not (request.envelopes or answer.envelopes) or not (request.whole and answer.whole):
        return None
    exception = answer.type == MessageType.EXCEPTION
    return wrong_answer(request.envelopes, answer.envelopes, answer.grads > 0, exception)
