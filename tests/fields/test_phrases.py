"""Messages in a few words, and the one place where captured text is made harmless."""

from __future__ import annotations

import json
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.fields.phrases import (
    Phrases,
    amount,
    command_phrase,
    counted,
    duration,
    error_phrase,
    packed,
    path_label,
    printable,
    printable_json,
    read_packed,
    shorten,
)
from rpcinspect.rpc.record import RpcRecord
from tests.views.opened import opened

ANYTHING = st.text(st.characters(), max_size=30)


@given(ANYTHING)
def test_printable_text_is_printable_and_otherwise_the_same(text: str) -> None:
    safe = printable(text)
    assert safe.isprintable()
    if text.isprintable():
        assert safe == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("worker0", "worker0"),
        ("größe → 日本", "größe → 日本"),
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\nb\r\tc\0", r"a\nb\r\tc\x00"),
        ("\x7f\x9b", r"\x7f\x9b"),
        ("\u202eevil\u2066", r"\u202eevil\u2066"),
        ("\u200b\ufeff\u2028", r"\u200b\ufeff\u2028"),
        ("\U000e0001", r"\U000e0001"),
        ("\udcff\udc80", r"\xff\x80"),  # bytes that are not UTF-8
        ("\ud800", r"\ud800"),
    ],
)
def test_what_is_not_visible_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_every_control_and_format_character_is_escaped() -> None:
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
            assert printable(chr(code)).isascii()


@given(
    st.dictionaries(ANYTHING.map(lambda t: t.encode("utf-8", "replace").decode()), st.integers(), max_size=3)
)
def test_json_for_a_terminal_means_the_same(value: dict[str, int]) -> None:
    line = json.dumps(value, ensure_ascii=False).encode() + b"\n"
    safe = printable_json(line)
    assert json.loads(safe) == value
    assert safe.endswith(b"\n")
    assert all(c == "\n" or c.isprintable() for c in safe.decode())


def test_plain_json_is_passed_on_as_it_is() -> None:
    line = b'{"a":"b \\u001b"}\n'
    assert printable_json(line) is line
    assert printable_json('{"a":"→ \u202e \x7f"}'.encode()) == '{"a":"→ \\u202e \\u007f"}'.encode()


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1 µs"),
        (999_499, "999 µs"),
        (999_600, "1 ms"),
        (1_912_345, "1.91 ms"),
        (999_700_000, "1 s"),
        (59_940_000_000, "59.9 s"),
        (12_345_000_000_000, "12,345 s"),
        (-2_500, "-2.5 µs"),
    ],
)
def test_duration(nanoseconds: int, text: str) -> None:
    assert duration(nanoseconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1_000, "1 KB"),
        (999_499, "999 KB"),
        (999_500, "1 MB"),
        (32_100_000, "32.1 MB"),
        (5_000_000_000_000, "5,000 GB"),
    ],
)
def test_amount(count: int, text: str) -> None:
    assert amount(count) == text


def test_small_words() -> None:
    assert [counted(n, "message") for n in (0, 1, 2, 30_000)] == [
        "no messages",
        "1 message",
        "2 messages",
        "30,000 messages",
    ]
    assert packed((3 << 48) + 7) == "3:7"
    assert (shorten("abcdef", 4), shorten("abcd", 4)) == ("abc…", "abcd")
    assert (path_label("-"), path_label("a\nb")) == ("standard input", r"a\nb")


