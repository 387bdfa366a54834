"""`--tensors`: files that the safetensors library and torch read, with every value as it was sent."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.errors import OutputError
from rpcinspect.export import safetensors as view
from rpcinspect.export.safetensors import TensorWriter
from tests.places import recorded
from tests.torch_values import digest, tensors_of
from tests.views.opened import opened

Json = dict[str, Any]
QUANTISED = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}


def write(path: Path, folder: Path) -> tuple[int, int]:
    with opened(path) as capture, TensorWriter(folder, capture.session, capture.bytes) as writer:
        for record in capture.records:
            writer.feed([record])
        return writer.finish()


def index_of(folder: Path) -> list[Json]:
    return [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]


def load_all(folder: Path) -> dict[str, Any]:
    """Every tensor of every file, as the library gives them to torch users."""
    library = pytest.importorskip("safetensors.torch")
    out: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        loaded = library.load_file(path)
        assert not set(loaded) & set(out)
        out.update(loaded)
        with pytest.importorskip("safetensors").safe_open(path, framework="pt") as file:
            assert set(file.keys()) == set(loaded)
    return out


def restored(torch: Any, line: Json, stored: Any) -> Any:
    """The tensor of an index line, with its true type and shape."""
    if line["stored_as"] != "U8" or line["dtype"] == "uint8":
        return stored
    name = QUANTISED.get(line["dtype"], line["dtype"])
    return stored.clone().view(getattr(torch, name)).reshape(line["shape"])


CASES = ["dtype_zoo.pcap.gz", "views_alias.pcap.gz", "torch/kitchen.pcap", "torch/sparse.pcap"]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("case", CASES)
def test_every_tensor_has_the_bits_that_were_sent(case: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = recorded(case)
    write(path, tmp_path)
    loaded, lines = load_all(tmp_path), index_of(tmp_path)
    seen = tensors_of(path)
    by_name = {
        f"{message.line['index']}.{number}": tensor
        for message in seen
        for number, tensor in enumerate(message.tensors)
    }
    assert sorted(line["name"] for line in lines) == sorted(by_name)
    assert {line["name"] for line in lines if line["file"] is not None} == set(loaded)
    for line in lines:
        if line["file"] is None:
            assert line["layout"].startswith("sparse_")
            assert line["left_out"] == "its parts are stored"
            continue
        sent, stored = by_name[line["name"]], loaded[line["name"]]
        assert list(stored.shape) == line["stored_shape"]
        ours = restored(torch, line, stored)
        assert (list(ours.shape), ours.dtype) == (list(sent.shape), sent.dtype)
        assert digest(ours) == digest(sent) == line["sha256"]


def test_what_safetensors_has_no_type_for_is_stored_as_bytes(tmp_path: Path) -> None:
    write(Path("dtype_zoo.pcap.gz"), tmp_path)
    stored = {line["dtype"]: line["stored_as"] for line in index_of(tmp_path) if line["file"] is not None}
    own = {
        "float32": "F32",
        "float16": "F16",
        "bfloat16": "BF16",
        "float64": "F64",
        "int64": "I64",
        "uint16": "U16",
        "bool": "BOOL",
        "float8_e4m3fn": "F8_E4M3",
        "float8_e5m2": "F8_E5M2",
    }
    assert {name: stored[name] for name in own} == own
    assert {stored[name] for name in ("complex64", "complex128", "bits8", "float8_e5m2fnuz")} == {"U8"}


def test_numpy_users_can_load_what_numpy_has(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    assert write(Path("basic_chain.pcap"), tmp_path) == (11, 464)
    (path,) = tmp_path.glob("*.safetensors")
    values = library.load_file(path)["6.1"]
    assert values.tolist() == [
        -1.25,
        1.25,
        1.0,
        0.625,
    ]


def test_large_sessions_are_cut_into_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "SHARD_TENSORS", 10)
    count, _ = write(Path("dtype_zoo.pcap.gz"), tmp_path)
    files = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert files == [f"tensors-{n:05}.safetensors" for n in range(1, -(-count // 10) + 1)]
    loaded = load_all(tmp_path)
    assert len(loaded) == count
    assert {line["file"] for line in index_of(tmp_path)} - {None} == set(files)


def test_a_second_run_replaces_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.setattr(view, "SHARD_TENSORS", 10)
    write(Path("dtype_zoo.pcap.gz"), tmp_path)
    write(Path("basic_chain.pcap"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "index.jsonl",
        "notes.txt",
        "tensors-00001.safetensors",
        "tensors-00002.safetensors",
    ]
    assert len(load_all(tmp_path)) == 11


def test_missing_bytes_are_told_in_the_index(tmp_path: Path) -> None:
    assert write(Path("transport_matrix_uv_only.pcap.gz"), tmp_path) == (0, 0)
    line = next(line for line in index_of(tmp_path) if line["shape"] == [4000])
    assert (line["file"], line["left_out"]) == (None, "16000 of its bytes were not captured")
    assert line["sha256"] is None
    assert not list(tmp_path.glob("*.safetensors"))


def test_folders_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with opened(Path("basic_chain.pcap")) as capture:
        for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/none"), Path("a\0b")):
            with pytest.raises(OutputError, match="can't be written"):
                TensorWriter(folder, capture.session, capture.bytes)


def test_a_full_disk_is_an_output_error(tmp_path: Path) -> None:
    before = write(Path("basic_chain.pcap"), tmp_path)
    with opened(Path("basic_chain.pcap")) as capture:
        writer = TensorWriter(tmp_path, capture.session, capture.bytes)
        with writer:
            writer._index.close()
            writer._index = io.BufferedWriter(io.FileIO("/dev/full", "w"))
            for record in capture.records:
                writer.feed([record])
            with pytest.raises(OutputError, match="No space left on device"):
                writer.finish()
            writer._index.raw.close()
    assert (len(index_of(tmp_path)), len(list(tmp_path.iterdir()))) == (before[0], 2)
