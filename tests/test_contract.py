"""The output contract, schema 1: every key with its type, the order of lines, indexes, values' domains."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.contract import BODIES, CODES, ENVELOPES, KINDS, PROBLEM, UNKNOWN, check
from tests.decoded import Decoded, decode, parse, pieces, stream
from tests.forks import ran
from tests.places import recorded
from tests.truth import CAPTURES as BUNDLED

Json = dict[str, Any]


# Between them every kind of line and of message occurs; the last ones are damaged or of old releases.
CAPTURES = {
    **{
        name: BUNDLED / f"{name}{ending}"
        for name, ending in {
            "basic_chain": ".pcap",
            "profiled_legacy": ".pcap",
            "bwd_boom": ".pcap.gz",
            "dtype_zoo": ".pcap.gz",
            "rref_relay": ".pcap.gz",
            "ps_race": ".pcap.gz",
            "transport_matrix_uv_only": ".pcap.gz",
            "transport_matrix_default": ".pcap",
            "devmap_cpu_refused": ".pcap.gz",
        }.items()
    },
    "1.8.1": recorded("versions/torch-1.8.1.pcap"),
    "chan_shmuv": recorded("torch/chan_shmuv.pcap"),
    "kitchen": recorded("torch/kitchen.pcap"),
    "snap300": recorded("torch/snap300.pcap"),
    "stress_lossy": recorded("torch/stress_lossy.pcap"),
    "two": recorded("torch/two.pcap"),
    "node_failure": recorded("torch-suite/DistAutogradTest.test_backward_node_failure.pcap.gz"),
}


@pytest.fixture(params=CAPTURES)
def path(request: pytest.FixtureRequest) -> Path:
    return CAPTURES[request.param]


@pytest.fixture
def decoded(path: Path) -> Decoded:
    return decode(path)


# --- every line ---------------------------------------------------------------------------------------------


def test_keys_and_types(decoded: Decoded) -> None:
    for number, line in enumerate(decoded.lines):
        check(line, KINDS[line["kind"]], f"line {number} ({line['kind']})")


def test_envelopes_and_bodies(decoded: Decoded) -> None:
    for message in decoded.messages:
        where = f"#{message['index']}"
        types = [message["type"]]
        for envelope in message["envelopes"]:
            assert envelope["type"] == types[-1]  # each is what the one around it wraps
            check(envelope, ENVELOPES[envelope["type"]], where)
            types.append(envelope["wrapped_type"])
        body = message["body"]
        if "payload_hex" in body:
            check(body, UNKNOWN, where)
        else:
            assert body["type"] == types[-1]
            check(body, BODIES[body["type"]], where)


def test_all_types_of_messages_occur() -> None:
    bodies = {m["body"]["type"] for path in CAPTURES.values() for m in decode(path).messages}
    assert bodies == set(BODIES)
    messages = (message for path in CAPTURES.values() for message in decode(path).messages)
    envelopes = {envelope["type"] for message in messages for envelope in message["envelopes"]}
    assert envelopes == set(ENVELOPES)


def test_order_of_lines(decoded: Decoded) -> None:
    kinds = [line["kind"] for line in decoded.lines]
    ranks = {"capture": 0, "worker": 1, "pipe": 1, "message": 2, "context": 3, "rref": 3, "finding": 3}
    places = [ranks.get(kind, 4) for kind in kinds]
    assert places == sorted(places)
    assert kinds.count("summary") == 1
    assert kinds[-1] == "summary"
    assert [line["capture"] for line in decoded.of("capture")] == [0]
    assert [line["pipe"] for line in decoded.of("pipe")] == list(range(len(decoded.of("pipe"))))


def test_messages_in_order_of_time(decoded: Decoded) -> None:
    messages = decoded.messages
    assert [m["index"] for m in messages] == list(range(len(messages)))
    keys = [
        (m["time_ns"], *(m["location"][key] for key in ("capture", "packet", "offset"))) for m in messages
    ]
    assert keys == sorted(keys)
    assert all(m["time_ns"] <= m["end_time_ns"] for m in messages)


def test_answers_point_to_requests(decoded: Decoded) -> None:
    messages = decoded.messages
    answered = [m["answers"] for m in messages if m["answers"] is not None]
    assert len(answered) == len(set(answered))
    for message in messages:
        if message["answers"] is None:
            continue
        request = messages[message["answers"]]
        assert (request["request"], message["request"]) == (True, False)
        assert (request["pipe"], request["id"]) == (message["pipe"], message["id"])
        assert (request["src"], request["dst"]) == (message["dst"], message["src"])
        assert request["control"] == message["control"]
        assert request["index"] < message["index"]


def test_ends_are_those_of_the_pipe(decoded: Decoded) -> None:
    pipes = {pipe["pipe"]: pipe for pipe in decoded.of("pipe")}
    for message in decoded.messages:
        pipe = pipes[message["pipe"]]
        ends = (pipe["client"], pipe["server"])
        assert (message["src"], message["dst"]) == (ends if message["request"] else ends[::-1])
    labels = {worker["name"] for worker in decoded.of("worker")}
    labels |= {f"worker:{w['id']}" for w in decoded.of("worker") if w["name"] is None}
    labels |= {address for w in decoded.of("worker") for address in w["addresses"]}
    assert {pipe["server"] for pipe in pipes.values()} <= labels


def test_tensors(decoded: Decoded) -> None:
    for message in decoded.messages:
        tensors = message["tensors"]
        for tensor in tensors:
            assert len(tensor["stride"]) == (len(tensor["shape"]) if tensor["layout"] == "strided" else 0)
            assert all(index < len(tensors) for index in tensor["parts"].values())
            if tensor["layout"] != "strided":
                assert tensor["parts"]
                assert tensor["storage"] is None
            certain = tensor["placement"] == "certain" and not tensor["missing_bytes"]
            has_hash = certain and tensor["layout"] == "strided"
            assert (tensor["sha256"] is not None) == has_hash
        assert all(index < len(tensors) for index in message["body"].get("grads", []))


def test_indexes_lead_to_messages(decoded: Decoded) -> None:
    messages = decoded.messages
    for context in decoded.of("context"):
        for edge in context["edges"]:
            ids = [e.get("autograd_message_id") for e in messages[edge["forward"]]["envelopes"]]
            assert edge["autograd_message_id"] in ids
            assert all(messages[i]["type"] == "BACKWARD_AUTOGRAD_REQ" for i in edge["backward"])
        assert all(messages[i]["type"] == "CLEANUP_AUTOGRAD_CONTEXT_REQ" for i in context["cleanup"])
    for finding in decoded.of("finding"):
        assert finding["severity"] in CODES[finding["code"]]
        assert all(index < len(messages) for index in finding["messages"])


def test_summary_adds_up(decoded: Decoded) -> None:
    summary, messages = decoded.summary, decoded.messages
    assert summary["messages"] == len(messages) == sum(summary["by_type"].values())
    assert all(summary["by_type"][kind] for kind in {m["type"] for m in messages})
    assert summary["problems"] == len(decoded.problems())
    check(decoded.problems(), [PROBLEM], "problems")


def test_ids_of_64_bits_are_whole(decoded: Decoded) -> None:
    """Where a worker's number is in the upper 16 bits, doubles would lose the lower ones."""
    for context in decoded.of("context"):
        assert type(context["context_id"]) is int
        assert context["creator"] in context["workers"]
    ids = [e["autograd_message_id"] for m in decoded.messages for e in m["envelopes"] if "context_id" in e]
    assert all(type(number) is int for number in ids)


