"""Tensors of a reproducer: the script's own reader makes of the file what the workers say that they sent."""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rpcinspect.export.reproducer.script import TEMPLATES
from rpcinspect.export.reproducer.tensors import TensorCollection, name_of, unwritable_tensors
from rpcinspect.export.safetensors import write_safetensors
from rpcinspect.run.run import RunModel
from tests.truth import CAPTURES, workload


def reader() -> Any:
    """`load` of the script."""
    torch = pytest.importorskip("torch")
    text = (TEMPLATES / "reproduce.py.jinja").read_text(encoding="utf-8")
    space: dict[str, Any] = {"torch": torch, "json": json, "mmap": mmap}
    exec(text[text.index("def load(") : text.index("def work(")], space)
    return space["load"]


def collected(name: str, path: Path) -> list[int]:
    """The file of all messages that can be written down."""
    with RunModel.open([str(CAPTURES / name)]) as opened:
        collection = TensorCollection(opened.bytes)
        messages = []
        for index, record in enumerate(opened.messages):
            if unwritable_tensors(record) is None:
                collection.add(index, record)
                collection.add(index, record)  # a second time is nothing
                messages.append(index)
    with path.open("wb") as file:
        write_safetensors(file, collection.entries, collection.metadata())
    return messages


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch: quantized tensors are deprecated
@pytest.mark.parametrize("name", ["dtype_zoo", "views_alias"])
def test_what_the_workers_sent(name: str, tmp_path: Path) -> None:
    load = reader()
    messages = collected(f"{name}.pcap.gz", tmp_path / "t")
    tensors = load(tmp_path / "t")
    compared = 0
    for call in workload(name).calls():
        index = call.request["index"]
        if index not in messages or call.run is None:
            continue
        for number, said in enumerate(call.run["tensors"]):  # as they came out of torch at the callee
            tensor = tensors[name_of(index, number)]
            assert str(tensor.dtype) == f"torch.{said['dtype']}"
            assert list(tensor.shape) == said["shape"]
            assert tensor.requires_grad == said["requires_grad"] or said["parameter"]
            if said["layout"] == "strided":
                assert list(tensor.stride()) == said["stride"]
                assert tensor.storage_offset() == said["offset"]
                assert (tensor.is_conj(), tensor.is_neg()) == (said["conj"], said["neg"])
            compared += 1
    assert compared > 10


def test_two_views_of_a_storage_share_it(tmp_path: Path) -> None:
    load = reader()
    collected("views_alias.pcap.gz", tmp_path / "t")
    tensors = load(tmp_path / "t")
    shared = 0
    for call in workload("views_alias").calls():
        said = call.run["tensors"] if call.run is not None else []
        if len(said) == 2 and said[0]["storage"] == said[1]["storage"]:
            a, b = (tensors[name_of(call.request["index"], n)] for n in (0, 1))
            assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
            shared += 1
    assert shared


def test_plain_tensors_keep_their_name_dtype_and_shape(tmp_path: Path) -> None:
    collected("basic_chain.pcap", tmp_path / "t")
    data = (tmp_path / "t").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["6.0"]["dtype"] == "F32"
    assert header["6.0"]["shape"] == [3, 4]


def test_what_no_file_can_hold() -> None:
    with RunModel.open([str(CAPTURES / "dtype_zoo.pcap.gz")]) as opened:
        reasons = {unwritable_tensors(record) for record in opened.messages}
    assert {"a tensor of bits8", "a tensor of bits16"} <= reasons


def test_a_tensor_that_no_storage_is_behind() -> None:
    """A damaged table may name a storage that its message does not have."""
    with RunModel.open([str(CAPTURES / "basic_chain.pcap")]) as opened:
        record = next(one for one in opened.messages if one.rpc.tensors)
        assert unwritable_tensors(record) is None
        robbed = replace(record, tp=replace(record.tp, tensors=()))
    assert unwritable_tensors(robbed) == "a tensor whose bytes the message does not have"
