"""Envelopes: types, ids as the runs count them, device maps, profiled events."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rpcinspect.equality.difference import Difference
from rpcinspect.equality.envelopes import compare_envelopes, compare_ids, contexts_of
from rpcinspect.equality.ids import RREF, IdMap
from rpcinspect.equality.rules import Rules
from rpcinspect.rpc.envelope import (
    AutogradMetadata,
    Envelope,
    RpcWithAutograd,
    RpcWithProfilingReq,
    RpcWithProfilingResp,
)
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.profiling import LegacyEvent, ProfilerConfig
from rpcinspect.rpc.types import GloballyUniqueId
from tests.equality.mirrors import mirrored, mirrored_ids, mirrored_rules

AUTOGRAD = RpcWithAutograd(
    message_type=MessageType.FORWARD_AUTOGRAD_REQ,
    autograd_metadata=AutogradMetadata(5, 6),
    from_worker_id=0,
    device_map={"cuda:0": "cuda:1", "cpu": "cpu"},
    wrapped_message_type=MessageType.PYTHON_CALL,
)
PROFILED = RpcWithProfilingReq(
    profiler_config=ProfilerConfig(1, True, False),
    profiling_id=GloballyUniqueId(0, 1),
    wrapped_message_type=MessageType.PYTHON_CALL,
)
EVENT = LegacyEvent(
    kind=1,
    name="aten::mul",
    thread_id=1,
    handle=2.0,
    node_id=0,
    cpu_memory=0,
    cpu_ns=17,
    cuda_recorded=False,
    cuda_memory=0,
    cuda_device=-1,
    cuda_us=-1,
    shapes=(),
)
OTHER_EVENT = replace(EVENT, handle=3.0)
"""The same operator once more."""
ANSWER = RpcWithProfilingResp(
    profiling_id=GloballyUniqueId(0, 1),
    profiled_events=(EVENT, replace(EVENT, kind=2, name="")),
    wrapped_message_type=MessageType.PYTHON_RET,
)

FREED = replace(EVENT, kind=3, name="")
OTHER_CONFIG = ProfilerConfig(2, True, False)


def rebuilt(tensors: int) -> tuple[LegacyEvent, ...]:
    """What a thread's profile tells of tensors of a message that are rebuilt in it."""
    names = ["aten::empty", "", "aten::set_", ""] * tensors
    return tuple(
        replace(EVENT, kind=1 if name else 2, name=name, handle=10.0 + number // 2)
        for number, name in enumerate(names)
    )


def with_ids(context: int, message: int) -> RpcWithAutograd:
    return replace(AUTOGRAD, autograd_metadata=AutogradMetadata(context, message))


def found(
    one: Envelope, other: Envelope, rules: Rules | None = None, ids: IdMap | None = None
) -> list[Difference]:
    rules, ids = rules or Rules(), IdMap() if ids is None else ids
    back = list(compare_envelopes([other], [one], mirrored_rules(rules), mirrored_ids(ids)))
    out = list(compare_envelopes([one], [other], rules, ids))
    assert [mirrored(difference) for difference in back] == out
    return out


def known() -> IdMap:
    """What comparing the envelopes with themselves tells."""
    ids = IdMap()
    for envelope in (AUTOGRAD, PROFILED):
        assert list(compare_envelopes([envelope], [envelope], Rules(), ids)) == []
    return ids


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (AUTOGRAD, with_ids(7, 8)),
        (AUTOGRAD, replace(AUTOGRAD, from_worker_id=3)),
        (AUTOGRAD, replace(AUTOGRAD, device_map={"cpu": "cpu", "cuda:0": "cuda:1"})),
        (PROFILED, replace(PROFILED, profiling_id=GloballyUniqueId(0, 9))),
        (ANSWER, replace(ANSWER, profiled_events=ANSWER.profiled_events[::-1])),
        (ANSWER, replace(ANSWER, profiled_events=(replace(EVENT, cpu_ns=99), ANSWER.profiled_events[1]))),
        # A thread that has profiled before tells each event twice, see profiled_legacy.pcap #15.
        (ANSWER, replace(ANSWER, profiled_events=tuple(e for e in ANSWER.profiled_events for _ in "12"))),
        # A thread may rebuild tensors while it profiles, see prof2_legacy.pcap.
        (ANSWER, replace(ANSWER, profiled_events=ANSWER.profiled_events + rebuilt(2))),
        (replace(ANSWER, profiled_events=rebuilt(3)), replace(ANSWER, profiled_events=rebuilt(1))),
        # It may begin to profile in the middle of that, and memory is freed at any time.
        (ANSWER, replace(ANSWER, profiled_events=ANSWER.profiled_events + rebuilt(1)[1:])),
        (ANSWER, replace(ANSWER, profiled_events=(*ANSWER.profiled_events, FREED, FREED))),
    ],
)
def test_what_another_run_has_otherwise(one: Envelope, other: Envelope) -> None:
    ids = IdMap()
    if one is AUTOGRAD and isinstance(other, RpcWithAutograd) and other.from_worker_id == 3:
        one = replace(AUTOGRAD, autograd_metadata=AutogradMetadata(-1, -1))
        other = replace(other, autograd_metadata=AutogradMetadata(-1, -1))
    assert found(one, other, ids=ids) == []