def test_no_literals_that_json_lacks(path: Path) -> None:
    text = b"".join(pieces(path)).decode()
    assert text.endswith("\n")
    assert "\n\n" not in text
    for line in text.splitlines():
        json.loads(line, parse_constant=pytest.fail)


# --- parts of a capture -------------------------------------------------------------------------------------


def packets_of(path: Path) -> tuple[bytes, list[bytes]]:
    """File header and packet records of a little-endian pcap."""
    raw = path.read_bytes()
    header, at, packets = raw[:24], 24, []
    while at < len(raw):
        size = 16 + int.from_bytes(raw[at + 8 : at + 12], "little")
        packets.append(raw[at : at + size])
        at += size
    return header, packets


def facts(message: Json) -> tuple[Any, ...]:
    """What a message says, wherever it was captured and whoever is known."""
    said = {key: message[key] for key in ("envelopes", "body", "tensors", "request", "control")}
    return message["time_ns"], message["type"], message["id"], json.dumps(said)


@pytest.mark.parametrize("inside", [0, 3, 5, 7, 9, 16])
def test_a_capture_that_starts_late(tmp_path: Path, inside: int) -> None:
    """Every message that begins after that is there and as before; no problem, nobody is made up."""
    path = CAPTURES["basic_chain"]
    header, packets = packets_of(path)
    late = tmp_path / "late.pcap"
    whole = decode(path)
    start = (
        whole.messages[inside]["location"]["packet"] + 1
    )  # the head of that message is lost, or it is lost
    late.write_bytes(header + b"".join(packets[start:]))
    result = decode(late)
    expected = [m for m in whole.messages if m["location"]["packet"] > start]
    assert expected
    assert [(m["type"], m["id"]) for m in result.messages] == [(m["type"], m["id"]) for m in expected]
    for message, same in zip(result.messages, expected, strict=True):
        own = {**message, "control": same["control"]}  # the request that tells may be lost
        if any(tensor["sha256"] is None for tensor in message["tensors"]):
            own["tensors"] = same["tensors"]  # which tensor it was may not be known any more
        assert facts(own) == facts(same)
        for key in ("src", "dst"):
            if message[key].startswith("worker") and ":" not in message[key]:
                assert message[key] == same[key]
    assert result.problems() == []
    for line in result.lines:
        check(line, KINDS[line["kind"]], line["kind"])
    workers = result.of("worker")
    assert all(w["name"] is not None or w["id"] is not None or w["addresses"] for w in workers)


