"""Redaction of one message: whatever its bytes are, as many come out, and they decode as before.

In: bytes of `seeds`, changed: a message type, whether the payload or the tensor table follows, and that.
"""

from __future__ import annotations

from collections.abc import Iterator

from rpcinspect.export.redaction.payloads import redact_payload, redact_table
from rpcinspect.export.redaction.pseudonyms import Pseudonyms
from rpcinspect.rpc.command import UnknownCommand
from rpcinspect.rpc.decode import DecodedRpc, RpcDecoder
from rpcinspect.rpc.message import NO_TENSORS, RpcMessage
from rpcinspect.rpc.pickle_facts import FactsReader, PickleFacts
from tests.fuzz import corpus

WORDS = Pseudonyms(b"key", ["worker0", "worker1"])
HEAD = 5
PAYLOAD, TABLE = 0, 1


def redaction(data: bytes) -> None:
    """Same length; the same command, envelopes, tensors and number of problems."""
    if len(data) < HEAD:
        return
    kind, what, said = int.from_bytes(data[:4], "little", signed=True), data[4] & 1, data[HEAD:]
    made = redact_table(said, WORDS) if what == TABLE else redact_payload(kind, said, WORDS)
    assert len(made) == len(said)
    before, after = (_shape(kind, what, part) for part in (said, made))
    if before[0] != UnknownCommand.__name__:
        assert before == after
        assert _forks(kind, what, said) <= _forks(kind, what, made)  # a name that was no text is one now


def _decode(kind: int, what: int, said: bytes) -> tuple[DecodedRpc, PickleFacts]:
    payload, table = (b"", said) if what == TABLE else (said, NO_TENSORS)
    rpc = RpcDecoder().decode(RpcMessage(kind, 7, payload, table))
    return rpc, FactsReader().read(rpc.command)


def _shape(kind: int, what: int, said: bytes) -> tuple[object, ...]:
    rpc, facts = _decode(kind, what, said)
    broken = facts.pickle is not None and facts.pickle.error is not None
    tensors = [(t.dtype, t.sizes, t.strides, t.storage, t.parts) for t in rpc.tensors]
    envelopes = [type(envelope).__name__ for envelope in rpc.envelopes]
    failed = facts.failed and not broken
    return type(rpc.command).__name__, envelopes, tensors, len(rpc.problems), broken, failed


def _forks(kind: int, what: int, said: bytes) -> set[tuple[object, ...]]:
    """Of a pickle that can be read; a table has none."""
    _, facts = _decode(kind, what, said)
    if facts.pickle is not None and facts.pickle.error is not None:
        return set()
    return {fork[:4] for fork in facts.forks}


def redaction_seeds() -> Iterator[bytes]:
    """Payloads and tables of captured messages."""
    for path in corpus.captures():
        for message in corpus.messages(path):
            kind = message.record.rpc.message.type.to_bytes(4, "little", signed=True)
            for what, part in zip((PAYLOAD, TABLE), message.payloads, strict=False):
                yield kind + bytes([what]) + part
