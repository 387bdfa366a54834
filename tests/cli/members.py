"""Which messages take part in what, from the lines of jsonl: the other side of the tests of filters."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.cli.runner import decode, rpcinspect

Json = dict[str, Any]


class Messages:
    """The `message` lines of a capture of one job."""

    def __init__(self, path: Path) -> None:
        self.lines = [m for m in decode(path, "--format", "jsonl").objects if m["kind"] == "message"]
        self.answers = {m["answers"]: m["index"] for m in self.lines if m["answers"] is not None}
        self.path = path

    def exchange(self, index: int) -> set[int]:
        """A request with its answer, if there is one."""
        return {index, self.answers.get(index, index)}

    def pipes(self, matching: set[int]) -> set[int]:
        """The pipes that messages went by."""
        return {m["pipe"] for m in self.lines if m["index"] in matching}

    def parts(self, kind: str) -> dict[str, set[int]]:
        """The messages of each context, by their own lines; of each RRef, by the ledger's."""
        return _contexts(self) if kind == "context" else _rrefs(self)

    def device_maps(self, matching: set[int]) -> set[tuple[str, str]]:
        """(caller, callee) of the maps that exchanges with these messages went by."""
        owners = {}
        for m in self.lines:
            ends = (m["src"], m["dst"]) if m["request"] else (m["dst"], m["src"])
            for envelope in m["envelopes"]:
                if "autograd_message_id" in envelope:
                    owners[envelope["autograd_message_id"]] = ends
        found = set()
        for m in self.lines:
            request = m if m["request"] else self.lines[m["answers"]]
            if not self.exchange(request["index"]) & matching:
                continue
            if m["tensors"] or any("autograd_message_id" in envelope for envelope in m["envelopes"]):
                edge = request["body"].get("autograd_message_id")
                found.add(owners.get(edge, (request["src"], request["dst"])))
        return found


@lru_cache(maxsize=8)
def messages_of(path: Path) -> Messages:
    """Those of a capture."""
    return Messages(path)


def key_of(line: Json) -> str:
    """Of a context or an RRef."""
    return str(line.get("context_id", line.get("rref_id")))


def _contexts(messages: Messages) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for line in messages.lines:
        for part in (line["body"], *line["envelopes"]):
            if part.get("context_id") is not None:
                found[key_of(part)] |= messages.exchange(line["index"])
    return found


def _rrefs(messages: Messages) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for line in rpcinspect("rrefs", messages.path, "--format", "jsonl").objects:
        requests = [line["created"], *line["fetches"], *line["backwards"]]
        for fork in line["stories"]:
            requests += [fork["requested"], fork["accepted"], fork["deleted"]]
            if fork["begin"] is not None:
                found[key_of(line)].add(fork["begin"])
        for request in requests:
            if request is not None:
                found[key_of(line)] |= messages.exchange(request)
    return found
