from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.rpc.envelope import (
    MAX_ENVELOPES,
    AutogradMetadata,
    Envelope,
    RpcWithAutograd,
    RpcWithProfilingReq,
    RpcWithProfilingResp,
    peel,
    peel_partial,
    wrap,
)
from rpcinspect.rpc.message import MessageType as M
from rpcinspect.rpc.profiling import LegacyEvent, ProfilerConfig
from rpcinspect.rpc.types import ProfilingId
from tests.rpc.test_profiling import events
from tests.thorough import examples

TAG = b"ctorch.jit._pickle\nrestore_type_tag\n"

# a Python call in context 0, message 0, from worker 0, with the device map {cpu: cpu}
AUTOGRAD = (
    bytes.fromhex("80 02 28  4d 02 01  4b 00  4b 00  4b 00")  # ( 0x102, context, message, worker
    + TAG + bytes.fromhex("71 00  7d 28  58 03 00 00 00") + b"cpu" + bytes.fromhex("71 01 68 01 75")
    + bytes.fromhex("58 0e 00 00 00") + b"Dict[str, str]" + bytes.fromhex("71 02 86 52 71 03 74 2e")
    + bytes.fromhex("00 00 00 00 00 00 00 5c")  # 92 bytes, big-endian
)  # fmt: skip
# an answer of worker 1: context 0, message (1 << 48) | 0, no map
AUTOGRAD_RESP = (
    bytes.fromhex("80 02 28  4d 03 02  4b 00  8a 08 00 00 00 00 00 00 01 00  4b 01")
    + TAG + bytes.fromhex("71 00  7d 28 75  58 0e 00 00 00")
    + b"Dict[str, str]" + bytes.fromhex("71 01 86 52 71 02 74 2e")
    + bytes.fromhex("00 00 00 00 00 00 00 58")
)  # fmt: skip
# of torch 1.8.1: the map is one of device indices
AUTOGRAD_1_8 = (
    bytes.fromhex("80 02 28  4d 05 01  4b 00  4b 03  4b 00")
    + TAG + bytes.fromhex("71 00  7d 28 75  58 0e 00 00 00")
    + b"Dict[int, int]" + bytes.fromhex("71 01 86 52 71 02 74 2e")
    + bytes.fromhex("00 00 00 00 00 00 00 50")
)  # fmt: skip
# a profiled Python call: CPU, shapes and memory, profiling id (0, 0)
PROFILING = (
    bytes.fromhex("80 02  4d 02 01") + TAG + bytes.fromhex("71 00  5d 28 4b 01 88 88 65")
    + bytes.fromhex("58 09 00 00 00") + b"List[Any]" + bytes.fromhex("71 01 86 52  4b 00 4b 00 86  87 2e")
    + bytes.fromhex("00 00 00 00 00 00 00 4b")
)  # fmt: skip

AUTOGRAD_ENVELOPE = RpcWithAutograd(
    message_type=M.FORWARD_AUTOGRAD_REQ,
    autograd_metadata=AutogradMetadata(0, 0),
    from_worker_id=0,
    device_map={"cpu": "cpu"},
    wrapped_message_type=M.PYTHON_CALL,
)
PROFILING_ENVELOPE = RpcWithProfilingReq(
    profiler_config=ProfilerConfig(1, True, True),
    profiling_id=ProfilingId(0, 0),
    wrapped_message_type=M.PYTHON_CALL,
)


@pytest.mark.parametrize(
    ("message_type", "suffix", "envelope"),
    [
        (M.FORWARD_AUTOGRAD_REQ, AUTOGRAD, AUTOGRAD_ENVELOPE),
        (
            M.FORWARD_AUTOGRAD_RESP,
            AUTOGRAD_RESP,
            RpcWithAutograd(
                message_type=M.FORWARD_AUTOGRAD_RESP,
                autograd_metadata=AutogradMetadata(0, 1 << 48),
                from_worker_id=1,
                device_map={},
                wrapped_message_type=M.PYTHON_RET,
            ),
        ),
        (
            M.FORWARD_AUTOGRAD_REQ,
            AUTOGRAD_1_8,
            RpcWithAutograd(
                message_type=M.FORWARD_AUTOGRAD_REQ,
                autograd_metadata=AutogradMetadata(0, 3),
                from_worker_id=0,
                device_map={},
                wrapped_message_type=M.PYTHON_REMOTE_CALL,
            ),
        ),
        (M.RUN_WITH_PROFILING_REQ, PROFILING, PROFILING_ENVELOPE),
    ],
    ids=["request", "response", "1.8", "profiling"],
)
def test_literal_envelopes(message_type: int, suffix: bytes, envelope: Envelope) -> None:
    payload = b"inner" + suffix
    assert peel(message_type, payload) == ((envelope,), envelope.wrapped_message_type, b"inner")
    assert wrap((envelope,), b"inner", payload) == payload
    if suffix is not AUTOGRAD_1_8:
        assert wrap((envelope,), b"inner") == payload


