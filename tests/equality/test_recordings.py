"""Captured messages: against themselves, another recording of the job, one change, some damage."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from rpcinspect.equality.difference import Difference, verdict
from rpcinspect.equality.ids import IdMap
from rpcinspect.equality.messages import compare_messages, same_payload
from rpcinspect.equality.rules import Rules
from rpcinspect.rpc.command import CleanupAutogradContextReq, PropagateGradientsReq
from rpcinspect.rpc.decode import DecodedRpc
from rpcinspect.rpc.envelope import AutogradMetadata, RpcWithAutograd
from rpcinspect.rpc.record import RecordDecoder, RpcRecord
from rpcinspect.run.run import RunModel, open_run
from tests.equality.builders import STRICT, changed
from tests.places import recorded
from tests.session.records import tp_message
from tests.test_change_one_field import CHANGES, Change

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
WHOLE = [
    "basic_chain.pcap",
    "bwd_boom.pcap.gz",
    "ctx_crowd.pcap.gz",
    "devmap_cpu.pcap.gz",
    "dtype_zoo.pcap.gz",
    "profiled_legacy.pcap",
    "ps_race_lock.pcap.gz",
    "rref_relay.pcap.gz",
    "views_alias.pcap.gz",
]


@pytest.mark.parametrize("name", WHOLE)
def test_every_message_is_itself(name: str) -> None:
    path = str(CAPTURES / name)
    with open_run(path) as one, open_run(path) as other:
        ids = IdMap()
        assert len(one) > 0
        for a, b in zip(one.messages, other.messages, strict=True):
            assert compare_messages(a, a, one.read, one.read, STRICT) == []
            assert compare_messages(a, b, one.read, other.read, STRICT, ids) == []
            assert same_payload(a, b)
        assert ids.refused == 0


def lanes(opened: RunModel) -> dict[tuple[str, str, str], list[RpcRecord]]:
    """Messages of the job itself, by who sends what to whom."""
    session = opened.session
    out: dict[tuple[str, str, str], list[RpcRecord]] = {}
    for found in opened.messages:
        if not session.messages.control[found.row]:
            kind = type(found.rpc.command).__name__
            key = session.source(found.row), session.destination(found.row), kind
            out.setdefault(key, []).append(found)
    return out


def recordings(one: Path, other: Path) -> Iterator[tuple[Difference, ...]]:
    """What two recordings of one job differ in, message by message."""
    with open_run(str(one)) as a, open_run(str(other)) as b:
        ids = IdMap()
        lanes_a, lanes_b = lanes(a), lanes(b)
        assert {key: len(some) for key, some in lanes_a.items()} == {
            key: len(some) for key, some in lanes_b.items()
        }
        for key, some in lanes_a.items():
            for x, y in zip(some, lanes_b[key], strict=True):
                yield tuple(compare_messages(x, y, a.read, b.read, STRICT, ids))
        assert len(ids) > 0


def test_two_recordings_of_one_job() -> None:
    pair = [CAPTURES / f"transport_matrix_{kind}.pcap.gz" for kind in ("uv_basic", "uv_mpt")]
    assert set(recordings(*pair)) == {()}


def test_two_recordings_of_another() -> None:
    pair = [recorded(f"torch/{name}.pcap") for name in ("chan_mpt", "chan_legacystore")]
    assert set(recordings(pair[0], pair[1])) == {()}


def test_two_releases() -> None:
    """The same job: paths, line numbers and ids of the releases' own are no differences."""
    pair = [recorded(f"versions/torch-{version}.pcap") for version in ("1.13.1", "2.14.1")]
    assert set(recordings(pair[0], pair[1])) == {()}


