"""What a message says, as a list of names and texts that two messages can be laid side by side by.

In: a record and a reader of its bytes. Out: facts whose names begin as the paths of differences do:
`envelopes[0].context_id`, `args[1]`, `value`, `tensors[0]`. Their texts are printable but for line
breaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rpcinspect.equality.element_stats import elements_of
from rpcinspect.equality.elements import ElementBlock, ReadExtent, Tensors, tensors_of
from rpcinspect.errors import DecodeError
from rpcinspect.fields.body import body_of, envelope_json
from rpcinspect.fields.phrases import counted, packed, printable, shorten
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta

VALUES = 8
MAX_TEXT = 1000
MAX_FACTS = 200
LISTED = {"args", "grads"}


class Fact(NamedTuple):
    """A named line about a message."""

    name: str
    text: str


def facts_of(record: RpcRecord, read: ReadExtent) -> list[Fact]:
    """Envelopes, body, tensors, problems; at most `MAX_FACTS`."""
    found = []
    for name, value in _all(record, read):
        lines = shorten(value, MAX_TEXT).split("\n")  # tracebacks stay readable
        found.append(Fact(printable(name), "\n".join(map(printable, lines)).rstrip()))
        if len(found) == MAX_FACTS:
            found.append(Fact("…", "more in decode --message"))
            break
    return found


def _all(record: RpcRecord, read: ReadExtent) -> Iterator[tuple[str, str]]:
    for number, envelope in enumerate(record.rpc.envelopes):
        told = envelope_json(envelope)
        events = told.pop("events", None)
        yield from _fields(told, f"envelopes[{number}].")
        if events is not None:
            yield f"envelopes[{number}].events", f"{len(events):,}"
    body = body_of(record)
    yield from _fields(body.json, "")
    tensors = tensors_of(record, read)
    for number, words in enumerate(body.tensor_texts):
        yield f"tensors[{number}]", words.partition(" ")[2] + f" {list(record.rpc.tensors[number].sizes)}"
        values = _first_values(tensors, number)
        if values:
            yield f"tensors[{number}].elements", values
    for problem in record.problems:
        yield "problem", f"{problem.layer}: {problem.reason}"


def _fields(told: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in told.items():
        if name == "error":
            if value is not None:
                yield prefix + name, value["text"]
        elif name in ("context_id", "autograd_message_id"):
            yield prefix + name, f"{packed(value)} ({value})"
        elif name == "payload_hex":
            yield prefix + name, f"{counted(len(value) // 2, 'byte')} not understood"
        elif name == "value" and value is None and told.get("error") is not None:
            continue
        elif isinstance(value, list) and name in LISTED:
            yield from ((f"{prefix}{name}[{number}]", str(item)) for number, item in enumerate(value))
        elif name == "kwargs":
            yield from ((f"{prefix}{name}[{key!r}]", str(item)) for key, item in (value or {}).items())
        elif isinstance(value, list):
            yield prefix + name, ":".join(map(str, value))
        elif value is not None:
            yield prefix + name, str(value)


def _first_values(tensors: Tensors, number: int) -> str:
    """The first elements of a tensor; empty where there are none, or none are known."""
    meta = tensors.metas[number]
    try:
        block = next(blocks_of(tensors, meta), None)
    except DecodeError as error:
        return f"can't be told: {error}"
    return "" if block is None else values_text(meta.dtype, block)


def blocks_of(tensors: Tensors, meta: TensorMeta) -> Iterator[ElementBlock]:
    """The elements of a tensor; none where no byte is known. Raises `DecodeError` as `Tensors.blocks`."""
    storage = tensors.storage(meta)
    if storage is not None and storage.extent is not None:
        yield from tensors.blocks(meta)


def values_text(dtype: str, block: ElementBlock) -> str:
    """The first elements of a block."""
    shown = list(map(str, elements_of(dtype, block.codes[:VALUES])))
    if block.unknown is not None:
        shown = ["?" if unknown else text for text, unknown in zip(shown, block.unknown, strict=False)]
    more = len(block.codes) > VALUES
    return ", ".join(shown) + (", …" if more else "")