@pytest.mark.parametrize("suffix", [AUTOGRAD, AUTOGRAD_RESP, AUTOGRAD_1_8])
@pytest.mark.parametrize("length", range(len(AUTOGRAD)))
def test_cut_autograd_envelopes(suffix: bytes, length: int) -> None:
    if length < len(suffix):
        with pytest.raises(DecodeError):
            peel(M.FORWARD_AUTOGRAD_REQ, suffix[:length])
        # the footer is there, the tuple is cut
        cut = suffix[:length] + len(suffix[:length]).to_bytes(8, "big")
        if length < len(suffix) - 8:
            peeled = peel_partial(M.FORWARD_AUTOGRAD_REQ, cut)
            assert isinstance(peeled.error, DecodeError)
            assert (peeled.type, peeled.payload) == (M.FORWARD_AUTOGRAD_REQ, cut)


@pytest.mark.parametrize("length", range(len(PROFILING)))
def test_cut_profiling_envelope(length: int) -> None:
    with pytest.raises(DecodeError):
        peel(M.RUN_WITH_PROFILING_REQ, PROFILING[:length])


@pytest.mark.parametrize(
    "footer",
    ["00" * 8, "ff" * 8, "7f" + "ff" * 7, "00 00 00 00 00 00 00 5e", "5c 00 00 00 00 00 00 00"],
    ids=["zero", "negative", "huge", "one too many", "little-endian"],
)
def test_damaged_footer(footer: str) -> None:
    with pytest.raises(DecodeError, match="footer") as caught:
        peel(M.FORWARD_AUTOGRAD_REQ, b"x" + AUTOGRAD[:-8] + bytes.fromhex(footer))
    assert caught.value.layer == "rpc"


def test_profiling_is_around_autograd_and_the_outermost_comes_first() -> None:
    outer = structs.replace(PROFILING_ENVELOPE, wrapped_message_type=M.FORWARD_AUTOGRAD_REQ)
    payload = wrap((outer, AUTOGRAD_ENVELOPE), b"call")
    assert payload.startswith(b"call" + AUTOGRAD)
    assert peel(M.RUN_WITH_PROFILING_REQ, payload) == ((outer, AUTOGRAD_ENVELOPE), M.PYTHON_CALL, b"call")


def test_damage_inside_keeps_what_is_around_it() -> None:
    outer = structs.replace(PROFILING_ENVELOPE, wrapped_message_type=M.FORWARD_AUTOGRAD_REQ)
    payload = wrap((outer,), b"no envelope")
    peeled = peel_partial(M.RUN_WITH_PROFILING_REQ, payload)
    assert peeled.envelopes == (outer,)
    assert (peeled.type, peeled.payload) == (M.FORWARD_AUTOGRAD_REQ, b"no envelope")
    assert peeled.error is not None


def test_nesting_is_bounded() -> None:
    again = structs.replace(AUTOGRAD_ENVELOPE, wrapped_message_type=M.FORWARD_AUTOGRAD_REQ)
    with pytest.raises(LimitExceeded, match="MAX_ENVELOPES"):
        peel(M.FORWARD_AUTOGRAD_REQ, wrap((again,) * (MAX_ENVELOPES + 1), b""))
    envelopes = (*(again,) * (MAX_ENVELOPES - 1), AUTOGRAD_ENVELOPE)
    assert peel(M.FORWARD_AUTOGRAD_REQ, wrap(envelopes, b""))[0] == envelopes


def test_other_messages_have_no_envelope() -> None:
    assert peel(M.PYTHON_CALL, b"x") == ((), M.PYTHON_CALL, b"x")
    assert peel(0x1AB, b"x") == ((), 0x1AB, b"x")


