"""The recorded workloads one by one: what each of them was made for. D02 is in test_workloads_profiling."""

from __future__ import annotations

import re
import struct
from collections import Counter
from typing import Any

import numpy as np
import pytest

from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.command import PropagateGradientsReq
from rpcinspect.run.tensors import LastRead, bytes_of
from tests.truth import (
    CALLS,
    NO_TENSORS,
    REFUSED,
    Workload,
    capture_of,
    check_tensors,
    context_of,
    sha256,
    storage_groups,
    tensor_text,
    workload,
)

# --- D01 basic_chain ----------------------------------------------------------------------------------------


def test_basic_chain_adds_two_gradients() -> None:
    """x is used twice; its gradient is the sum of what the two messages bring, bit for bit."""
    run = workload("basic_chain")
    (event,) = run.of("gradients")
    brought: dict[int, list[np.ndarray[Any, Any]]] = {}
    with Decoding([str(capture_of("basic_chain"))]) as decoding:
        for record in decoding.records():
            command = record.rpc.command
            if isinstance(command, PropagateGradientsReq):
                data = [
                    bytes_of(record, record.rpc.tensors[i], LastRead(decoding.bytes)) or b""
                    for i in command.grads
                ]
                edge = command.autograd_metadata.autograd_message_id
                brought[edge] = [np.frombuffer(part, "<f4") for part in data]
    x = brought[0][0] + brought[1][1]
    assert sha256(x.tobytes()) == event["tensors"][event["grads"]["x"]["tensor"]]["sha256"]


# --- D03 param_detach ---------------------------------------------------------------------------------------


def test_a_parameter_has_no_edge() -> None:
    run = workload("param_detach")
    parameter, tensor = run.calls()
    assert [t["parameter"] for t in parameter.request["tensors"]] == [True]
    assert [t["parameter"] for t in tensor.request["tensors"]] == [False]
    (context,) = run.decoded.of("context")
    by_forward = {edge["forward"]: edge for edge in context["edges"]}
    assert parameter.request["index"] not in by_forward
    assert by_forward[tensor.request["index"]]["backward"]
    (event,) = run.of("gradients")
    assert event["grads"]["parameter"] is None
    assert event["grads"]["tensor"] is not None


# --- D04 dtype_zoo ------------------------------------------------------------------------------------------


def test_every_kind_of_tensor_is_there() -> None:
    run = workload("dtype_zoo")
    cases = {event["name"]: event for event in run.of("case")}
    called = {call.event["args"][0]: call for call in run.calls()}
    unsent = {name for name in cases if name not in called}
    assert unsent == {"meta"}
    assert {name for name, event in cases.items() if not event["answered"]} == {"meta", "csr"}
    assert called.keys() == {*cases, "mixed"} - unsent
    dtypes = {t["dtype"] for call in called.values() for t in call.request["tensors"]}
    printed = {t["dtype"] for e in run.of("call") for t in e["tensors"]}
    assert dtypes >= printed
    assert len(printed) == 27
    for name, call in called.items():
        if name != "csr":
            assert [t["sha256"] for t in call.request["tensors"]] == [
                t["sha256"] for t in call.response["tensors"]
            ]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (
            "specials float32",  # −0, 0, ∞, −∞, NaN and two with payload, the smallest denormal
            struct.pack("<8I", 1 << 31, 0, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7FC00123, 0xFFC0BEEF, 1),
        ),
        ("specials float64", struct.pack("<4Q", 1 << 63, 0x7FF8000000000123, 0xFFF0000000000000, 1)),
        ("specials bfloat16", struct.pack("<4H", 0x8000, 0x7FC1, 0xFF80, 1)),
        ("conj", struct.pack("<4f", 1, -2, 3, 4)),  # (1+2j, 3−4j) conjugated
        ("neg", struct.pack("<2f", -2, 4)),
        ("uint64", struct.pack("<3Q", 0, 1, 2**64 - 1)),
        ("empty", b""),
    ],
)
def test_bits(name: str, data: bytes) -> None:
    """What the script put in, by hand."""
    (call,) = [c for c in workload("dtype_zoo").calls() if c.event["args"][0] == name]
    for message in (call.request, call.response):
        assert [t["sha256"] for t in message["tensors"]] == [sha256(data)]


# --- D05 views_alias ----------------------------------------------------------------------------------------


def test_views_take_along_what_pytorch_sends() -> None:
    """Bytes on the wire, as the callee has them; a small view of a big tensor is copied first."""
    calls = {call.event["args"][0]: call for call in workload("views_alias").calls()}
    sizes = {name: [t["storage_nbytes"] for t in call.request["tensors"]] for name, call in calls.items()}
    assert sizes["row of a big one"] == [400]
    assert sizes["60 % slice"] == [80_000]
    assert sizes["row of a small one"] == [96]
    assert sizes["expand"] == [4]
    shared = {
        name: storage_groups([t["storage"] for t in call.request["tensors"]]) for name, call in calls.items()
    }
    assert shared["shared pair"] == shared["base and view"] == [0, 0]
    assert shared["same object twice"] == [0]
    assert shared["two rows of a big one"] == [0, 1]


