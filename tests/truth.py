"""The truth of the recorded workloads: what workers printed, paired with what decode says of the capture.

In: a workload's name. Out: its events, and for each call the message that carried it, the message that
answered it and what the callee saw. Only captures/*.truth is believed; its README.md describes the fields.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.decoded import Decoded, decode

Json = dict[str, Any]

CAPTURES = Path(__file__).resolve().parent.parent / "captures"
CALLS = ("PYTHON_CALL", "SCRIPT_CALL", "PYTHON_REMOTE_CALL", "SCRIPT_REMOTE_CALL")
REFUSED = ("devmap_cpu_refused", "devmap_cpu_refused_cuda")
"""Workloads whose workers never make a group."""
NO_TENSORS = "transport_matrix_uv_only"
"""Tensors go by cma."""
CLOCK_NS = 1000
"""The captures count microseconds, cut off; the workers nanoseconds, on the same clock."""


class Call(Struct, frozen=True):
    """One call of a worker: its `call` and `answer` events, its messages, and the callee's events.

    `run` is None for operators and TorchScript, which no recorder sees on the callee.
    """

    event: Json
    answered: Json
    request: Json
    response: Json
    run: Json | None


class Workload:
    """A capture and its truth."""

    def __init__(self, name: str, capture: Path | None = None, printed: str | None = None) -> None:
        """A bundled one; or one that was run just now, its capture and what its workers printed."""
        self.name = name
        printed = (CAPTURES / f"{name}.truth").read_text() if printed is None else printed
        self.events: list[Json] = [json.loads(line.removeprefix("TRUTH ")) for line in printed.splitlines()]
        self.decoded: Decoded = decode(capture or capture_of(name))
        self.ids = {event["name"]: event["id"] for event in self.of("worker")}

    def of(self, *kinds: str, **fields: Any) -> list[Json]:
        """Events of these kinds, in the order of time."""
        found = [
            event
            for event in self.events
            if event["event"] in kinds and all(event.get(key) == value for key, value in fields.items())
        ]
        return sorted(found, key=lambda event: event["time_ns"])

    def requests(self) -> list[Json]:
        """Messages that carry a user's call."""
        return [m for m in self.decoded.messages if m["body"]["type"] in CALLS and not m["control"]]

    def sent(self) -> list[tuple[Json, Json]]:
        """Every call that was sent, with the message that carried it. Fails unless they fit one to one."""
        answers = {(event["worker"], event["call"]): event for event in self.of("answer")}
        open_requests = self.requests()
        out = []
        for event in self.of("call"):
            answered = answers.get((event["worker"], event["call"]))
            if _never_sent(event):
                assert answered is not None
                assert "error" in answered
                continue
            out.append((event, self._take(open_requests, event, answered)))
        assert open_requests == [], "decode shows calls that no worker made"
        return out

    def calls(self) -> list[Call]:
        """Every call, its messages, and what the callee printed. Fails unless all of that fits one to one."""
        answers = {(event["worker"], event["call"]): event for event in self.of("answer")}
        open_runs = self.of("run")
        out = []
        for event, request in self.sent():
            response = self.decoded.answer(request)
            assert response is not None, f"no answer to {event['function']}"
            run = None
            if request["body"]["type"].startswith("PYTHON"):
                run = self._take_run(open_runs, event, request, response)
            out.append(Call(event, answers[event["worker"], event["call"]], request, response, run))
        assert open_runs == [], "functions ran without a call in the capture"
        return out

    def _take(self, requests: list[Json], event: Json, answered: Json | None) -> Json:
        """The first message that can be this call; `answered` None: its caller ended before."""
        for position, message in enumerate(requests):
            if (
                message["src"] == event["worker"]
                and message["dst"] == event["to"]
                and same_function(event["function"], message["body"])
                and context_of(message) == event["context_id"]
                and message["time_ns"] >= event["time_ns"] - CLOCK_NS
                # a remote() returns its handle before anything is sent
                and (event["kind"] == "remote" or not answered or message["time_ns"] <= answered["time_ns"])
                and self.same_arguments(event, message["body"], forks=False)
            ):
                return requests.pop(position)
        raise AssertionError(f"no message for call {event['call']} of {event['worker']}: {event['function']}")

    def _take_run(self, runs: list[Json], event: Json, request: Json, response: Json) -> Json:
        """What the callee printed; calls that look alike in every argument are told apart by time only."""
        for position, run in enumerate(runs):
            if (
                run["worker"] == event["to"]
                and run["function"] == event["function"]
                and run["context_id"] == event["context_id"]
                and request["time_ns"] - CLOCK_NS <= run["time_ns"] <= response["end_time_ns"]
                and self.same_arguments(run, request["body"], forks=True)
            ):
                return runs.pop(position)
        raise AssertionError(f"call {event['call']} of {event['worker']} never ran: {event['function']}")

    def same_arguments(self, event: Json, body: Json, *, forks: bool) -> bool:
        """Whether rendered arguments say what a worker printed; operators add their defaults."""
        tensors = event["tensors"]
        args = [self.pattern(value, tensors, forks=forks) for value in event["args"]]
        shown = body["args"][: len(args)] if body["type"].startswith("SCRIPT") else body["args"]
        kwargs = {key: self.pattern(value, tensors, forks=forks) for key, value in event["kwargs"].items()}
        texts = body.get("kwargs", {})
        return (
            len(shown) == len(args)
            and all(re.fullmatch(p, text) for p, text in zip(args, shown, strict=True))
            and kwargs.keys() == texts.keys()
            and all(re.fullmatch(kwargs[key], texts[key]) for key in kwargs)
        )

    def pattern(self, value: Any, tensors: list[Json], *, forks: bool = True) -> str:
        """A regular expression for a printed value as decode renders it.

        `forks`: the worker's fork id is the one that travelled, as in what a receiver prints.
        """

        def inner(item: Any) -> str:
            return self.pattern(item, tensors, forks=forks)

        if not isinstance(value, dict):
            return re.escape(repr(value))
        if "tensor" in value:
            return re.escape(tensor_text(value["tensor"], tensors[value["tensor"]]))
        if "tuple" in value:
            items = [inner(item) for item in value["tuple"]]
            return rf"\({', '.join(items)}{',' if len(items) == 1 else ''}\)"
        if "list" in value:
            return rf"\[{', '.join(inner(item) for item in value['list'])}\]"
        if "dict" in value:
            return rf"\{{{', '.join(f'{inner(k)}: {inner(v)}' for k, v in value['dict'])}\}}"
        if "rref_id" in value:
            created_on, local = value["rref_id"]
            fork = r"\d+:\d+"
            if forks and value["fork_id"] is not None:
                fork = "{}:{}".format(*value["fork_id"])
            owner = self.ids[value["owner"]]
            return rf"RRef\({created_on}:{local} fork {fork} owner {owner}\)"
        if "bytes" in value:
            return re.escape(repr(bytes.fromhex(value["bytes"])))
        assert "object" in value, value
        return ".+"