def renumbered(rpc: DecodedRpc) -> DecodedRpc:
    """The message as a run would have sent it that had used some ids before."""

    def shift(packed: int) -> int:
        return packed if packed < 0 else packed + 40

    envelopes = []
    for envelope in rpc.envelopes:
        if isinstance(envelope, RpcWithAutograd):
            one = envelope.autograd_metadata
            moved = AutogradMetadata(shift(one.autograd_context_id), shift(one.autograd_message_id))
            envelope = replace(envelope, autograd_metadata=moved)
        envelopes.append(envelope)
    command = rpc.command
    if isinstance(command, PropagateGradientsReq):
        one = command.autograd_metadata
        moved = AutogradMetadata(shift(one.autograd_context_id), shift(one.autograd_message_id))
        command = replace(command, autograd_metadata=moved)
    elif isinstance(command, CleanupAutogradContextReq):
        command = CleanupAutogradContextReq(shift(command.context_id))
    message = replace(rpc.message, id=rpc.message.id + 7)
    return replace(rpc, envelopes=tuple(envelopes), command=command, message=message)


@pytest.mark.parametrize("name", ["basic_chain.pcap", "ctx_crowd.pcap.gz"])
def test_ids_alone_are_no_difference(name: str) -> None:
    with open_run(str(CAPTURES / name)) as opened:
        ids = IdMap()
        moved = 0
        for a in opened.messages:
            b = changed(a, renumbered(a.rpc))
            assert compare_messages(a, b, opened.read, opened.read, STRICT, ids) == []
            moved += not same_payload(a, b)
        assert moved > 4
        assert ids.refused == 0


EXPECTED = {
    "autograd_message_id": ("envelope", "autograd_message_id"),
    "from_worker_id": ("envelope", "from_worker_id"),
    "event_name": ("profile-events", "events"),
    "script_argument": ("argument", "args["),
    "context_to_clean_up": ("field", "context_id"),
    "retain_graph": ("field", "retain_graph"),
    "fork_of_an_rref": ("field", "fork_id"),
    "size_of_a_tensor": ("shape", "tensors[0].shape"),
    "gradient_flag": ("requires-grad", "tensors[0].requires_grad"),
}


@lru_cache(maxsize=1)
def versions(path: Path) -> RunModel:
    return open_run(str(path))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_one_changed_field_is_the_one_difference(change: Change) -> None:
    opened = versions(recorded("versions/torch-2.14.1.pcap"))
    ids = IdMap()
    for a in opened.messages:
        assert compare_messages(a, changed(a, a.rpc), opened.read, opened.read, STRICT, ids) == []
    tried = 0
    for a in opened.messages:
        edited = change(a.rpc)
        if edited is None:
            continue
        tried += 1
        mark = ids.mark()
        found = compare_messages(a, changed(a, edited[0]), opened.read, opened.read, STRICT, ids)
        if change.__name__ == "message_id":
            assert found == []
        else:
            (difference,) = found
            code, path = EXPECTED[change.__name__]
            assert difference.code == code
            assert path in difference.path
            assert verdict(found, Rules()) == "different"
        ids.rollback(mark)
    assert tried


def damaged(original: RpcRecord, random: random.Random) -> RpcRecord:
    """A few bytes of the payload or of the tensor table are others."""
    payloads = [bytearray(payload) for payload in original.tp.payloads]
    target = payloads[random.choice((2, 3))]
    for _ in range(random.choice((1, 1, 2, 4)) if target else 0):
        target[random.randrange(len(target))] = random.choice((0, 1, 255, random.randrange(256)))
    tp = original.tp
    raw = [bytes(payload) for payload in payloads]
    return RecordDecoder().decode(tp_message(tp.pipe, raw, from_client=tp.from_client, tensors=tp.tensors))


@pytest.mark.parametrize("name", WHOLE)
def test_damaged_messages(name: str) -> None:
    """Nothing is raised, the mirror holds, and everything found can be written as JSON."""
    dice = random.Random(name)
    with open_run(str(CAPTURES / name)) as opened:
        for a in opened.messages[:40]:
            for _ in range(4):
                b = damaged(a, dice)
                found = compare_messages(a, b, opened.read, opened.read, STRICT)
                back = compare_messages(b, a, opened.read, opened.read, STRICT)
                json.dumps([difference.as_json() for difference in found], allow_nan=False).encode()
                key = [(d.code, d.tolerated) for d in found]
                assert sorted(key) == sorted((d.code, d.tolerated) for d in back)
                if same_payload(a, b):
                    assert found == []
