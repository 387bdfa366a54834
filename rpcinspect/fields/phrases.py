"""Messages in a few words, as a person would tell what happened; and the one place where captured text is
made harmless.

In: a record. Out: one line of printable text without line breaks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rpcinspect.fields.body import body_of
from rpcinspect.fields.plain import text
from rpcinspect.fields.templates import template
from rpcinspect.late_pattern import late
from rpcinspect.rpc.cache import BoundedCache
from rpcinspect.rpc.decode import REPEATING, held_bytes
from rpcinspect.rpc.envelope import Envelope, RpcWithAutograd
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.patterns import Pattern
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.remote_error import cause_line
from rpcinspect.rpc.types import unpack_id
from rpcinspect.session.words import amount as amount
from rpcinspect.session.words import counted as counted
from rpcinspect.session.words import duration as duration
from rpcinspect.session.words import packed as packed
from rpcinspect.session.words import read_packed as read_packed
from rpcinspect.session.words import shorten as shorten
from rpcinspect.session.words import shorten_middle as shorten_middle

MAX_PHRASE = 2000
MAX_NAME = 40
"""Characters of a worker's name."""
MAX_INDEXES = 8
"""Of messages that are named in a line."""
CACHE_BYTES = 1 << 22
_BEYOND_ASCII = late("[^\x00-\x7e]")


def printable(value: str) -> str:
    """The text with everything escaped that is not plainly visible: control characters, bidi marks, line
    breaks.
    """
    if value.isprintable():
        return value
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text(value))


def printable_json(lines: bytes) -> bytes:
    """Escapes in lines of JSON all characters that are not plainly visible, since they may go to a terminal;
    and what begins a command to GitHub Actions anywhere in a line."""
    if b"##[" in lines:
        lines = lines.replace(b"##[", b"##\\u005b")
    if lines.isascii() and b"\x7f" not in lines:
        return lines
    return _BEYOND_ASCII.sub(_escaped, lines.decode("utf-8")).encode("utf-8")


def _escaped(found: re.Match[str]) -> str:
    from json.encoder import py_encode_basestring_ascii as ascii_json  # what few captures need

    character = found[0]
    return character if character.isprintable() else ascii_json(character)[1:-1]


def end_label(label: str) -> str:
    """A worker's name as views show it."""
    return shorten(printable(label), MAX_NAME)


def join_ends(source: str, destination: str) -> str:
    """Who sends to whom."""
    return f"{source} → {destination}"


def path_label(path: str) -> str:
    """How people call a capture."""
    return "standard input" if path == "-" else printable(path)


def captures_title(paths: Sequence[str]) -> str:
    """How a page about captures is called."""
    names = [path_label(path.rpartition("/")[2] or path) for path in paths]
    return some(names, 1) or "nothing"


def pieces(count: int, reader: str) -> str:
    """What a capture consists of: packets, or the records of a log."""
    return counted(count, "record" if reader == "log" else "packet")


def some(words: Sequence[str], most: int) -> str:
    """`a, b and 4 more`."""
    shown, more = ", ".join(words[:most]), len(words) - most
    return f"{shown} and {more:,} more" if more > 0 else shown


def indexes(messages: Sequence[int], most: int = MAX_INDEXES) -> str:
    """`#3, #9 and 4 more`."""
    return some([f"#{index}" for index in messages], most)


