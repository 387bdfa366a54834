"""The tree of a message: against what `decode` says of it, and against the file."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcinspect.browse.node import MAX_LABEL, Node
from rpcinspect.browse.structure import Structure
from rpcinspect.rpc.tensor import TensorMeta
from tests.browse.messages import answer, call
from tests.decoded import decode
from tests.places import recorded
from tests.replayer.planning.pickled import rref, tensor
from tests.views.opened import CAPTURES, Opened, opened

NAMES = [
    *("basic_chain.pcap", "profiled_legacy.pcap", "dtype_zoo.pcap.gz", "bwd_boom.pcap.gz"),
    *("rref_relay.pcap.gz", "transport_matrix_uv_mpt.pcap.gz", "torch/snap300.pcap"),
]


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from walk(child)


def child(node: Node, start: str) -> Node:
    return next(one for one in node.children if one.label.startswith(start))


def below(node: Node, *starts: str) -> Node:
    for start in starts:
        node = child(node, start)
    return node


def tree(capture: Opened, index: int) -> Structure:
    return Structure(capture.messages[index], capture.bytes, capture.session)


@pytest.mark.parametrize("name", NAMES)
def test_every_message_has_a_tree_whose_ranges_are_within_its_parts(name: str) -> None:
    with opened(recorded(name)) as capture:
        for line in decode(recorded(name)).messages:
            structure = tree(capture, line["index"])
            labels = []
            for node in walk(structure.root):
                labels.append(node.label)
                assert node.label.isprintable()
                assert len(node.label) <= MAX_LABEL
                for one in node.ranges:
                    assert 0 <= one.start <= one.end <= structure.bytes.parts[one.part].length
            assert labels[0] == f"message {line['index']}: {line['type']}, {line['src']} → {line['dst']}"
            assert f"body {line['body']['type']}" in labels
            assert [f"envelope {one['type']}" for one in line["envelopes"]] == [
                label for label in labels if label.startswith("envelope ")
            ]
            assert len([label for label in labels if label.startswith("problem: ")]) == len(line["problems"])
            tables = [label for label in labels if label.startswith("tensor table")]
            if line["tensors"]:
                assert tables[0].startswith(f"tensor table: {len(line['tensors'])} tensor")


def test_fields_and_values_are_those_of_the_lines() -> None:
    path = CAPTURES / "basic_chain.pcap"
    line = decode(path).messages[6]
    with opened(path) as capture:
        root = tree(capture, 6).root
        body = child(root, "body PYTHON_CALL")
        assert [node.label for node in body.children] == [
            f"function: {line['body']['function']}",
            "args: 2",
            "kwargs: 1",
            "async: False",
        ]
        arguments = [node.label.partition(": ")[2] for node in child(body, "args").children]
        assert arguments == line["body"]["args"]
        assert [node.label for node in child(body, "kwargs").children] == ["gain: 2.0"]
        envelope = child(root, "envelope")
        assert envelope.children[0].label == "context_id: 0:0 (0)"


def test_bytes_and_nodes_name_each_other() -> None:
    """Each byte of a frame belongs to the node of its part, each of a storage to a tensor in it."""
    path = CAPTURES / "basic_chain.pcap"
    data = path.read_bytes()
    with opened(path) as capture:
        for line in decode(path).messages:
            structure = tree(capture, line["index"])
            for number, part in enumerate(structure.bytes.parts):
                for at in {0, part.length // 2, part.length - 1} if part.length else ():
                    node = structure.innermost(number, at)[-1]
                    assert node is not structure.root
                    assert node.holds(number, at)
            for number, told in enumerate(line["tensors"]):
                node = structure.way_to_tensor(number)[-1]
                assert node.tensor == number
                (found, table) = node.ranges
                start = structure.bytes.parts[found.part].offset(found.start)
                assert start is not None
                stop = start + found.end - found.start
                values = structure.tensors[number].tobytes()
                assert told["stride"] != [0]
                assert data[start:stop] == values
                assert structure.bytes.parts[table.part].name == "tensor table"


def test_an_error_has_its_lines() -> None:
    path = recorded("pairs/error.pcap")
    with opened(path) as capture:
        errors = [
            (line, next(n for n in walk(tree(capture, line["index"]).root) if n.label.startswith("error: ")))
            for line in decode(path).messages
            if line["body"].get("error")
        ]
    assert errors
    long = 0
    for line, node in errors:
        text = child(node, "text: ")
        expected = line["body"]["error"]["text"]
        assert node.look == "bad"
        if "\n" not in expected:
            assert text.label == f"text: {expected}"
            continue
        long += 1
        assert [one.label for one in text.children][:2] == [part[:160] for part in expected.split("\n")[:2]]
    assert long


def test_findings_stand_at_the_messages_that_they_name() -> None:
    path = recorded("reports/job/nan.pcap")
    with opened(path) as capture:
        named = {number for finding in capture.session.findings for number in finding.messages}
        assert named
        for number in range(len(capture.records)):
            labels = [node.label for node in tree(capture, number).root.children]
            assert any(label.startswith("finding ") for label in labels) == (number in named)


def test_without_a_session() -> None:
    with opened(Path("basic_chain.pcap")) as capture:
        structure = Structure(capture.messages[6], capture.bytes, title="#6 worker0 → worker1")
        assert structure.root.label == "#6 worker0 → worker1"
        assert [node.label for node in walk(structure.root)][1] == "how it travelled"


def test_long_lists_are_pages() -> None:
    record, source = call(list(range(100_000)), 5)
    structure = Structure(record, source)
    items = below(structure.root, "body", "args", "0: ")
    assert len(items.label) <= MAX_LABEL
    assert [node.label for node in items.children] == [
        "items 0…39,999",
        "items 40,000…79,999",
        "items 80,000…99,999",
    ]
    page = items.children[1].children[3]
    assert [node.label for node in page.children][::100] == ["40600: 40600", "40700: 40700"]


def test_values_know_their_bytes() -> None:
    record, source = call(
        7, ["seven", {"k": 2.5}], list(range(1000, 3000)), tensor(0), metas=[BYTE], storages=[b"x"]
    )
    structure = Structure(record, source)
    payload = record.rpc.message.payload

    def written(node: Node) -> bytes:
        one = node.ranges[-1]
        assert structure.bytes.parts[one.part].name == "command"
        return payload[one.start : one.end]

    arguments = below(structure.root, "body", "args")
    seven, items, many, reference = arguments.children
    assert pickle.loads(b"\x80\x04" + written(seven) + b".") == 7
    assert pickle.loads(b"\x80\x04" + written(items) + b".") == ["seven", {"k": 2.5}]
    assert pickle.loads(b"\x80\x04" + written(below(items, "1: ", "k: ")) + b".") == 2.5
    page = many.children[3]
    assert page.label == "items 600…799"
    assert pickle.loads(b"\x80\x04(" + written(page) + b"t.") == tuple(range(1600, 1800))
    assert b"_tensor_receiver" in written(reference)
    command = seven.ranges[0].part
    for node in (seven, below(items, "0: "), page.children[7], reference):
        assert structure.innermost(command, node.ranges[-1].start)[-1] is node
    assert structure.innermost(command, 0)[-1].label.startswith("body ")


def test_tensors_in_values_lead_to_their_bytes() -> None:
    meta = TensorMeta(dtype="uint8", sizes=(2,), strides=(1,), storage=0, storage_numel=6)
    part = TensorMeta(dtype="uint8", sizes=(2,), strides=(2,), storage_offset=3, storage=0, storage_numel=6)
    record, source = call({"a": [tensor(1)], "r": rref(3)}, metas=[meta, part], storages=[bytes(range(6))])
    structure = Structure(record, source)
    node = below(structure.root, "body", "args", "0: ", "a: ", "0: ")
    assert (node.label, node.tensor) == ("0: tensor#1[2] uint8", 1)
    assert (node.ranges[0].start, node.ranges[0].end) == (3, 6)
    assert not below(structure.root, "body", "args", "0: ", "r: ").has_children
    storage = structure.bytes.storages
    assert [structure.innermost(storage, at)[-1].tensor for at in range(6)] == [0, 0, None, 1, 1, 1]
    assert child(structure.way_to_tensor(1)[-1], "values").label == "values: 3, 5"


def test_many_tensors() -> None:
    metas = [
        TensorMeta(
            dtype="uint8", sizes=(1,), strides=(1,), storage_offset=at, storage=0, storage_numel=20_000
        )
        for at in range(20_000)
    ]
    record, source = call(metas=metas, storages=[bytes(20_000)])
    structure = Structure(record, source)
    way = structure.innermost(structure.bytes.storages, 12_345)
    assert [node.label for node in way[1:]] == [
        "tensor table: 20,000 tensors",
        "tensors 12,200…12,399",
        "tensor#12345[1] uint8",
    ]


BYTE = TensorMeta(dtype="uint8", sizes=(1,), strides=(1,), storage=0, storage_numel=1)


def test_a_pickle_that_can_not_be_read_has_no_value() -> None:
    record, source = answer(b"\x80\x02K")
    root = Structure(record, source).root
    (told,) = child(root, "body").children
    assert told.label.startswith("pickle_error: opcode 0x4b lacks operands")
    assert child(root, "problem: pickle: ").look == "bad"


def test_twenty_thousand_long_arguments_are_not_put_into_words() -> None:
    """Only a page of them is: all would take seconds."""
    path = recorded("attacks/e_f10_lists_20000.rpclog")
    with opened(path) as capture:
        body = child(tree(capture, 0).root, "body")
        started = time.process_time()
        assert [page.label for page in below(body, "args").children][-1] == "items 20,000…20,001"
        assert time.process_time() - started < 2


HOSTILE = ("\x1b[2J[red]x[/red]\u202e\x00\n" + "y" * 1_000_000).encode()


def test_hostile_text_is_inert() -> None:
    text = b"X" + len(HOSTILE).to_bytes(4, "little") + HOSTILE
    record, source = answer(b"\x80\x02}(" + text + b"]" + text + b"au.")
    structure = Structure(record, source)
    labels = [node.label for node in walk(structure.root)]
    assert all(label.isprintable() and len(label) <= MAX_LABEL for label in labels)
    assert any("\\x1b[2J[red]x[/red]\\u202e" in label for label in labels)
