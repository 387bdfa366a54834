"""A session's tensors as safetensors files with an index beside them.

In: the session, then its records again. Out: `tensors-00001.safetensors`, … whose tensors are named
`MESSAGE.TENSOR`, and `index.jsonl`, one line per tensor with all that the contract says of it. Values are the
logical elements in row-major order. What safetensors has no type for (complex128, quantized, sub-byte) is
stored as `U8`; the index has the true type and shape.

The format (https://github.com/huggingface/safetensors): u64 length of a JSON header, the header, the data. It
is written here, since the library takes only arrays of types that numpy has, and bfloat16 is none.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import orjson
from msgspec import Struct

from rpcinspect.errors import DecodeError
from rpcinspect.fields.plain import text
from rpcinspect.files.closing import Closing
from rpcinspect.files.output import OutputFolder
from rpcinspect.files.place import writing
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import logical_bytes
from rpcinspect.run.message import Tensor
from rpcinspect.run.tensors import LastRead, affordable, bytes_of, place_of, whole_storage
from rpcinspect.session.model import Session
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.tensorpipe.records import Placement
from rpcinspect.unexpected import unexpected
from rpcinspect.views.jsonl.message import tensor_json

INDEX = "index.jsonl"
SHARD_BYTES = 1 << 27
SHARD_TENSORS = 10_000
ALIGNMENT = 8
"""Of the header's end."""


class Entry(Struct, frozen=True):
    """A tensor to be written."""

    name: str
    dtype: str
    item_bytes: int
    shape: tuple[int, ...]
    data: bytes


def write_safetensors(file: IO[bytes], entries: Sequence[Entry], metadata: dict[str, str]) -> None:
    """Writes one file of the format."""
    # Readers map the file and want every tensor at a multiple of its element's size.
    ordered = sorted(entries, key=lambda entry: -entry.item_bytes)
    header: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for entry in ordered:
        end = at + len(entry.data)
        header[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [at, end]}
        at = end
    packed = orjson.dumps(header)
    packed += b" " * (-len(packed) % ALIGNMENT)
    file.write(len(packed).to_bytes(8, "little") + packed)
    for entry in ordered:
        file.write(entry.data)


class TensorWriter(Closing):
    """The view: in a `with` statement `feed` every record, then `finish`, which replaces what an earlier run
    has written to the folder. Raises `OutputError` where files can't be written.
    """

    def __init__(self, folder: Path, session: Session, source: CaptureBytes) -> None:
        """Makes the folder."""
        self._folder = folder
        self._session = session
        self._source = source
        self._shard: list[Entry] = []
        self._shard_bytes = 0
        self._shards = 0
        self._count = 0
        self._bytes = 0
        self._output = OutputFolder(folder, private=True)
        self._index = io.BufferedWriter(self._output.new(INDEX))

    def feed(self, records: Sequence[RpcRecord | None]) -> None:
        """Takes the tensors of messages; None stands for one that is left out."""
        for record in records:
            if record is not None:
                read = LastRead(self._source)
                for number, meta in enumerate(record.rpc.tensors):
                    self._take(record, number, meta, read)

    def finish(self) -> tuple[int, int]:
        """Writes what is left; returns how many tensors, and bytes of them, were written."""
        self._write_shard()
        with writing(self._folder):
            self._index.close()
            old = []
            if (self._folder / INDEX).is_file():
                old = [path.name for path in self._folder.glob(f"tensors-{'[0-9]' * 5}.safetensors")]
        self._output.put(mark=INDEX, obsolete=old)
        return self._count, self._bytes

    def close(self) -> None:
        """Removes what was not finished."""
        with suppress(OSError):
            self._index.close()
        self._output.drop()

    def _take(self, record: RpcRecord, number: int, meta: TensorMeta, read: LastRead) -> None:
        try:
            data, reason = self._data(record, meta, read)
        except Exception as error:
            data, reason = None, unexpected(error, "view", record.location).reason
        line = self._line(record, number, meta, None if data is None else sha256(data).hexdigest())
        if data is None:
            line["file"], line["left_out"] = None, reason
        else:
            stored = DTYPES[meta.dtype].safetensors
            shape = meta.sizes if stored is not None else (len(data),)
            line["file"] = self._shard_name(self._shards + 1)
            line["stored_as"], line["stored_shape"] = stored or "U8", list(shape)
            item = DTYPES[meta.dtype].item_bytes if stored is not None else 1
            self._shard.append(Entry(line["name"], stored or "U8", item, shape, data))
            self._shard_bytes += len(data)
            self._count += 1
            self._bytes += len(data)
        with writing(self._folder):
            self._index.write(orjson.dumps(line) + b"\n")
        if self._shard_bytes >= SHARD_BYTES or len(self._shard) >= SHARD_TENSORS:
            self._write_shard()

    def _line(self, record: RpcRecord, number: int, meta: TensorMeta, digest: str | None) -> dict[str, Any]:
        row = record.row
        index = int(self._session.index[row])
        tensor = Tensor(record, number, None)
        tensor.sha256 = digest
        return {
            "name": f"{index}.{number}",
            "message": index,
            "tensor": number,
            "src": text(self._session.source(row)),
            "dst": text(self._session.destination(row)),
            "type": type_name(record.rpc.message.type),
            **tensor_json(tensor),
        }

    def _data(self, record: RpcRecord, meta: TensorMeta, read: LastRead) -> tuple[bytes | None, str]:
        if meta.layout != "strided":
            return None, "its parts are stored"
        if whole_storage(record, meta) is None:
            place = place_of(record, meta)
            if place.placement is Placement.UNCERTAIN:
                return None, "it is not certain which bytes belong to it"
            return None, f"{place.missing_bytes} of its bytes were not captured"
        if not affordable(record, meta, read):
            return None, "it repeats bytes, and more was repeated before than is written"
        try:
            return logical_bytes(meta, bytes_of(record, meta, read) or b""), ""
        except DecodeError as error:
            return None, str(error)

    @staticmethod
    def _shard_name(number: int) -> str:
        return f"tensors-{number:05}.safetensors"

    def _write_shard(self) -> None:
        if not self._shard:
            return
        self._shards += 1
        metadata = {"format": "rpcinspect", "schema": "1"}
        with (
            writing(self._folder),
            io.BufferedWriter(self._output.new(self._shard_name(self._shards))) as file,
        ):
            write_safetensors(file, self._shard, metadata)
        self._shard.clear()
        self._shard_bytes = 0
