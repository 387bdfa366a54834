"""The tensors of a reproducer: one safetensors file with whole storages, and the form of each tensor beside.

In: messages, all of whose bytes are there. Out: entries of the file and its metadata. A tensor that is its
whole storage keeps its name, dtype and shape, so that any reader of safetensors shows it; of others the
storage is stored and the form says which part of it they are.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson

from rpcinspect.export.safetensors import Entry
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import is_contiguous, logical_nbytes
from rpcinspect.run.tensors import LastRead, bytes_of, storage_of
from rpcinspect.tcp.ranges import CaptureBytes

FORMAT = "rpcinspect reproducer"


def name_of(message: int, tensor: int) -> str:
    """`6.0`: the first tensor of message 6."""
    return f"{message}.{tensor}"


def unwritable_tensors(record: RpcRecord) -> str | None:
    """Why tensors of a message can't be made again from a file."""
    for meta in record.rpc.tensors:
        if meta.storage is not None and storage_of(record, meta) is None:
            return "a tensor whose bytes the message does not have"
        if meta.layout not in ORDER and meta.layout != "strided":
            return f"a tensor of the layout {meta.layout}"
        dtype = DTYPES[meta.dtype]
        if dtype.kind == "bits" or dtype.values_per_byte > 1 or meta.dtype in SUBBYTE:
            return f"a tensor of {meta.dtype}"
    return None


class TensorCollection:
    """Collects the tensors of messages, each message once."""

    def __init__(self, source: CaptureBytes) -> None:
        self._source = source
        self._seen: set[int] = set()
        self.entries: list[Entry] = []
        self._forms: dict[str, dict[str, Any]] = {}

    def add(self, message: int, record: RpcRecord) -> None:
        if message in self._seen:
            return
        self._seen.add(message)
        metas = record.rpc.tensors
        users = Counter(meta.storage for meta in metas if meta.storage is not None)
        stored: dict[int, str] = {}
        for number, meta in enumerate(metas):
            if meta.storage is not None and meta.storage not in stored:
                name = name_of(message, number)
                stored[meta.storage] = self._store(name, record, meta, users[meta.storage] == 1)
        whole = [i for i, meta in enumerate(metas) if not meta.parts]
        for number in (*whole, *(i for i, meta in enumerate(metas) if meta.parts)):
            meta = metas[number]
            self._forms[name_of(message, number)] = _form(message, meta, stored)

    def metadata(self) -> dict[str, str]:
        """Returns the metadata of the file."""
        return {"format": FORMAT, "forms": orjson.dumps(self._forms).decode()}

    def _store(self, name: str, record: RpcRecord, meta: TensorMeta, alone: bool) -> str:
        """Stores a storage under the name of a tensor, or returns the name under which it is stored."""
        data = bytes_of(record, meta, LastRead(self._source))
        assert data is not None, "only whole messages are written down"
        dtype = DTYPES[meta.dtype]
        whole = is_contiguous(meta) and logical_nbytes(meta) == len(data)
        plain = alone and whole and not meta.storage_offset
        kept = dtype.safetensors is not None and len(data) % dtype.item_bytes == 0
        if kept and plain:
            shape = meta.sizes
        else:
            shape = (len(data) // dtype.item_bytes,) if kept else (len(data),)
            name = name if plain else f"{name}.storage"
        stored = dtype.safetensors if kept and dtype.safetensors is not None else "U8"
        self.entries.append(Entry(name, stored, dtype.item_bytes, shape, data))
        return name


def _form(message: int, meta: TensorMeta, stored: dict[int, str]) -> dict[str, Any]:
    form: dict[str, Any] = {"shape": meta.sizes, "requires_grad": meta.requires_grad}
    parts = dict(meta.parts)
    if meta.layout != "strided":
        form["layout"] = meta.layout
        form["parts"] = [name_of(message, parts[name]) for name in ORDER[meta.layout]]
        return form
    assert meta.storage is not None
    form |= {"dtype": meta.dtype, "stride": meta.strides, "offset": meta.storage_offset}
    form |= {"storage": stored[meta.storage], "conj": meta.conj, "neg": meta.neg, "layout": "strided"}
    quantizer = meta.quantizer
    if quantizer is not None:
        form["quantized"] = {"stored": STORED_AS[meta.dtype], "axis": quantizer.axis}
        if quantizer.axis is None:
            form["quantized"] |= {"scale": quantizer.scale, "zero_point": quantizer.zero_point}
        else:
            form["parts"] = [name_of(message, parts[name]) for name in ("scales", "zero_points")]
    return form


ORDER = {
    "sparse_coo": ("indices", "values"),
    "sparse_csr": ("crow_indices", "col_indices", "values"),
}
"""Parts of a sparse tensor, in the order in which torch's functions take them."""

STORED_AS = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}
"""What quantized elements are stored as."""

SUBBYTE = frozenset(f"{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8))
"""torch can't look at bytes as these."""
