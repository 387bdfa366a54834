"""Runs recorded by the wire and by the agent at once, and the captures of each held against each other."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.decoded import LATE, Decoded
from tests.recorder.parts import Part, parted, workloads
from tests.recorder.recording import need_own_network, record

Json = dict[str, Any]

WORKLOADS = {
    "basic_chain": "D01",
    "profiled_legacy": "D02",
    "param_detach": "D03",
    "dtype_zoo": "D04",
    "views_alias": "D05",
    "ctx_crowd": "D06",
    "rref_relay": "D07",
    "bwd_boom": "D08",
    "devmap_cpu": "D10",
}
"""All of them choose uv and basic by themselves."""

OF_THE_CAPTURE = {"index", "time_ns", "end_time_ns", "pipe", "location", *LATE}
"""What is no matter of the message itself: its number, when and where it was seen, what others say of it."""


def record_both(folder: Path, python: str) -> Mapping[str, Part]:
    """Runs them all, in one command; each one's captures."""
    need_own_network()
    inner = (sys.executable, "-m", "rpcinspect", "record", "-o", "x.rpclog", "--via", "agent", "--")
    outer = ("-o", "x.pcap", "--via", "wire", "--private-net", "--")
    done = record(*outer, *inner, *workloads(*WORKLOADS, python=python), folder=folder)
    assert done.code == 0, done.err
    return parted(done, folder)


def hold_against_each_other(part: Part) -> None:
    """Both must say the same of a run, and what its workers and its author say."""
    run, log = part.of_wire, part.of_agent
    wire, agent = by_key(run.decoded), by_key(log.decoded)
    assert set(wire) == set(agent)
    for key, message in wire.items():
        assert message == agent[key], key
    (expected,) = run.of("expect")
    assert run.decoded.summary["by_type"] == log.decoded.summary["by_type"]
    assert dict(sorted(run.decoded.summary["by_type"].items())) == expected["by_type"]
    assert contexts(run.decoded) == contexts(log.decoded)
    assert run.calls()
    assert run.decoded.problems() == log.decoded.problems() == []


def by_key(output: Decoded) -> dict[tuple[object, ...], Json]:
    """Messages by what makes them this one; `answers` is a number in the order of time, here its request."""
    keys = {m["index"]: (m["src"], m["dst"], m["request"], m["id"]) for m in output.messages}
    assert len(set(keys.values())) == len(keys)
    found = {}
    for message in output.messages:
        said = {name: value for name, value in message.items() if name not in OF_THE_CAPTURE}
        said["answers"] = None if message["answers"] is None else keys[message["answers"]]
        found[keys[message["index"]]] = said
    return found


def contexts(output: Decoded) -> list[str]:
    """What is said of autograd contexts and references, without numbers of messages and times."""
    kept = []
    for line in (*output.of("context"), *output.of("rref")):
        kept.append(json.dumps(_without_indexes(line), sort_keys=True))
    return sorted(kept)


def _without_indexes(value: Any) -> Any:
    """Numbers that depend on the order of time are those of lists and keys that name messages."""
    if isinstance(value, dict):
        return {key: _without_indexes(item) for key, item in value.items() if key not in NUMBERED}
    if isinstance(value, list):
        return [_without_indexes(item) for item in value]
    return value


NUMBERED = {"index", "message", "messages", "forward", "response", "backward", "cleanup", "time_ns"}
