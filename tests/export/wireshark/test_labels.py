"""What Wireshark is told of a message is what the lines of JSON say of it, in few and harmless characters."""

from __future__ import annotations

from pathlib import Path

from rpcinspect.export.wireshark.labels import MAX_TEXT, MessageLabel, MessageLabels
from rpcinspect.pipeline import Decoding
from tests.decoded import decode
from tests.places import recorded


def labels_of(path: Path) -> list[MessageLabel]:
    """The labels of a capture's messages, by index."""
    with Decoding([str(path)]) as decoding:
        records = list(decoding.records())
        labels = MessageLabels(decoding.session, decoding.bytes)
        return sorted((labels.of(record) for record in records), key=lambda label: label.index)


def test_an_answer_has_the_names_of_its_request() -> None:
    path = recorded("basic_chain.pcap")
    labels, messages = labels_of(path), decode(path).messages
    request = next(m for m in messages if m["body"].get("function") == "basic_chain.scale")
    asked, answer = labels[request["index"]], labels[request["answered_by"]]
    assert (asked.function, answer.function) == ("basic_chain.scale",) * 2
    assert asked.latency_ns == answer.latency_ns == request["latency_ns"]
    assert asked.line == (
        f"#{asked.index} FORWARD_AUTOGRAD_REQ worker0 → worker1 basic_chain.scale, "
        f"answered by #{answer.index} after 2.18 ms, ctx 0:0"
    )
    assert answer.line.startswith(
        f"#{answer.index} FORWARD_AUTOGRAD_RESP worker1 → worker0 basic_chain.scale, "
    )


def test_methods_behind_references_and_errors() -> None:
    labels = labels_of(recorded("ps_race.pcap"))
    behind = [label for label in labels if label.call and label.function and label.call != label.function]
    assert behind
    assert all(f" {label.call} ({label.function}), " in label.line for label in behind)
    failed = [label for label in labels_of(recorded("bwd_boom.pcap")) if label.error]
    assert failed
    assert all(f", ✗ {label.error}, error-response" in label.line for label in failed)


def test_every_text_is_short_and_printable() -> None:
    for name in ("attacks/a11_unicode.pcap", "reports/hostile/chain_1250.rpclog"):
        for label in labels_of(recorded(name)):
            for text in (label.source, label.destination, label.function, label.call, label.error):
                assert text is None or (len(text) <= MAX_TEXT and text.isprintable())
            assert label.line.isprintable()