@pytest.mark.parametrize(
    ("one", "other", "code", "path"),
    [
        (AUTOGRAD, replace(AUTOGRAD, autograd_metadata=AutogradMetadata(7, 6)), "envelope", "context_id"),
        (
            AUTOGRAD,
            replace(AUTOGRAD, autograd_metadata=AutogradMetadata(5, 9)),
            "envelope",
            "autograd_message_id",
        ),
        (AUTOGRAD, replace(AUTOGRAD, from_worker_id=1), "envelope", "from_worker_id"),
        (AUTOGRAD, replace(AUTOGRAD, device_map={}), "device-map", "device_map"),
        (PROFILED, replace(PROFILED, profiling_id=GloballyUniqueId(0, 2)), "envelope", "profiling_id"),
        (
            PROFILED,
            replace(PROFILED, profiler_config=ProfilerConfig(2, True, False)),
            "envelope",
            "config.state",
        ),
        (ANSWER, replace(ANSWER, profiled_events=ANSWER.profiled_events[1:]), "profile-events", "events"),
        (ANSWER, replace(ANSWER, profiled_events=(EVENT, OTHER_EVENT)), "profile-events", "events"),
        (ANSWER, replace(ANSWER, profiled_events=rebuilt(2)), "profile-events", "events"),
    ],
)
def test_differences(one: Envelope, other: Envelope, code: str, path: str) -> None:
    (difference,) = found(one, other, ids=known())
    assert (difference.code, difference.path) == (code, f"envelopes[0].{path}")
    assert difference.a_value != difference.b_value


def test_stacks_of_other_types() -> None:
    (difference,) = compare_envelopes([AUTOGRAD], [], Rules(), IdMap())
    assert (difference.code, difference.path) == ("envelope", "envelopes")
    assert (difference.a_value, difference.b_value) == (["FORWARD_AUTOGRAD_REQ"], [])


def test_what_is_told_of_events() -> None:
    other = replace(
        ANSWER, profiled_events=(replace(EVENT, name="rpc#f(w0 -> w1)"), replace(EVENT, kind=3, name=""))
    )
    (difference,) = found(ANSWER, other)
    assert difference.a_value == {"aten::mul": 1, "rpc#f(w0 -> w1)": 0}
    renamed = replace(
        other, profiled_events=(replace(EVENT, name="rpc#f(ps -> w1)"), other.profiled_events[1])
    )
    assert found(other, renamed, Rules(renames={"w0": "ps"})) == []


def test_ids_and_contexts() -> None:
    assert contexts_of([PROFILED, AUTOGRAD]) == {5}
    ids, made = IdMap(), GloballyUniqueId(1, 2)
    assert ids.carried(RREF, made, made)
    (found,) = compare_ids(ids, RREF, made, GloballyUniqueId(1, 3), "rref_id", "field")
    shown: Any = found.as_json()
    assert (shown["a_value"], shown["b_value"]) == ([1, 2], [1, 3])