# --- D06 ctx_crowd ------------------------------------------------------------------------------------------


def test_gradients_of_four_contexts_at_once() -> None:
    run = workload("ctx_crowd")
    notes = {event["note"]: event["context_id"] for event in run.of("context")}
    for k in range(1, 5):
        expected = sha256(struct.pack("<2f", 2 * k, 2 * k))
        arrived = [
            [t["sha256"] for t in m["tensors"]]
            for m in run.decoded.messages
            if m["type"] == "BACKWARD_AUTOGRAD_REQ"
            and m["dst"] == "worker0"
            and m["body"]["context_id"] == notes[f"member {k}"]
        ]
        assert arrived == [[expected]]
    empty = {notes[f"member {k}, nothing with gradients"] for k in range(1, 5)}
    shown = {context["context_id"]: context for context in run.decoded.of("context")}
    assert all(shown[number]["edges"] == [] for number in empty)
    assert all(len(shown[number]["cleanup"]) == 1 for number in empty)


# --- D07 rref_relay -----------------------------------------------------------------------------------------


def test_ledger_of_remote_references() -> None:
    run = workload("rref_relay")
    shown = {tuple(rref["rref_id"]): rref for rref in run.decoded.of("rref")}
    owners: dict[tuple[int, ...], str] = {}
    held: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for event in run.of("holds", "owns", "rref-backward", "answer"):
        handle = event.get("handle", event.get("value"))
        if isinstance(handle, dict) and "rref_id" in handle:
            rref = tuple(handle["rref_id"])
            assert owners.setdefault(rref, handle["owner"]) == handle["owner"]
            held.setdefault(rref, set())
            if handle["fork_id"] is not None:
                held[rref].add(tuple(handle["fork_id"]))
    assert {rref: line["owner"] for rref, line in shown.items()} == owners
    for rref, line in shown.items():
        deleted = {tuple(fork) for fork in line["deleted"]}
        forks = {tuple(fork) for fork in line["forks"]}
        assert deleted == held[rref]  # each user's handle is deleted at the end
        assert line["live_forks"] == []
        assert forks - held[rref] == sent_home(run, rref, owners[rref])
    assert all(
        event["info"]["num_owner_rrefs"] == 0 for event in run.of("handles-left", worker="worker0")
    )  # printed when all was deleted


def sent_home(run: Workload, rref: tuple[int, ...], owner: str) -> set[tuple[int, ...]]:
    """Forks made for sending a handle to its owner: acknowledged by it, never deleted."""
    found: set[tuple[int, ...]] = set()
    for call in run.calls():
        if call.request["dst"] == owner:
            for text in call.request["body"]["args"]:
                for a, b, c, d in re.findall(r"RRef\((\d+):(\d+) fork (\d+):(\d+) ", text):
                    if (int(a), int(b)) == rref:
                        found.add((int(c), int(d)))
    return found


def test_what_was_fetched() -> None:
    run = workload("rref_relay")
    returned = [m for m in run.decoded.messages if m["type"].endswith("RREF_FETCH_RET")]
    for event in run.of("fetched"):
        answer = next(m for m in returned if m["end_time_ns"] <= event["time_ns"] and m["dst"] == "worker0")
        returned.remove(answer)
        check_tensors(answer["tensors"], event["tensors"], event["tensors"])
        assert answer["body"]["value"] == tensor_text(0, event["tensors"][0])
    (backward,) = [m for m in run.decoded.messages if m["type"] == "RREF_BACKWARD_REQ"]
    (event,) = run.of("rref-backward")
    assert backward["body"]["rref_id"] == event["handle"]["rref_id"]
    assert backward["body"]["context_id"] == event["context_id"]
    assert (backward["src"], backward["dst"]) == (event["worker"], event["handle"]["owner"])


# --- D08 bwd_boom -------------------------------------------------------------------------------------------


def test_the_error_travels_back() -> None:
    run = workload("bwd_boom")
    (raised,), (cascade,) = run.of("raise"), run.of("cascade")
    errors = [m for m in run.decoded.messages if m["type"] == "EXCEPTION"]
    assert [errors[0]["src"], *(m["dst"] for m in errors)] == cascade["path"]
    first = errors[0]["body"]["error"]
    assert first["node_id"] == raised["node_id"] == run.ids[cascade["root"]]
    assert first["text"] == f"Error on Node {raised['node_id']}: {raised['text']}"
    # the driver puts its own name before what it got
    assert "Error on Node 0: " + errors[-1]["body"]["error"]["text"] == cascade["error"]["text"]
    request = run.decoded.messages[errors[0]["answers"]]
    assert request["dst"] == cascade["root"]
    assert [t["sha256"] for t in request["tensors"]] == [raised["tensors"][0]["sha256"]]
    (context,) = run.decoded.of("context")
    without = [edge for edge in context["edges"] if not edge["backward"]]
    assert {edge["sender"] for edge in without} == {"worker0", "worker2"}  # their gradients never came


