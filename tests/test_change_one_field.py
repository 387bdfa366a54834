"""A captured message with one field changed, encoded and decoded again, differs in that field and no other.

Over one job captured under three releases, which write the same facts in different forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from msgspec import Struct, structs
from msgspec.structs import replace

from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    PropagateGradientsReq,
    RemoteRet,
    ScriptCall,
)
from rpcinspect.rpc.decode import DecodedRpc, RpcDecoder, reencode
from rpcinspect.rpc.envelope import RpcWithAutograd, RpcWithProfilingResp
from rpcinspect.rpc.message import from_payloads
from tests.places import recorded

VERSIONS = ("1.8.1", "1.13.1", "2.14.1")

Change: TypeAlias = Callable[[DecodedRpc], tuple[DecodedRpc, str] | None]
"""Changes a message that has such a field; tells where. None: it has none."""


@lru_cache(maxsize=3)
def messages(path: Path) -> tuple[DecodedRpc, ...]:
    with Decoding([str(path)]) as decoding:
        return tuple(record.rpc for record in decoding.records())


def differences(a: Any, b: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(path, value of a, value of b) of every leaf that differs."""
    if type(a) is not type(b):
        yield path, a, b
    elif isinstance(a, Struct):
        for field in structs.fields(a):
            yield from differences(getattr(a, field.name), getattr(b, field.name), f"{path}.{field.name}")
    elif isinstance(a, tuple | list):
        if len(a) != len(b):
            yield path, a, b
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            yield from differences(x, y, f"{path}[{i}]")
    elif isinstance(a, dict):
        for key in {**a, **b}:
            yield from differences(a.get(key), b.get(key), f"{path}[{key!r}]")
    elif a != b:
        yield path, a, b


def in_envelope(rpc: DecodedRpc, kind: type[Any], change: Callable[[Any], Any]) -> DecodedRpc | None:
    for position, envelope in enumerate(rpc.envelopes):
        if isinstance(envelope, kind):
            changed = (*rpc.envelopes[:position], change(envelope), *rpc.envelopes[position + 1 :])
            return replace(rpc, envelopes=changed)
    return None


def autograd_message_id(rpc: DecodedRpc) -> tuple[DecodedRpc, str] | None:
    def change(envelope: RpcWithAutograd) -> RpcWithAutograd:
        metadata = envelope.autograd_metadata
        other = replace(metadata, autograd_message_id=metadata.autograd_message_id ^ 64)
        return replace(envelope, autograd_metadata=other)

    out = in_envelope(rpc, RpcWithAutograd, change)
    position = len(rpc.envelopes) - 1  # profiling is outside of autograd
    return None if out is None else (out, f".envelopes[{position}].autograd_metadata.autograd_message_id")


def from_worker_id(rpc: DecodedRpc) -> tuple[DecodedRpc, str] | None:
    out = in_envelope(rpc, RpcWithAutograd, lambda e: replace(e, from_worker_id=e.from_worker_id + 1))
    return None if out is None else (out, f".envelopes[{len(rpc.envelopes) - 1}].from_worker_id")


def event_name(rpc: DecodedRpc) -> tuple[DecodedRpc, str] | None:
    def change(envelope: RpcWithProfilingResp) -> RpcWithProfilingResp:
        first, *rest = envelope.profiled_events
        return replace(envelope, profiled_events=(replace(first, name="aten::other"), *rest))

    out = in_envelope(rpc, RpcWithProfilingResp, change)
    return None if out is None else (out, ".envelopes[0].profiled_events[0].name")


def script_argument(rpc: DecodedRpc) -> tuple[DecodedRpc, str] | None:
    command = rpc.command
    if isinstance(command, ScriptCall):
        for position, value in enumerate(command.args):
            if type(value) is int:
                args = (*command.args[:position], value + 4, *command.args[position + 1 :])
                return replace(rpc, command=replace(command, args=args)), f".command.args[{position}]"
    return None


def context_to_clean_up(rpc: DecodedRpc) -> tuple[DecodedRpc, str] | None:
    if isinstance(rpc.command, CleanupAutogradContextReq):
        command = replace(rpc.command, context_id=rpc.command.context_id + 1)
        return replace(rpc, command=command), ".command.context_id"
    return None


def retain_graph(rpc: DecodedRpc) -> tuple[DecodedRpc, str] | None:
    if isinstance(rpc.command, PropagateGradientsReq):
        command = replace(rpc.command, retain_graph=not rpc.command.retain_graph)
        return replace(rpc, command=command), ".command.retain_graph"
    return None


def fork_of_an_rref(rpc: DecodedRpc) -> tuple[DecodedRpc, str] | None:
    if isinstance(rpc.command, RemoteRet):
        fork = rpc.command.fork_id
        command = replace(rpc.command, fork_id=type(fork)(fork.created_on, fork.local_id + 2))
        return replace(rpc, command=command), ".command.fork_id.local_id"
    return None


def size_of_a_tensor(rpc: DecodedRpc) -> tuple[DecodedRpc, str] | None:
    if not rpc.tensors or not rpc.tensors[0].sizes:
        return None
    sizes = rpc.tensors[0].sizes
    tensor = replace(rpc.tensors[0], sizes=(sizes[0] + 1, *sizes[1:]))
    return replace(rpc, tensors=(tensor, *rpc.tensors[1:])), ".tensors[0].sizes[0]"


def gradient_flag(rpc: DecodedRpc) -> tuple[DecodedRpc, str] | None:
    if not rpc.tensors:
        return None
    tensor = replace(rpc.tensors[0], requires_grad=not rpc.tensors[0].requires_grad)
    return replace(rpc, tensors=(tensor, *rpc.tensors[1:])), ".tensors[0].requires_grad"


def message_id(rpc: DecodedRpc) -> tuple[DecodedRpc, str] | None:
    return replace(rpc, message=replace(rpc.message, id=rpc.message.id + 1)), ".message.id"


CHANGES: tuple[Change, ...] = (
    autograd_message_id,
    from_worker_id,
    event_name,
    script_argument,
    context_to_clean_up,
    retain_graph,
    fork_of_an_rref,
    size_of_a_tensor,
    gradient_flag,
    message_id,
)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_only_that_field_changes(change: Change, version: str) -> None:
    path = recorded(f"versions/torch-{version}.pcap")
    tried = 0
    for rpc in messages(path):
        changed = change(rpc)
        if changed is None:
            continue
        tried += 1
        other, where = changed
        assert other != rpc
        again = RpcDecoder().decode(from_payloads(reencode(other)))
        found = [
            (at, a, b)
            for at, a, b in differences(rpc, again)
            if at not in (".message.payload", ".message.tensor_table")  # the bytes, which do change
        ]
        assert [at for at, _, _ in found] == [where]
        assert all(at.startswith(".message.") for at, _, _ in differences(other, again))
    assert tried
