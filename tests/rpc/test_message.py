from __future__ import annotations

import pytest

from rpcinspect.errors import DecodeError
from rpcinspect.rpc.command_codec import COMMANDS
from rpcinspect.rpc.envelope import ENVELOPES
from rpcinspect.rpc.message import (
    MessageType,
    RpcMessage,
    from_payloads,
    is_request,
    is_response,
    type_name,
)

# the four payloads of a PYTHON_CALL with id 1, as in wire-format.md
PAYLOADS = (
    bytes.fromhex("0f 01 00 00"),  # 0x10f: FORWARD_AUTOGRAD_REQ
    bytes.fromhex("01 00 00 00 00 00 00 00"),  # id 1
    b"payload",
    b"table",
)


NEVER_SENT = frozenset({MessageType.UNKNOWN})
"""Members of MessageType that are neither commands nor envelopes."""


def test_payloads_there_and_back() -> None:
    message = from_payloads(PAYLOADS)
    assert message == RpcMessage(MessageType.FORWARD_AUTOGRAD_REQ, 1, b"payload", b"table")
    assert message.to_payloads() == PAYLOADS


def test_signed_numbers() -> None:
    message = RpcMessage(-2, -3, b"", b"")
    assert from_payloads(message.to_payloads()) == message
    assert message.to_payloads()[1] == b"\xfd" + b"\xff" * 7


@pytest.mark.parametrize(
    "payloads",
    [(), PAYLOADS[:3], (*PAYLOADS, b""), (b"\1\1\0", *PAYLOADS[1:]), (PAYLOADS[0], b"", *PAYLOADS[2:])],
    ids=["none", "three", "five", "short type", "short id"],
)
def test_other_payloads_are_refused(payloads: tuple[bytes, ...]) -> None:
    with pytest.raises(DecodeError) as caught:
        from_payloads(payloads)
    assert caught.value.layer == "rpc"


def test_every_type_is_a_command_or_an_envelope_or_never_sent() -> None:
    for member in MessageType:
        assert [member in COMMANDS, member in ENVELOPES, member in NEVER_SENT].count(True) == 1, member
    assert len(COMMANDS) + len(ENVELOPES) + len(NEVER_SENT) == len(MessageType)


def test_request_and_response_bits() -> None:
    for member in MessageType:
        if member in NEVER_SENT:
            assert not is_request(member)
            assert not is_response(member)
        else:
            assert is_request(member) != is_response(member)
    assert is_response(MessageType.EXCEPTION)


def test_names() -> None:
    assert type_name(0x210) == "FORWARD_AUTOGRAD_RESP"
    assert type_name(0x1AB) == "0x1ab"
    assert type_name(-1) == "0xffffffff"