CALL = {
    "type": "PYTHON_CALL",
    "function": "m.f",
    "args": ["tensor#0[2] float32"],
    "kwargs": {"n": "3"},
    "async": False,
}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (CALL, "m.f(tensor#0[2] float32, n=3)"),
        ({**CALL, "async": True}, "async m.f(tensor#0[2] float32, n=3)"),
        ({**CALL, "rref_id": [0, 5], "fork_id": [0, 6]}, "rref 0:5 = m.f(tensor#0[2] float32, n=3)"),
        ({**CALL, "function": None}, "?(tensor#0[2] float32, n=3)"),
        ({"type": "PYTHON_RET", "value": "None", "error": None}, "= None"),
        (
            {"type": "EXCEPTION", "error": {"type": None, "node_id": None, "text": "RPCErr:1:late\nmore"}},
            "✗ RPCErr:1:late",
        ),
        ({"type": "REMOTE_RET", "rref_id": [0, 8], "fork_id": [2, 1]}, "rref 0:8 fork 2:1"),
        ({"type": "CLEANUP_AUTOGRAD_CONTEXT_REQ", "context_id": 1 << 48}, "ctx 1:0"),
        (
            {
                "type": "BACKWARD_AUTOGRAD_REQ",
                "context_id": 0,
                "autograd_message_id": (1 << 48) + 2,
                "retain_graph": True,
                "grads": [0, 9],
            },
            "gradients T0, ?  ctx 0:0 edge 1:2, retain graph",
        ),
        ({"type": "0x1ab", "payload_hex": "00ff"}, "2 bytes not understood"),
        ({"type": "RREF_ACK"}, ""),
    ],
)
def test_commands_read_as_a_person_would_tell_them(body: dict[str, object], text: str) -> None:
    assert command_phrase(body, ["T0"]) == text


def test_errors_name_what_and_where() -> None:
    text = "On WorkerInfo(id=1, name=worker1):\nValueError('boom')\nTraceback (most recent call last):\n"
    assert (
        error_phrase({"type": None, "text": text}) == "ValueError('boom') on WorkerInfo(id=1, name=worker1)"
    )
    assert error_phrase({"type": "builtins.KeyError", "text": ""}) == "builtins.KeyError"
    assert error_phrase({"type": None, "text": " \n"}) == "an error"
    text = (
        "The following operation failed in the TorchScript interpreter.\n"
        "Traceback of TorchScript (most recent call last):\n    raise\nRuntimeError: nope\n"
    )
    assert error_phrase({"type": None, "text": text}) == "RuntimeError: nope"


def test_phrases_of_a_capture_are_single_printable_lines() -> None:
    with opened("profiled_legacy.pcap") as capture:
        phrases = Phrases()
        told = [phrases.phrase(record) for record in capture.records]
        assert all(text.isprintable() and len(text) <= 2000 for text in told)
        request, answer = (phrases.phrase(capture.messages[i]) for i in (17, 19))
    clip = "PYTHON_CALL  profiled_legacy.clip(tensor#0[4] float32 grad, tensor#1[4] float32)"
    assert request == f"{clip}  profiled 0:4  ctx 0:0 edge 0:0"
    assert answer == "PYTHON_RET  = tensor#0[4] float32 grad  profile 0:4, 12 events  ctx 0:0 edge 1:0"


def test_messages_of_a_pattern_have_the_phrase_of_the_whole_message() -> None:
    phrases, learned = Phrases(), 0
    for name in ("basic_chain.pcap", "ctx_crowd.pcap.gz", "rref_relay.pcap.gz", "bwd_boom.pcap.gz"):
        with opened(Path(name)) as capture:
            for record in capture.records:
                whole = RpcRecord(record.row, record.tp, record.rpc, record.facts, record.problems)
                learned += record.pattern is not None
                assert phrases.phrase(record) == Phrases().phrase(whole)
    assert learned > 20


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("7", 7),
        ("0:7", 7),
        ("1:1", (1 << 48) + 1),
        ("281474976710657", (1 << 48) + 1),
        ("x", None),
        ("1:", None),
        (":1", None),
        ("65535:0", -1 << 48),
        ("65536:1", None),
        (f"1:{1 << 48}", None),
        (str(1 << 63), None),
        ("9" * 5000, None),
        ("0:" + "9" * 5000, None),
        ("-1", None),
        ("", None),
    ],
)
def test_ids_are_read_as_they_are_written(given: str, found: int | None) -> None:
    assert read_packed(given) == found