def _never_sent(event: Json) -> bool:
    return any(tensor["device"] == "meta" for tensor in event["tensors"])


def same_function(function: str, body: Json) -> bool:
    """Workers print an operator without its overload, which the wire has."""
    shown: str = body["function"]
    if shown.startswith("aten::"):
        return shown.split(".")[0] == function
    return shown == function


def context_of(message: Json) -> int | None:
    """The context that a message's autograd envelope names."""
    for envelope in message["envelopes"]:
        if "context_id" in envelope:
            return int(envelope["context_id"])
    return None


def tensor_text(index: int, tensor: Json) -> str:
    """A printed tensor as decode names it in values."""
    words = [f"tensor#{index}[{','.join(map(str, tensor['shape']))}]", tensor["dtype"]]
    words += [tensor["layout"]] if tensor["layout"] != "strided" else []
    words += [flag for flag in ("conj", "neg") if tensor.get(flag)]
    if tensor["parameter"]:
        return f"Parameter({' '.join([*words, 'parameter'])})"
    words += ["grad"] if tensor["requires_grad"] else []
    return " ".join(words)


def capture_of(name: str) -> Path:
    """The capture of a workload."""
    plain = CAPTURES / f"{name}.pcap"
    return plain if plain.exists() else CAPTURES / f"{name}.pcap.gz"


@cache
def workload(name: str) -> Workload:
    """A workload, read once for the tests that follow each other."""
    return Workload(name)


def storage_groups(storages: list[int | None]) -> list[int | None]:
    """Storages numbered in the order in which they occur: equal groups are equal lists."""
    seen: dict[int, int] = defaultdict(lambda: len(seen))
    return [None if storage is None else seen[storage] for storage in storages]


def check_tensors(shown: list[Json], sent: list[Json], received: list[Json]) -> None:
    """A message's tensors against what its sender and its receiver printed."""
    parts = {index for tensor in shown for index in tensor["parts"].values()}
    whole = [index for index in range(len(shown)) if index not in parts]
    assert len(whole) == len(sent) == len(received)
    for index, tensor in enumerate(sent):
        check_tensor(shown, whole[index], tensor, form=False)
    for index, tensor in enumerate(received):
        check_tensor(shown, whole[index], tensor, form=True)
    groups = storage_groups([shown[index]["storage"] for index in whole])
    assert groups == storage_groups([tensor.get("storage") for tensor in received])


def check_tensor(shown: list[Json], index: int, truth: Json, *, form: bool) -> None:
    """One tensor; `form`: the worker received it, so that strides and storage are those of the wire."""
    tensor = shown[index]
    for field in ("dtype", "shape", "layout", "device", "parameter"):
        assert tensor[field] == truth[field], field
    # a Parameter's data travels detached; it requires a gradient again when it is a Parameter again
    assert tensor["requires_grad"] == (truth["requires_grad"] and not truth["parameter"])
    assert (tensor["target_device"], tensor["placement"], tensor["missing_bytes"]) == ("cpu", "certain", 0)
    if truth.get("parts"):
        assert tensor["sha256"] is None
        assert tensor["parts"].keys() == truth["parts"].keys()
        for part, printed in truth["parts"].items():
            check_tensor(shown, tensor["parts"][part], printed, form=form)
        return
    for field in ("conj", "neg", "sha256"):
        assert tensor[field] == truth[field], field
    check_quantizer(shown, tensor, truth["quantizer"])
    if form:
        for field in ("stride", "offset", "storage_nbytes"):
            assert tensor[field] == truth[field], field


def check_quantizer(shown: list[Json], tensor: Json, truth: Json | None) -> None:
    """Per-channel parameters travel as tensors of their own."""
    if truth is None or "per_channel" not in truth["scheme"]:
        assert tensor["quantizer"] == truth
        assert tensor["parts"] == {}
        return
    assert tensor["quantizer"] == {**truth, "scale": None, "zero_point": None}
    scales, zeros = (shown[tensor["parts"][part]] for part in ("scales", "zero_points"))
    count = len(truth["scale"])
    assert (scales["dtype"], zeros["dtype"]) == ("float64", "int64")
    assert scales["sha256"] == sha256(struct.pack(f"<{count}d", *truth["scale"]))
    assert zeros["sha256"] == sha256(struct.pack(f"<{count}q", *truth["zero_point"]))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
