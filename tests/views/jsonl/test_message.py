"""The fast form of a message line against the plain one, on what captures in hand don't hold: odd tensors,
odd text, damage, and objects that take another's place. test_jsonl.py compares whole captures.
"""

from __future__ import annotations

import hashlib
import json
import math
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from rpcinspect.fields.body import Body, envelope_json, tensor_text
from rpcinspect.problems import Location, Problem
from rpcinspect.rpc.command import Command, ExceptionResponse, PythonCall, PythonResp, UnknownCommand
from rpcinspect.rpc.command_codec import message_type_of, to_payload
from rpcinspect.rpc.envelope import AutogradMetadata, Envelope, RpcWithAutograd, wrap
from rpcinspect.rpc.message import RpcMessage
from rpcinspect.rpc.record import RecordDecoder, RpcRecord
from rpcinspect.rpc.tensor import Quantizer, TensorMeta, to_tensor_table
from rpcinspect.run.message import Tensor
from rpcinspect.run.tensors import LastRead
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.tensorpipe.records import Placement, TpTensor
from rpcinspect.views.jsonl.message import (
    MessageRenderer,
    message_location,
    problem_json,
    tensor_json,
)
from tests.session.records import pipe, tp_message, tp_tensor

DATA = bytes(range(256)) * 4
SOURCE = CaptureBytes(lambda capture, offset, length: DATA[offset : offset + length])
CALL = PythonCall(pickle.dumps(("f", ("x", 1))), False)
REPLY = PythonResp(pickle.dumps(b"value"))


def record(
    command: Command = CALL,
    metas: Sequence[TensorMeta] = (),
    storages: Sequence[TpTensor] = (),
    envelopes: Sequence[Envelope] = (),
    decoder: RecordDecoder | None = None,
) -> RpcRecord:
    kind = envelopes[0].message_type if envelopes else message_type_of(command)
    message = RpcMessage(kind, 7, wrap(list(envelopes), to_payload(command)), to_tensor_table(metas))
    tp = tp_message(pipe(), message.to_payloads(), tensors=storages, offset=99)
    return (decoder or RecordDecoder()).decode(tp)


def plain(one: RpcRecord, *, hashes: bool = True) -> dict[str, Any]:
    """What `tail` must say, without any shortcut."""
    rpc, parameters, found = one.rpc, one.facts.parameters, one.facts.pickle
    texts = [tensor_text(i, meta, parameter=i in parameters) for i, meta in enumerate(rpc.tensors)]
    tensors = []
    for index in range(len(rpc.tensors)):
        tensors.append(tensor_json(Tensor(one, index, LastRead(SOURCE) if hashes else None)))
    told = {
        "envelopes": [envelope_json(envelope) for envelope in rpc.envelopes],
        "body": Body(rpc.command, texts, found).json,
        "tensors": tensors,
        "problems": [problem_json(problem) for problem in one.problems],
        "location": message_location(one),
    }
    found: dict[str, Any] = json.loads(json.dumps(told))
    return found


def fast(one: RpcRecord, renderer: MessageRenderer | None = None) -> dict[str, Any]:
    tail = (renderer or MessageRenderer(SOURCE)).tail(one)
    found: dict[str, Any] = json.loads(b"{" + tail)
    return found


def same(one: RpcRecord, renderer: MessageRenderer | None = None) -> None:
    found = fast(one, renderer)
    assert found == plain(one)
    assert list(found) == list(plain(one))
    if found["tensors"]:
        assert list(found["tensors"][0]) == list(plain(one)["tensors"][0])


def meta(numel: int = 3, storage: int = 0, **how: Any) -> TensorMeta:
    base = TensorMeta(dtype="float32", sizes=(numel,), strides=(1,), storage=storage, storage_numel=numel)
    return replace(base, **how)


# --- tensors ---


@pytest.mark.parametrize(
    "metas",
    [
        [meta()],
        [meta(), meta(requires_grad=True)],  # two views of one storage
        [meta(sizes=(2,), storage_offset=1)],
        [meta(sizes=(2,), strides=(2,))],  # not a range of its storage
        [meta(sizes=(3,), strides=(0,))],
        [meta(neg=True)],
        [meta(dtype="complex64", storage_numel=1, sizes=(1,), conj=True)],
        [meta(sizes=(0,), storage_numel=0)],
        [meta(sizes=(9,))],  # reaches outside of its storage
        [meta(sizes=(), strides=())],
        [meta(device="cuda:1")],
        [meta(device="\x1b\ud800")],
    ],
    ids=lambda _: None,
)
@pytest.mark.parametrize("placement", [*Placement, 5])
def test_tensors_of_every_kind(metas: list[TensorMeta], placement: Placement | int) -> None:
    if isinstance(placement, int):
        storage = tp_tensor(12, missing=placement)
    else:
        storage = tp_tensor(12, placement)
    same(record(metas=metas, storages=[storage]))


def test_a_tensor_without_a_storage() -> None:
    one = record(metas=[meta(), meta(storage=1)], storages=[tp_tensor(12)])
    assert one.problems
    same(one)
    assert [tensor["placement"] for tensor in fast(one)["tensors"]] == ["certain", "missing"]


def test_storages_without_a_tensor() -> None:
    same(record(storages=[tp_tensor(12)]))
    same(record(storages=[tp_tensor(12, Placement.UNCERTAIN)]))


def test_without_hashes() -> None:
    one = record(metas=[meta(), meta(sizes=(2,), strides=(2,))], storages=[tp_tensor(12)])
    assert fast(one, MessageRenderer(SOURCE, hashes=False)) == plain(one, hashes=False)
    lost = record(metas=[meta()], storages=[tp_tensor(12, missing=3)])
    assert fast(lost, MessageRenderer(SOURCE, hashes=False)) == plain(lost, hashes=False)


