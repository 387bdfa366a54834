"""The RPC message: what the four TensorPipe payloads of one message say.

In: the payloads (4 bytes type, 8 bytes id, the RPC payload, the pickle of the tensor list), each whole.
Out: `RpcMessage`, with the two last kept as bytes for the stages above. `to_payloads` is the way back.
Mirrors torch/csrc/distributed/rpc/message.h and tensorpipe_utils.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from msgspec import Struct

from rpcinspect.errors import DecodeError

REQUEST_TYPE = 0x100
RESPONSE_TYPE = 0x200
NO_TENSORS = b"\x80\x02ctorch.jit._pickle\nbuild_tensorlist\nq\x00(](etR."
"""The table of a message without tensors: PROTO 2, `build_tensorlist([])`."""


class MessageType(IntEnum):
    """The kinds of messages; low byte: kind, 0x100: request, 0x200: response."""

    SCRIPT_CALL = 0x100
    SCRIPT_RET = 0x201
    PYTHON_CALL = 0x102
    PYTHON_RET = 0x203
    SCRIPT_REMOTE_CALL = 0x104
    PYTHON_REMOTE_CALL = 0x105
    REMOTE_RET = 0x206
    SCRIPT_RREF_FETCH_CALL = 0x107
    PYTHON_RREF_FETCH_CALL = 0x108
    SCRIPT_RREF_FETCH_RET = 0x209
    PYTHON_RREF_FETCH_RET = 0x20A
    RREF_USER_DELETE = 0x10B
    RREF_FORK_REQUEST = 0x10C
    RREF_CHILD_ACCEPT = 0x10D
    RREF_ACK = 0x20E
    FORWARD_AUTOGRAD_REQ = 0x10F
    FORWARD_AUTOGRAD_RESP = 0x210
    BACKWARD_AUTOGRAD_REQ = 0x111
    BACKWARD_AUTOGRAD_RESP = 0x212
    CLEANUP_AUTOGRAD_CONTEXT_REQ = 0x113
    CLEANUP_AUTOGRAD_CONTEXT_RESP = 0x214
    RUN_WITH_PROFILING_REQ = 0x115
    RUN_WITH_PROFILING_RESP = 0x216
    RREF_BACKWARD_REQ = 0x117
    RREF_BACKWARD_RESP = 0x218
    EXCEPTION = 0x237
    UNKNOWN = 0x3C


ANSWERS: dict[int, int] = {
    MessageType.SCRIPT_CALL: MessageType.SCRIPT_RET,
    MessageType.PYTHON_CALL: MessageType.PYTHON_RET,
    MessageType.SCRIPT_REMOTE_CALL: MessageType.REMOTE_RET,
    MessageType.PYTHON_REMOTE_CALL: MessageType.REMOTE_RET,
    MessageType.SCRIPT_RREF_FETCH_CALL: MessageType.SCRIPT_RREF_FETCH_RET,
    MessageType.PYTHON_RREF_FETCH_CALL: MessageType.PYTHON_RREF_FETCH_RET,
    MessageType.RREF_USER_DELETE: MessageType.RREF_ACK,
    MessageType.RREF_FORK_REQUEST: MessageType.RREF_ACK,
    MessageType.RREF_CHILD_ACCEPT: MessageType.RREF_ACK,
    MessageType.BACKWARD_AUTOGRAD_REQ: MessageType.BACKWARD_AUTOGRAD_RESP,
    MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ: MessageType.CLEANUP_AUTOGRAD_CONTEXT_RESP,
    MessageType.RREF_BACKWARD_REQ: MessageType.RREF_BACKWARD_RESP,
}
"""What torch answers each request with, envelopes aside and unless it failed (request_callback*.cpp)."""


def fits(request_type: int, answer_type: int) -> bool:
    """Whether torch answers such a request so. Whoever asked takes the answer apart by its own type, and some
    of what is text in one is a pickle in another.
    """
    return answer_type in (ANSWERS.get(request_type), MessageType.EXCEPTION)


def is_request(message_type: int) -> bool:
    """Whether the request bit is set; types that we do not know have it too."""
    return bool(message_type & REQUEST_TYPE)


def is_response(message_type: int) -> bool:
    """Whether the response bit is set."""
    return bool(message_type & RESPONSE_TYPE)


def type_name(message_type: int) -> str:
    """Upstream's name, or the number in hex where there is none."""
    name = TYPE_NAMES.get(message_type)
    return name if name is not None else f"0x{message_type & 0xFFFFFFFF:03x}"


class RpcMessage(Struct):
    """An RPC message with encoded parts. Not frozen: that triples the cost of making one."""

    type: int
    """A `MessageType`, or any other i32 from a release that we do not know."""
    id: int
    """The requester's counter; the answer repeats it."""
    payload: bytes
    """Envelopes and command."""
    tensor_table: bytes
    """JIT pickle of the tensor list; the tensors' bytes travel beside the message."""

    def to_payloads(self) -> tuple[bytes, bytes, bytes, bytes]:
        """The four TensorPipe payloads."""
        return (
            self.type.to_bytes(4, "little", signed=True),
            self.id.to_bytes(8, "little", signed=True),
            self.payload,
            self.tensor_table,
        )


def are_torchs(payloads: Sequence[bytes]) -> bool:
    """Whether the payloads of a TensorPipe message are type, id, payload and tensor table."""
    return len(payloads) == 4 and [len(payload) for payload in payloads[:2]] == [4, 8]


def from_payloads(payloads: Sequence[bytes]) -> RpcMessage:
    """The message in the payloads of one TensorPipe message; DecodeError if they are not 4, 8, any, any
    bytes."""
    if len(payloads) != 4:
        raise DecodeError("rpc", f"expected 4 payloads, found {len(payloads)}")
    kind, message_id, payload, tensor_table = payloads
    if len(kind) != 4 or len(message_id) != 8:
        raise DecodeError(
            "rpc", f"expected payloads of 4 and 8 bytes, found {len(kind)} and {len(message_id)}"
        )
    return RpcMessage(
        int.from_bytes(kind, "little", signed=True),
        int.from_bytes(message_id, "little", signed=True),
        payload,
        tensor_table,
    )


TYPE_NAMES: dict[int, str] = {int(member): member.name for member in MessageType}