def test_two_files_are_one_session(tmp_path: Path) -> None:
    """Every second packet in the one, the others in the other: the messages are those of the whole."""
    path = CAPTURES["profiled_legacy"]
    header, packets = packets_of(path)
    parts = [tmp_path / "even.pcap", tmp_path / "odd.pcap"]
    for part, own in zip(parts, (packets[::2], packets[1::2]), strict=True):
        part.write_bytes(header + b"".join(own))
    result, whole = decode(*parts), decode(path)
    assert [line["capture"] for line in result.of("capture")] == [0, 1]
    assert [line["path"] for line in result.of("capture")] == [str(part) for part in parts]
    assert list(map(facts, result.messages)) == list(map(facts, whole.messages))
    assert result.problems() == []
    for message, same in zip(result.messages, whole.messages, strict=True):
        place, position = message["location"], same["location"]["packet"] - 1  # packets count from 1
        assert (place["capture"], place["packet"]) == (position % 2, position // 2 + 1)
        assert (place["flow"], place["offset"]) == (same["location"]["flow"], same["location"]["offset"])
    for kind in ("worker", "context", "rref"):
        assert result.of(kind) == whole.of(kind)


# --- --stream, and the command itself -----------------------------------------------------------------------


def test_stream_has_the_same_messages(path: Path, decoded: Decoded) -> None:
    streamed = stream(path)

    def identity(message: Json) -> tuple[Any, ...]:
        return (message["time_ns"], message["type"], message["id"], message["pipe"])

    assert sorted(map(identity, streamed.messages)) == sorted(map(identity, decoded.messages))
    count_ = len(streamed.messages)
    assert [line["kind"] for line in streamed.lines[:count_]] == ["message"] * count_
    assert [m["index"] for m in streamed.messages] == list(range(count_))
    assert streamed.lines[-1]["kind"] == "summary"
    assert streamed.summary == decoded.summary
    for kind in ("capture", "worker", "pipe", "rref"):
        assert streamed.of(kind) == decoded.of(kind)
    told = [
        sorted(
            (f["code"], f["severity"], re.sub(r"#\d+", "#", f["text"]), f["remedy"]) for f in d.of("finding")
        )
        for d in (streamed, decoded)
    ]
    assert told[0] == told[1]
    for line in streamed.lines:
        check(line, KINDS[line["kind"]], line["kind"])
    ordered = {identity(m): m for m in decoded.messages}
    for message in streamed.messages:
        same = ordered[identity(message)]
        for key in ("end_time_ns", "request", "envelopes", "body", "tensors", "problems", "location"):
            assert message[key] == same[key]
        if message["answers"] is not None:
            request = streamed.messages[message["answers"]]
            assert identity(request) == identity(decoded.messages[same["answers"]])
    for context in streamed.of("context"):
        for edge in context["edges"]:
            ids = [e.get("autograd_message_id") for e in streamed.messages[edge["forward"]]["envelopes"]]
            assert edge["autograd_message_id"] in ids


def run(*arguments: str) -> bytes:
    done = ran("decode", *arguments)
    assert done.returncode == 0, done.stderr
    return bytes(done.stdout)


def test_the_command_prints_these_lines() -> None:
    path = CAPTURES["basic_chain"]
    assert run(str(path), "--format", "jsonl") == b"".join(pieces(path))


def test_one_message() -> None:
    path = CAPTURES["basic_chain"]
    (line,) = parse(run(str(path), "--format", "jsonl", "--message", "6"))
    assert line == decode(path).messages[6]


def test_without_hashes() -> None:
    path = CAPTURES["dtype_zoo"]
    plain = Decoded(parse(run(str(path), "--format", "jsonl", "--no-hash")))
    assert {t["sha256"] for m in plain.messages for t in m["tensors"]} == {None}
    full = decode(path)
    for message, whole in zip(plain.messages, full.messages, strict=True):
        for tensor, same in zip(message["tensors"], whole["tensors"], strict=True):
            assert {**tensor, "sha256": same["sha256"]} == same