def test_number_of_events_must_be_the_announced_one() -> None:
    response = RpcWithProfilingResp(
        profiling_id=ProfilingId(1, 2), profiled_events=(), wrapped_message_type=M.PYTHON_RET
    )
    payload = wrap((response,), b"")
    assert peel(M.RUN_WITH_PROFILING_RESP, payload)[0] == (response,)
    count = payload.rindex(b"\x4b\x00")
    with pytest.raises(DecodeError, match="events"):
        peel(M.RUN_WITH_PROFILING_RESP, payload[:count] + b"\x4b\x01" + payload[count + 2 :])
    numbers = dict.fromkeys(("kind", "thread_id", "node_id", "cpu_memory", "cpu_ns"), 1)
    cuda = {"cuda_recorded": False, "cuda_memory": 0, "cuda_device": 0, "cuda_us": 0}
    event = LegacyEvent(name="op", handle=1.0, shapes=(), **numbers, **cuda)
    payload = wrap((structs.replace(response, profiled_events=(event,)),), b"")
    count = payload.rindex(b"\x4b\x01", 0, payload.index(b"restore_type_tag"))
    with pytest.raises(DecodeError, match="1 profiled events, where another number"):
        peel(M.RUN_WITH_PROFILING_RESP, payload[:count] + b"\x4b\x00" + payload[count + 2 :])


def test_one_field_changes_one_thing() -> None:
    ((envelope,), _, _) = peel(M.FORWARD_AUTOGRAD_REQ, AUTOGRAD)
    assert isinstance(envelope, RpcWithAutograd)
    changed = wrap([structs.replace(envelope, from_worker_id=3)], b"", AUTOGRAD)
    assert changed == AUTOGRAD.replace(b"\x4b\x00\x4b\x00\x4b\x00", b"\x4b\x00\x4b\x00\x4b\x03")
    longer = wrap([structs.replace(envelope, autograd_metadata=AutogradMetadata(0, 300))], b"", AUTOGRAD)
    assert longer == AUTOGRAD[:-1].replace(b"\x4b\x00" * 3, b"\x4b\x00\x4d\x2c\x01\x4b\x00") + b"\x5d"


ints = st.integers(-(1 << 63), (1 << 63) - 1)
workers = st.integers(-(1 << 15), (1 << 15) - 1)
devices = st.sampled_from(["cpu", "cuda:0", "cuda:1", "cuda:12"])
ids = st.builds(ProfilingId, workers, ints)
autograd = st.builds(
    RpcWithAutograd,
    message_type=st.sampled_from([int(M.FORWARD_AUTOGRAD_REQ), int(M.FORWARD_AUTOGRAD_RESP)]),
    autograd_metadata=st.builds(AutogradMetadata, ints, ints),
    from_worker_id=workers,
    device_map=st.dictionaries(devices, devices),
    wrapped_message_type=st.just(int(M.PYTHON_CALL)),
)
profiling_req = st.builds(
    RpcWithProfilingReq,
    profiler_config=st.builds(ProfilerConfig, ints, st.booleans(), st.booleans()),
    profiling_id=ids,
    wrapped_message_type=st.just(int(M.PYTHON_CALL)),
)
profiling_resp = st.builds(
    RpcWithProfilingResp,
    profiling_id=ids,
    profiled_events=st.lists(events, max_size=3).map(tuple),
    wrapped_message_type=st.just(int(M.PYTHON_CALL)),
)


@given(st.lists(st.one_of(autograd, profiling_req, profiling_resp), min_size=1, max_size=4), st.binary())
def test_what_is_wrapped_is_peeled_in_any_nesting(stack: list[Envelope], inner: bytes) -> None:
    for i in range(len(stack) - 1):
        stack[i] = structs.replace(stack[i], wrapped_message_type=stack[i + 1].message_type)
    payload = wrap(stack, inner)
    expected = (tuple(stack), int(M.PYTHON_CALL), inner)
    assert peel(stack[0].message_type, payload) == expected
    assert wrap(stack, inner, payload) == payload


@settings(max_examples=examples(400))
@given(st.data())
def test_hostile_envelopes_that_are_read_are_written(data: st.DataObject) -> None:
    payload = bytearray(data.draw(st.sampled_from([AUTOGRAD, AUTOGRAD_RESP, AUTOGRAD_1_8])))
    for _ in range(data.draw(st.integers(0, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    peeled = peel_partial(M.FORWARD_AUTOGRAD_REQ, bytes(payload))
    if peeled.error is None:
        written = wrap(peeled.envelopes, peeled.payload, bytes(payload))
        assert peel(M.FORWARD_AUTOGRAD_REQ, written)[0] == peeled.envelopes


@given(st.sampled_from([0x10F, 0x210, 0x115, 0x216]), st.binary(max_size=80))
def test_hostile_bytes_never_raise(message_type: int, payload: bytes) -> None:
    framed = payload + len(payload).to_bytes(8, "big")
    for raw in (payload, framed, b"\x80\x02" + framed):
        assert peel_partial(message_type, raw).payload is not None