class Phrases:
    """Phrases of messages; equal commands are put into words once."""

    def __init__(self) -> None:
        self._commands: BoundedCache[tuple[int, int], tuple[object, object, str]] = BoundedCache(CACHE_BYTES)
        self._patterns: BoundedCache[int, tuple[Pattern, str]] = BoundedCache(CACHE_BYTES)
        """By the id() of a pattern: its phrase, with places for ids; empty where it has none."""

    def phrase(self, record: RpcRecord) -> str:
        """Returns the content of a message: its command, then its envelopes."""
        return record.told(self._any)

    def _any(self, record: RpcRecord) -> str:
        pattern = record.pattern
        if pattern is None or record.problems:
            return self._phrase(record)
        _, words = self._patterns.get(id(pattern)) or self._learn(record, pattern)
        if not words:
            return self._phrase(record)
        return words % tuple([part for identifier in record.ids for part in unpack_id(identifier)])

    def _learn(self, record: RpcRecord, pattern: Pattern) -> tuple[Pattern, str]:
        words = template(record, pattern, self._phrase, packed, "%d:%d")
        # what may be cut depends on how long ids are
        known = (pattern, words if len(words) < MAX_PHRASE // 2 else "")
        message = pattern.rpc.message
        self._patterns.put(id(pattern), known, len(words) + len(message.payload) + len(message.tensor_table))
        return known

    def _phrase(self, record: RpcRecord) -> str:
        """The phrase of a message, whether or not it has a pattern."""
        envelopes = record.rpc.envelopes
        words = [self._command(record)]
        if envelopes:
            words.insert(0, type_name(envelopes[-1].wrapped_message_type))
            words += [envelope_phrase(envelope) for envelope in envelopes]
        if record.problems:
            words.append(f"! {record.problems[0].reason}")
        return shorten(printable("  ".join(word for word in words if word)), MAX_PHRASE)

    def _command(self, record: RpcRecord) -> str:
        rpc = record.rpc
        key = (id(rpc.command), id(rpc.tensors))
        known = self._commands.get(key)
        if known is not None:  # the entry holds both objects, so that their ids stay theirs
            return known[2]
        body = body_of(record)
        words = command_phrase(body.json, body.tensor_texts)
        kind = rpc.envelopes[-1].wrapped_message_type if rpc.envelopes else rpc.message.type
        if kind in REPEATING:
            self._commands.put(key, (rpc.command, rpc.tensors, words), len(words) + held_bytes(record.rpc))
        return words


def envelope_phrase(envelope: Envelope) -> str:
    """An envelope's facts: context and edge, or that the call is profiled."""
    if isinstance(envelope, RpcWithAutograd):
        metadata = envelope.autograd_metadata
        out = f"ctx {packed(metadata.autograd_context_id)} edge {packed(metadata.autograd_message_id)}"
        moved = {a: b for a, b in envelope.device_map.items() if a != b}
        return out + (f" map {', '.join(f'{a}→{b}' for a, b in moved.items())}" if moved else "")
    call = _pair(envelope.profiling_id.to_value())
    events = getattr(envelope, "profiled_events", None)
    if events is not None:
        return f"profile {call}, {counted(len(events), 'event')}"
    return f"profiled {call}"


def command_phrase(body: dict[str, Any], tensors: Sequence[str]) -> str:
    """Returns a command in words, from its form in JSON."""
    kind = body["type"]
    if "args" in body:
        kwargs = body.get("kwargs") or {}
        arguments = [*body["args"], *(f"{name}={value}" for name, value in kwargs.items())]
        call = f"{body['function'] or '?'}({', '.join(arguments)})"
        call = f"async {call}" if body.get("async") else call
        return f"rref {_pair(body['rref_id'])} = {call}" if "rref_id" in body else call
    if "value" in body or "error" in body:
        error = body.get("error")
        return f"✗ {error_phrase(error)}" if error else f"= {body.get('value')}"
    if "grads" in body:
        keep = ", retain graph" if body["retain_graph"] else ""
        gradients = ", ".join(tensors[i] if i < len(tensors) else "?" for i in body["grads"])
        context, edge = packed(body["context_id"]), packed(body["autograd_message_id"])
        return f"gradients {gradients}  ctx {context} edge {edge}{keep}"
    words = []
    if "rref_id" in body:
        words.append(f"rref {_pair(body['rref_id'])}")
    if "fork_id" in body:
        words.append(f"fork {_pair(body['fork_id'])}")
    if "context_id" in body:
        words.append(f"ctx {packed(body['context_id'])}")
    if "payload_hex" in body:
        count = len(body["payload_hex"]) // 2
        words.append(f"{counted(count, 'byte')} not understood" if count else "")
    return " ".join(words) or ("" if kind else "?")


def error_phrase(error: dict[str, Any]) -> str:
    """Returns an error in one line: where it was raised, and what it was."""
    lines = [line for line in error["text"].splitlines() if line.strip()]
    where = ""
    if lines and lines[0].startswith("On WorkerInfo("):
        where = f" on {lines[0][3:].rstrip(':')}"
        lines = lines[1:]
    what = cause_line(lines) or error["type"] or "an error"
    return f"{what}{where}"


def _pair(identifier: Sequence[int]) -> str:
    return f"{identifier[0]}:{identifier[1]}"
