"""What a message says, as a list of names and texts that two messages can be laid side by side by.

In: a record and a reader of its bytes. Out: facts whose names begin as the paths of differences do:
`envelopes[0].context_id`, `args[1]`, `value`, `tensors[0]`. Their texts are printable but for line
breaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rpcinspect.equality.element_stats import element_of
from rpcinspect.equality.elements import ReadExtent, Tensors, tensors_of
from rpcinspect.errors import DecodeError
from rpcinspect.fields.body import body_of, envelope_json
from rpcinspect.fields.phrases import counted, packed, printable, shorten
from rpcinspect.rpc.record import RpcRecord

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


def first_values(record: RpcRecord, read: ReadExtent) -> list[str]:
    """The first elements of each tensor; empty where there are none, or none are known."""
    tensors = tensors_of(record, read)
    return [_first_values(tensors, number) for number in range(len(record.rpc.tensors))]


def _first_values(tensors: Tensors, number: int) -> str:
    """The first elements of a tensor; empty where there are none, or none are known."""
    meta = tensors.metas[number]
    storage = tensors.storage(meta)
    if storage is None or storage.extent is None:
        return ""
    try:
        block = next(tensors.blocks(meta), None)
    except DecodeError as error:
        return f"can't be told: {error}"
    if block is None:
        return ""
    shown = []
    for at in range(min(VALUES, len(block.codes))):
        unknown = block.unknown is not None and block.unknown[at]
        shown.append("?" if unknown else str(element_of(meta.dtype, block.codes[at])))
    more = len(block.codes) > VALUES
    return ", ".join(shown) + (", …" if more else "")