# --- D09 ps_race --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ps_race", "ps_race_lock"])
def test_who_died(name: str) -> None:
    run = workload(name)
    failed = {m["dst"]: m["body"]["error"] for m in run.decoded.messages if m["type"] == "EXCEPTION"}
    died = {event["trainer"]: event["error"]["text"] for event in run.of("died")}
    # Python sees other names of types than C++ and the wire: torch translates them in what it raises
    shown = {
        trainer: error["text"].replace("CPUFloatType", "torch.FloatTensor")
        for trainer, error in failed.items()
    }
    assert shown == died
    assert all(error["node_id"] == 0 for error in failed.values())
    assert len(died) == (2 if name == "ps_race" else 0)


@pytest.mark.parametrize("name", ["ps_race", "ps_race_lock"])
def test_order_on_the_server(name: str) -> None:
    """Steps at the trainers are calls to the server, in the order in which it took them."""
    run = workload(name)
    steps = [c for c in run.calls() if c.event["function"].endswith("_script_local_optimizer_step")]
    made = sorted((event["worker"], event["context_id"]) for event in run.of("step"))
    assert sorted((c.request["src"], context_of(c.request)) for c in steps) == made
    assert all(c.request["body"]["args"][1] == str(context_of(c.request)) for c in steps)
    seen = [event["trainer"] for event in run.of("order", what="forward")]
    forwards = [c for c in run.calls() if c.event["function"] == "ps_race.forward"]
    by_run = sorted(forwards, key=lambda c: c.run["time_ns"] if c.run else 0)
    assert [c.request["src"] for c in by_run] == seen
    assert [c.request["body"]["args"][1] for c in by_run] == [repr(trainer) for trainer in seen]


# --- D10 devmap_cpu -----------------------------------------------------------------------------------------


def test_device_maps_per_peer() -> None:
    run = workload("devmap_cpu")
    maps = {event["worker"]: event["maps"] for event in run.of("device-maps")}
    found = Counter[tuple[str, str]]()
    for message in run.decoded.messages:
        for envelope in message["envelopes"]:
            if envelope["type"] == "FORWARD_AUTOGRAD_REQ":
                assert envelope["device_map"] == maps[message["src"]].get(message["dst"], {})
                found[message["src"], message["dst"]] += 1
    assert found == {("worker0", "worker1"): 2, ("worker0", "worker2"): 2}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_maps_leave_no_message(name: str) -> None:
    run = workload(name)
    assert len(run.of("refused", when="init")) == 3
    assert run.decoded.messages == []
    assert run.decoded.summary["bytes"]["store"] > 0  # the rendezvous is there


# --- D11 transport_matrix -----------------------------------------------------------------------------------


MODES = {"uv_basic": "full", "uv_mpt": "full", "uv_only": "no-tensors", "default": "handshake-only"}


@pytest.mark.parametrize("mode", MODES)
def test_what_can_be_seen(mode: str) -> None:
    run = workload(f"transport_matrix_{mode}")
    (event,) = run.of("visible")
    assert event["mode"] == mode
    bodies, tensors = event["bodies_visible"], event["tensors_visible"]
    assert (MODES[mode] != "handshake-only", MODES[mode] == "full") == (bodies, tensors)
    pipes = run.decoded.of("pipe")
    assert len(pipes) == 2
    assert {pipe["visible"] for pipe in pipes} == {MODES[mode]}
    assert all((pipe["reason"] is None) == tensors for pipe in pipes)
    assert bool([m for m in run.decoded.messages if m["body"]["type"] in CALLS]) == bodies
    findings = [f for f in run.decoded.of("finding") if f["code"] == "invisible-transport"]
    assert len(findings) == (0 if tensors else 1)
    for finding in findings:
        assert finding["severity"] == ("info" if bodies else "error")  # an error if nothing can be decoded
        assert '_transports=["uv"], _channels=["basic"]' in finding["remedy"]


def test_tensors_by_cma_are_described_and_missing() -> None:
    run = workload(NO_TENSORS)
    seen = workload("transport_matrix_uv_basic")
    for call, same in zip(run.calls(), seen.calls(), strict=True):
        for message, twin in ((call.request, same.request), (call.response, same.response)):
            for tensor, there in zip(message["tensors"], twin["tensors"], strict=True):
                assert (tensor["placement"], tensor["sha256"]) == ("missing", None)
                assert tensor["missing_bytes"] == tensor["storage_nbytes"] == there["storage_nbytes"]
                for field in ("dtype", "shape", "stride", "offset", "requires_grad"):
                    assert tensor[field] == there[field]
    total = run.decoded.summary["bytes"]
    assert (total["tensors"], total["missing"]) == (0, seen.decoded.summary["bytes"]["tensors"])