def test_what_is_said_of_a_tensor() -> None:
    one = meta(sizes=(3, 4), strides=(4, 1), storage_numel=12)
    (found,) = fast(record(metas=[one], storages=[tp_tensor(48)]))["tensors"]
    assert list(found.items()) == list(
        {
            "dtype": "float32",
            "shape": [3, 4],
            "stride": [4, 1],
            "offset": 0,
            "layout": "strided",
            "device": "cpu",
            "target_device": found["target_device"],
            "requires_grad": False,
            "parameter": False,
            "conj": False,
            "neg": False,
            "quantizer": None,
            "parts": {},
            "storage": 0,
            "storage_nbytes": 48,
            "missing_bytes": 0,
            "placement": "certain",
            "sha256": hashlib.sha256(DATA[:48]).hexdigest(),
        }.items()
    )


def test_a_device_that_is_no_text() -> None:
    one = Tensor(record(metas=[meta()], storages=[tp_tensor(12)]), 0, None)
    one.meta = replace(one.meta, device="c\udcff")
    one.place = replace(one.place, target_device="c\udcff:0")
    assert [tensor_json(one)[name] for name in ("device", "target_device")] == ["c\\xff", "c\\xff:0"]


def test_quantizers() -> None:
    one = Tensor(record(metas=[meta()], storages=[tp_tensor(12)]), 0, None)
    one.meta = replace(
        one.meta,
        quantizer=Quantizer(scheme="per_channel_affine", axis=0),
        parts=(("scales", 1), ("zero_points", 2)),
    )
    assert tensor_json(one)["quantizer"] == {
        "scheme": "per_channel_affine",
        "scale": None,
        "zero_point": None,
        "axis": 0,
    }
    assert tensor_json(one)["parts"] == {"scales": 1, "zero_points": 2}
    one.meta = replace(
        one.meta, quantizer=Quantizer(scheme="per_tensor_affine", scale=math.inf, zero_point=3)
    )
    assert tensor_json(one)["quantizer"]["scale"] == "inf"


# --- the rest of the line ---


@pytest.mark.parametrize(
    "command",
    [
        CALL,
        REPLY,
        PythonCall(b"\x80\x04damaged", True),
        PythonResp(pickle.dumps('\x1b[31m\udcff \u2028 "quoted"')),
        PythonResp(pickle.dumps([float("nan"), float("inf"), 2**70])),
        ExceptionResponse("On WorkerInfo(id=1, name=worker1):\nValueError('odd \udcff')"),
        UnknownCommand(0x77, b"\xff\0"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_bodies_of_every_kind(command: Command) -> None:
    same(record(command))
    renderer = MessageRenderer(SOURCE)
    one = record(command)
    same(one, renderer)
    same(one, renderer)  # now from what was kept


@pytest.mark.parametrize(
    "device_map",
    [{}, {"cuda:0": "cuda:1"}, {"cpu": "cuda:0", "cuda:0": "cpu"}, {'"\x1b\\': "é"}],
    ids=str,
)
def test_envelopes(device_map: dict[str, str]) -> None:
    envelope = RpcWithAutograd(
        message_type=0x10F,
        autograd_metadata=AutogradMetadata(1 << 48, (1 << 48) + 5),
        from_worker_id=3,
        device_map=device_map,
        wrapped_message_type=message_type_of(CALL),
    )
    one = record(envelopes=[envelope])
    assert len(one.rpc.envelopes) == 1
    same(one)


def test_problems_and_places() -> None:
    one = record()
    one.problems = (
        Problem("tcp", 'a "reason" \udcff\n', Location(packet=3, offset=0)),
        Problem("rpc", "another", Location()),
    )
    one.tp.capture = 2
    same(one)
    assert fast(one)["problems"][1] == {"layer": "rpc", "reason": "another", "packet": None, "offset": None}


# --- what is kept belongs to the objects that it was made from ---


def test_one_renderer_for_many_messages() -> None:
    renderer, decoder = MessageRenderer(SOURCE), RecordDecoder()
    kept = []
    for number in range(30):
        command = (CALL, REPLY, PythonResp(pickle.dumps(number)))[number % 3]
        metas = [meta(1 + n, n) for n in range(number % 4)]
        storages = [tp_tensor(4 * (1 + n), missing=number % 5 == 4) for n in range(number % 4)]
        one = record(command, metas, storages, decoder=decoder)
        same(one, renderer)
        if number % 2:
            kept.append(one)  # the others are freed, and their ids given to new objects
    for one in kept:
        same(one, renderer)


def test_expanded_tensors() -> None:
    """Gradients of a sum: one element, or a row, many times over."""
    renderer, decoder = MessageRenderer(SOURCE), RecordDecoder()
    for sizes, strides in [((5, 3), (0, 0)), ((5, 3), (0, 1)), ((5, 3), (1, 0)), ((0, 3), (0, 0))]:
        tensor = TensorMeta(dtype="float32", sizes=sizes, strides=strides, storage=0, storage_numel=6)
        for _ in range(2):
            same(record(metas=[tensor], storages=[tp_tensor(24)], decoder=decoder), renderer)


def test_the_same_table_with_other_descriptors() -> None:
    """One table, storages of other lengths: what was kept for one must not serve the other."""
    renderer, decoder = MessageRenderer(SOURCE), RecordDecoder()
    for length in (12, 16, 12, 8):
        same(record(metas=[meta()], storages=[tp_tensor(length)], decoder=decoder), renderer)
