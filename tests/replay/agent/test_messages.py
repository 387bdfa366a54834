"""Messages of a played worker behind which torch stands, taken apart and put together."""

from __future__ import annotations

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.replay.agent.messages import autograd_envelope, made, read_message, split_blob
from rpcinspect.rpc.command import PythonCall, PythonResp
from rpcinspect.rpc.message import Message, MessageType
from tests.replay.captured import captured
from tests.truth import capture_of


def test_what_is_put_together_is_what_torch_wrote() -> None:
    """Every Python call and answer of a job, from its parts."""
    count = 0
    with captured(str(capture_of("basic_chain"))) as messages:
        for one in messages:
            command, context, edge = read_message(one.message)
            if not isinstance(command, (PythonCall, PythonResp)) or context is None or edge is None:
                continue
            answer = isinstance(command, PythonResp)
            envelope = autograd_envelope(context, edge, int(answer), command, answer=answer)
            message = made(command, [envelope], one.message.tensor_table)
            assert (message.type, message.payload) == (one.message.type, one.message.payload)
            count += 1
    assert count == 2


def test_without_an_envelope() -> None:
    message = made(PythonResp(b"\x80\x02N."))
    assert message.type == MessageType.PYTHON_RET
    assert read_message(message) == (PythonResp(b"\x80\x02N."), None, None)


def test_what_can_not_be_read() -> None:
    with pytest.raises(ReplayError, match="FORWARD_AUTOGRAD_REQ"):
        read_message(Message(int(MessageType.FORWARD_AUTOGRAD_REQ), 0, b"x", b""))


def test_a_blob() -> None:
    assert split_blob({"pickle": 2, "storages": [1, 0, 3]}, b"ppaccc") == (b"pp", [b"a", b"", b"ccc"])
