"""`-f`, `-w` and `--fields` as users meet them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.cli.members import key_of, messages_of
from tests.cli.runner import CAPTURES, CHAIN, HIDDEN, Ran, decode, rpcinspect, visible
from tests.export.pcap.rewritten import told
from tests.filter.from_json import picked

BOOM = CAPTURES / "bwd_boom.pcap.gz"
RREF = CAPTURES / "rref_relay.pcap.gz"
RACE = CAPTURES / "ps_race.pcap.gz"
MPT = CAPTURES / "transport_matrix_uv_mpt.pcap.gz"


def indexes(ran: Ran) -> list[int]:
    """Of message lines of jsonl."""
    assert ran.code == 0, ran.err
    return [line["index"] for line in ran.objects if line["kind"] == "message"]


def rows(ran: Ran) -> list[int]:
    """Numbers in front of the lines of a table."""
    assert ran.code == 0, ran.err
    return [int(found[1]) for found in re.finditer(r"^ *(\d+)  +\d+\.\d{6}  ", ran.out, re.MULTILINE)]


# --- views --------------------------------------------------------------------------------------------------


TEXTS = (
    "src == worker0 and latency > 500us",
    "type == BACKWARD_AUTOGRAD_REQ",
    "type == CLEANUP_AUTOGRAD_CONTEXT_RESP",
    "error",
    "body == RREF_CHILD_ACCEPT",
    "body in {PYTHON_RREF_FETCH_RET, SCRIPT_RREF_FETCH_RET}",
    "rref_id == 0:5",
    "index < 20",
    "src == nobody",
)


@cache
def unfiltered(path: Path) -> Ran:
    """All lines of a capture."""
    return decode(path, "--format", "jsonl")


@pytest.mark.parametrize("path", [CHAIN, BOOM, RREF, RACE], ids=lambda path: path.name)
@pytest.mark.parametrize("text", TEXTS)
def test_jsonl_keeps_what_a_matching_message_takes_part_in(path: Path, text: str) -> None:
    ran, whole = decode(path, "--format", "jsonl", "-f", text), unfiltered(path)
    matching = set(picked(text, path))
    assert set(indexes(ran)) == matching
    contexts, rrefs = (messages_of(path).parts(kind) for kind in ("context", "rref"))
    its: dict[str, Callable[[dict[str, Any]], set[int]]] = {
        "message": lambda line: {line["index"]},
        "context": lambda line: contexts[key_of(line)],
        "rref": lambda line: rrefs[key_of(line)],
        "finding": lambda line: set(line["messages"]) or matching,  # one without is about the capture
    }
    expected = [
        line for line in whole.objects[:-1] if line["kind"] not in its or its[line["kind"]](line) & matching
    ]
    assert ran.objects[:-1] == expected
    kinds = {"contexts": "context", "rrefs": "rref", "findings": "finding"}

    def counts(lines: list[dict[str, Any]]) -> dict[str, int]:
        return {name: sum(line["kind"] == kind for line in lines) for name, kind in kinds.items()}

    assert ran.objects[-1] == {
        **whole.objects[-1],
        "filter": text,
        "matched": len(matching),
        "shown": counts(expected),
        "of": counts(whole.objects),
    }


def test_the_table_shows_the_matching_rows_with_their_numbers() -> None:
    ran = decode(CHAIN, "--filter", "type == FORWARD_AUTOGRAD_REQ")
    assert rows(ran) == [6, 8]
    assert "2 messages match type == FORWARD_AUTOGRAD_REQ" in ran.out
    assert "24 messages in" in ran.out
    whole = decode(CHAIN).out.splitlines()
    assert set(ran.out.splitlines()[1:3]) <= set(whole)


@pytest.mark.parametrize(
    "text", ["control and request", "type == PYTHON_CALL", "housekeeping", "ctx == 0:0", "src == worker1"]
)
def test_the_table_shows_all_that_matches(text: str) -> None:
    ran = decode(CHAIN, "-f", text)
    assert rows(ran) == picked(text, CHAIN) != []
    assert rows(decode("-", "-f", text, stdin=CHAIN.read_bytes())) == rows(ran)
    assert "hidden" not in ran.out


def test_nothing_matches() -> None:
    ran = decode(CHAIN, "-f", "src == nobody")
    assert ran.code == 0
    assert "no messages match src == nobody" in ran.out
    ran = decode(CHAIN, "-f", "src == nobody", "--format", "jsonl")
    assert indexes(ran) == []
    assert ran.objects[-1]["matched"] == 0


def test_standard_input_is_filtered_as_it_comes() -> None:
    ran = decode("-", "-f", "src == worker0 and tensors > 0", stdin=CHAIN.read_bytes())
    assert rows(ran) == rows(decode(CHAIN, "-f", "src == worker0 and tensors > 0"))
    ran = decode("--stream", "--format", "jsonl", "-f", "latency > 600us", CHAIN)
    lines = [line for line in ran.objects if line["kind"] == "message"]
    assert lines
    assert all(line["answers"] is not None for line in lines)
    assert ran.objects[-1]["matched"] == len(lines)


@pytest.mark.parametrize("field", ["finding", "answered"])
def test_what_is_known_at_the_end_only_is_refused_to_views_that_print_at_once(field: str) -> None:
    for options in (("--stream", CHAIN), ("--stream", "--format", "jsonl", CHAIN), ("-",)):
        ran = decode("-f", f"request and {field}", *options, stdin=CHAIN.read_bytes())
        assert ran.code == 2
        assert f"-f: {field} is known only at the end" in ran.err
    ran = decode("-f", f"request and {field}", "--format", "jsonl", "-", stdin=CHAIN.read_bytes())
    assert indexes(ran) == picked(f"request and {field}", CHAIN)


def test_one_message_is_shown_if_it_matches() -> None:
    assert decode("--message", "6", "-f", "tensors > 1", CHAIN).out == decode("--message", "6", CHAIN).out
    ran = decode("--message", "7", "-f", "tensors > 1", CHAIN)
    assert (ran.code, ran.out) == (0, "")
    assert "message 7 does not match tensors > 1" in ran.err


def test_tensors_of_matching_messages_are_written(tmp_path: Path) -> None:
    rpcinspect("export", "safetensors", "-o", tmp_path, "-f", "tensors > 1", CHAIN)
    entries = [json.loads(line) for line in (tmp_path / "index.jsonl").read_text().splitlines()]
    expected = picked("tensors > 1", CHAIN)
    assert sorted({entry["message"] for entry in entries}) == expected != []


def test_findings_without_messages_are_of_the_capture_and_stay() -> None:
    whole = decode(HIDDEN, "--format", "jsonl")
    findings = [line for line in whole.objects if line["kind"] == "finding"]
    assert findings
    assert not any(line["messages"] for line in findings)
    ran = decode(HIDDEN, "--format", "jsonl", "-f", "src == nobody")
    assert [line for line in ran.objects if line["kind"] == "finding"] == findings


def test_the_table_has_the_findings_of_matching_messages_and_counts_the_others() -> None:
    codes = re.compile(r"^(?:error|warning|info): (\S+)", re.MULTILINE)
    assert codes.findall(decode(BOOM).out) == ["error-response", "missing-gradient"]
    ran = decode(BOOM, "-f", "error")
    assert codes.findall(ran.out) == ["error-response"]
    assert "1 more finding names none of the messages that match: not shown" in ran.out
    ran = decode(BOOM, "-f", "src == nobody")
    assert codes.findall(ran.out) == []
    assert "2 more findings name none of the messages that match: not shown" in ran.out
    assert "not shown" not in decode(BOOM, "--all", "-f", "id or not id").out


def test_the_verdict_is_that_of_the_whole_session() -> None:
    for path in (HIDDEN, BOOM, CHAIN):
        assert decode(path, "--check", "-f", "src == nobody").code == decode(path, "--check").code


def test_standard_input_has_what_matching_messages_take_part_in() -> None:
    """As it comes and at the end: the order of lines is another, what is kept is not."""
    for text in ("error", "type == BACKWARD_AUTOGRAD_REQ"):
        kept = []
        for options in ((), ("--stream",)):
            ran = decode("--format", "jsonl", "-f", text, *options, BOOM)
            kept.append([key_of(line) for line in ran.objects if line["kind"] in ("context", "rref")])
            assert ran.objects[-1]["shown"]["contexts"] == 1
        assert kept[0] == kept[1]


# --- mistakes -----------------------------------------------------------------------------------------------


def test_mistakes_are_pointed_at_before_a_capture_is_read() -> None:
    ran = decode("-f", "request and lantency > 5ms", "there-is-no-such-file.pcap")
    assert ran.code == 2
    assert ran.out == ""
    lines = ran.err.splitlines()
    assert lines[0] == "rpcinspect: -f: there is no field lantency; near: latency"
    assert lines[1] == "  request and lantency > 5ms"
    assert lines[2] == "              ^^^^^^^^"


def test_marks_stand_below_wide_characters_and_in_long_filters() -> None:
    lines = decode("-f", 'src == "工人" and x', CHAIN).err.splitlines()
    assert lines[2] == " " * (2 + len('src == "') + 4 + len('" and ')) + "^"
    lines = decode("-f", " and ".join(["request"] * 100) + " and\nxyzzy\x1b", CHAIN).err.splitlines()
    assert len(lines) == 3
    assert visible("\n".join(lines))
    mark = lines[2].index("^")
    assert lines[1][mark : mark + 5] == "xyzzy"
    assert len(lines[1]) < 150


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--roundtrip", "-f", "request"), "--roundtrip and -f can't be used together"),
        (("--roundtrip", "-w", "out.pcap"), "can't be used together"),
        (("--message", "6", "-w", "out.pcap"), "can't be used together"),
        (("--stream", "-w", "out.pcap"), "can't be used together"),
        (("-w", "-"), "written to a file"),
        (("-w", "same.x", "-o", "same.x"), "can't both be written there"),
        (("-w", CHAIN), "is an input, -w would overwrite it"),
    ],
)
def test_what_does_not_go_together(options: tuple[object, ...], told: str) -> None:
    before = CHAIN.read_bytes()
    ran = decode(*options, CHAIN)
    assert ran.code == 2
    assert told in ran.err
    assert CHAIN.read_bytes() == before


def test_a_capture_that_is_made_now_can_not_be_saved() -> None:
    assert "--live can't be read twice" in decode("--live", "lo", "-w", "out.pcap").err


# --- saved captures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capture", "text"),
    [
        (CHAIN, "tensor.requires_grad and request"),
        (CHAIN, "body == PYTHON_RET"),
        (CHAIN, "control"),
        (BOOM, "error"),
        (BOOM, "ctx and latency > 1ms"),
        (RREF, "rref_id and src != worker0"),
        (MPT, "tensors > 0"),
    ],
)
def test_saved_messages_are_read_back(capture: Path, text: str, tmp_path: Path) -> None:
    """They and what they answer or are answered by, nothing else; the filter finds the same ones in it."""
    from tests.decoded import decode as lines

    out = tmp_path / "out.pcap"
    ran = decode(capture, "-f", text, "-w", out)
    assert ran.code == 0, ran.err
    whole, saved = lines(capture), lines(out)
    chosen = set(picked(text, capture))
    assert chosen
    pairs = {(m["answers"], m["index"]) for m in whole.messages if m["answers"] is not None}
    kept = sorted(chosen | {a for a, b in pairs if b in chosen} | {b for a, b in pairs if a in chosen})
    expected = [_renumbered(line, kept) for line in told(whole) if line["index"] in kept]
    assert [_alone(line) for line in told(saved)] == [_alone(line) for line in expected]
    assert [kept[index] for index in picked(text, out)] == sorted(chosen)
    others = len(kept) - len(chosen)
    assert f"{len(chosen)} message" in ran.out
    assert f"and {others or 'no'} other" in ran.out


def _alone(line: dict[str, object]) -> dict[str, object]:
    """Without what follows from messages that are not saved."""
    return {key: value for key, value in line.items() if key not in ("parents", "parent_certain", "call")}


def _renumbered(line: dict[str, object], kept: list[int]) -> dict[str, object]:
    changed = {
        name: kept.index(line[name])  # type: ignore[arg-type]
        for name in ("index", "answers", "answered_by")
        if line[name] is not None
    }
    return {**line, **changed}


def test_all_messages_are_saved_without_a_filter(tmp_path: Path) -> None:
    out = tmp_path / "out.pcap"
    ran = decode(CHAIN, "-w", out)
    assert "24 messages, in" in ran.out
    assert indexes(decode(out, "--format", "jsonl")) == list(range(24))


def test_saved_from_standard_input_beside_json(tmp_path: Path) -> None:
    out = tmp_path / "out.pcap"
    ran = decode("-", "-f", "tensors > 1", "-w", out, "--format", "jsonl", stdin=CHAIN.read_bytes())
    assert indexes(ran) == picked("tensors > 1", CHAIN)
    assert ran.objects[0]["path"] == "-"
    assert "and 3 others" in ran.err
    assert len(indexes(decode(out, "--format", "jsonl"))) == 6


def test_what_can_not_be_written(tmp_path: Path) -> None:
    ran = decode(CHAIN, "-w", tmp_path / "no" / "out.pcap")
    assert ran.code == 2
    assert "can't be written" in ran.err


# --- the list -----------------------------------------------------------------------------------------------


def test_fields_are_listed_without_a_capture() -> None:
    ran = decode("--fields")
    assert ran.code == 0
    assert ran.out.splitlines()[0].split() == ["field", "kind", "what", "it", "is", "example"]
    assert "tensor.requires_grad" in ran.out


def test_what_is_saved_of_a_capture_without_messages_says_why(tmp_path: Path) -> None:
    ran = decode(HIDDEN, "-w", tmp_path / "part.pcap")
    assert (ran.code, ran.out.split(",")[0]) == (0, "no messages")
    assert "transport shm" in ran.err
