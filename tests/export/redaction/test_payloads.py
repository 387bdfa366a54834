"""Payloads: everything that a decoder needs stays, what nobody can read goes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.export.redaction.payloads import redact_payload, redact_table
from rpcinspect.export.redaction.pseudonyms import Pseudonyms
from rpcinspect.rpc.command import ScriptCall
from rpcinspect.rpc.decode import RpcDecoder
from rpcinspect.rpc.message import MessageType, RpcMessage
from rpcinspect.run.run import open_run

WORDS = Pseudonyms(b"key")
CAPTURES = Path(__file__).resolve().parents[3] / "captures"


def payloads(name: str) -> list[tuple[int, bytes, bytes]]:
    with open_run(str(CAPTURES / name)) as opened:
        return [(r.rpc.message.type, r.tp.payloads[2], r.tp.payloads[3]) for r in opened.messages]


@pytest.mark.parametrize("name", ["rref_relay.pcap.gz", "profiled_legacy.pcap", "redaction/vault.pcap.gz"])
def test_payloads_decode_as_before(name: str) -> None:
    decoder = RpcDecoder()
    for kind, payload, table in payloads(name):
        made = redact_payload(kind, payload, WORDS)
        other = redact_table(table, WORDS)
        assert (len(made), len(other)) == (len(payload), len(table))
        before = decoder.decode(RpcMessage(kind, 0, payload, table))
        after = decoder.decode(RpcMessage(kind, 0, made, other))
        assert type(after.command) is type(before.command)
        assert after.problems == before.problems
        if isinstance(before.command, ScriptCall) and before.command.schema is not None:
            assert isinstance(after.command, ScriptCall)
            assert after.command.schema == before.command.schema
        assert [type(e) for e in after.envelopes] == [type(e) for e in before.envelopes]
        assert [(t.sizes, t.strides, t.dtype, t.storage) for t in after.tensors] == [
            (t.sizes, t.strides, t.dtype, t.storage) for t in before.tensors
        ]


@given(st.sampled_from(list(MessageType)), st.binary(max_size=60))
def test_any_bytes_give_as_many_others(kind: MessageType, payload: bytes) -> None:
    assert len(redact_payload(int(kind), payload, WORDS)) == len(payload)
    assert len(redact_table(payload, WORDS)) == len(payload)


def test_damaged_payloads_are_replaced_as_a_whole() -> None:
    for kind, payload, _ in payloads("redaction/vault.pcap.gz"):
        if b"Zq7SECRET" not in payload:
            continue
        for at in range(0, len(payload), 7):
            cut = payload[:at] + b"\xff\xff\xff" + payload[at + 3 :]
            assert b"Zq7SECRET" not in redact_payload(kind, cut, WORDS)
            assert b"Zq7SECRET" not in redact_payload(kind, payload[:at], WORDS)
            assert b"Zq7SECRET" not in redact_payload(kind ^ 0x300, payload, WORDS)


def test_unknown_types_are_replaced_as_a_whole() -> None:
    payload = b"\x80\x04\x8c\x06SECRET."
    made = redact_payload(0x142, payload, WORDS)
    assert made != payload
    assert len(made) == len(payload)
    assert made.isalnum()


def test_tables_that_can_not_be_read() -> None:
    assert b"secret" not in redact_table(b"\x80\x02X\x06\x00\x00\x00secret.", WORDS)
    assert gzip.compress(b"x") != redact_table(gzip.compress(b"x"), WORDS)
