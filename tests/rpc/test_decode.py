from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from rpcinspect.errors import DecodeError
from rpcinspect.rpc.command import PythonCall, RRefAck, UnknownCommand
from rpcinspect.rpc.decode import RpcDecoder, reencode
from rpcinspect.rpc.envelope import RpcWithAutograd, RpcWithProfilingReq
from rpcinspect.rpc.message import MessageType as M
from rpcinspect.rpc.message import RpcMessage, from_payloads, type_name
from tests.places import OTHER_JOBS, recorded, recordings
from tests.rpc.payloads import payloads
from tests.rpc.test_command_codec import UDF, VECTORS
from tests.rpc.test_envelope import AUTOGRAD, PROFILING
from tests.rpc.test_tensor import EMPTY, FLOAT3, ONE
from tests.thorough import examples

CALL = b"\0" + UDF
FORWARD = RpcMessage(M.FORWARD_AUTOGRAD_REQ, 5, CALL + AUTOGRAD, ONE)
PROFILED = RpcMessage(
    M.RUN_WITH_PROFILING_REQ, 6, CALL + AUTOGRAD + PROFILING.replace(b"\x4d\x02\x01", b"\x4d\x0f\x01"), EMPTY
)


def test_a_whole_message() -> None:
    decoded = RpcDecoder().decode(PROFILED)
    assert [type(envelope) for envelope in decoded.envelopes] == [RpcWithProfilingReq, RpcWithAutograd]
    assert decoded.command == PythonCall(UDF, False)
    assert (decoded.tensors, decoded.problems) == ((), ())
    assert RpcDecoder().decode(FORWARD).tensors == (FLOAT3,)


def test_equal_bytes_give_the_same_objects() -> None:
    decoder = RpcDecoder()
    first = decoder.decode(FORWARD)
    second = decoder.decode(structs.replace(FORWARD, id=6, payload=b"" + CALL + AUTOGRAD))
    assert first.command is second.command
    assert first.tensors is second.tensors
    assert first.envelopes == second.envelopes


def test_the_same_bytes_under_another_type_are_another_command() -> None:
    decoder = RpcDecoder()
    assert decoder.decode(RpcMessage(M.RREF_ACK, 0, b"", EMPTY)).command == RRefAck()
    assert decoder.decode(RpcMessage(M.PYTHON_RET, 0, b"", EMPTY)).command != RRefAck()
    assert decoder.decode(RpcMessage(0x1AB, 0, b"", EMPTY)).command == UnknownCommand(0x1AB, b"")


def test_unknown_types_are_no_problem() -> None:
    decoded = RpcDecoder().decode(RpcMessage(0x1AB, 0, b"abc", EMPTY))
    assert decoded.command == UnknownCommand(0x1AB, b"abc")
    assert decoded.problems == ()


def test_damage_keeps_what_is_readable() -> None:
    decoder = RpcDecoder()
    # the command inside of a good envelope
    decoded = decoder.decode(structs.replace(FORWARD, payload=b"\x07" + AUTOGRAD))
    assert [type(envelope) for envelope in decoded.envelopes] == [RpcWithAutograd]
    assert decoded.command == UnknownCommand(M.PYTHON_CALL, b"\x07")
    assert decoded.tensors == (FLOAT3,)
    assert [layer for layer, _ in decoded.problems] == ["rpc"]
    # the inner one of two envelopes
    inner = CALL + AUTOGRAD[:-8] + bytes(8)
    decoded = decoder.decode(structs.replace(PROFILED, payload=inner + PROFILED.payload[-(75 + 8) :]))
    assert [type(envelope) for envelope in decoded.envelopes] == [RpcWithProfilingReq]
    assert decoded.command == UnknownCommand(M.FORWARD_AUTOGRAD_REQ, inner)
    assert len(decoded.problems) == 1
    # the tensor table, and everything
    decoded = decoder.decode(structs.replace(FORWARD, tensor_table=ONE[:-1]))
    assert decoded.command == PythonCall(UDF, False)
    assert decoded.tensors == ()
    assert [layer for layer, _ in decoded.problems] == ["pickle"]
    decoded = decoder.decode(structs.replace(FORWARD, payload=b"", tensor_table=b""))
    assert len(decoded.problems) == 2
    # what was not read is carried as it was
    assert reencode(decoded) == structs.replace(FORWARD, payload=b"", tensor_table=b"").to_payloads()


@pytest.mark.parametrize("message", [FORWARD, PROFILED], ids=["autograd", "profiled"])
def test_written_again(message: RpcMessage) -> None:
    assert reencode(RpcDecoder().decode(message)) == message.to_payloads()


def test_one_field_changes_one_thing() -> None:
    decoded = RpcDecoder().decode(FORWARD)
    (envelope,) = decoded.envelopes
    assert isinstance(envelope, RpcWithAutograd)
    changed = structs.replace(decoded, envelopes=(structs.replace(envelope, from_worker_id=3),))
    before, after = FORWARD.to_payloads(), reencode(changed)
    assert [i for i in range(4) if before[i] != after[i]] == [2]
    assert sum(a != b for a, b in zip(before[2], after[2], strict=True)) == 1
    assert RpcDecoder().decode(from_payloads(after)).envelopes == changed.envelopes


@settings(max_examples=examples(300))
@given(st.data())
def test_hostile_messages_become_problems(data: st.DataObject) -> None:
    kind, payload, _ = VECTORS[data.draw(st.sampled_from(sorted(VECTORS)))]
    message = data.draw(st.sampled_from([FORWARD, PROFILED, RpcMessage(kind, 0, payload, EMPTY)]))
    raw, table = bytearray(message.payload), bytearray(message.tensor_table)
    for part in (raw, table):
        for _ in range(data.draw(st.integers(0, 2)) if part else 0):
            part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    message = RpcMessage(message.type, 0, bytes(raw), bytes(table))
    decoded = RpcDecoder().decode(message)
    assert {layer for layer, _ in decoded.problems} <= {"rpc", "pickle", "tensor"}
    with suppress(DecodeError, ValueError):  # no JIT pickle can hold it
        reencode(decoded)


def test_every_captured_message_is_read_and_written_again() -> None:
    decoder = RpcDecoder()
    seen: set[tuple[bytes, bytes, bytes]] = set()
    for path in recordings(*OTHER_JOBS):
        for parts in payloads(path):
            message = from_payloads(parts)
            decoded = decoder.decode(message)
            assert decoded.problems == (), path.name
            assert not isinstance(decoded.command, UnknownCommand), path.name
            if (parts[0], parts[2], parts[3]) in seen:
                continue
            seen.add((parts[0], parts[2], parts[3]))
            assert reencode(decoded) == parts, path.name
    assert len(seen) > 4500


def test_counts_by_type_are_those_of_the_index() -> None:
    folder = recorded("torch-suite")
    rows = [line.split("\t") for line in (folder / "INDEX.tsv").read_text().splitlines()[1:]]
    assert len(rows) == 51
    for name, _, by_type in rows:
        counts = Counter(type_name(from_payloads(parts).type) for parts in payloads(folder / name))
        expected = {kind: int(n) for kind, n in (item.split("=") for item in by_type.split())}
        assert counts == expected, name
