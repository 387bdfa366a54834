"""`--format json` beside `--format jsonl`: the same objects, whatever is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.views.jsonl.document import SINGLE, list_name
from tests.cli.runner import CAPTURES, CHAIN, HIDDEN, ask, decode
from tests.cli.test_questions import BEST, BOOM, QUESTIONS

REINIT = CAPTURES / "reinit.pcap.gz"


def document(*arguments: object, code: int = 0, stdin: bytes = b"") -> dict[str, Any]:
    """Standard output as one document."""
    ran = decode(*arguments, "--format", "json", stdin=stdin)
    assert ran.code == code
    return dict(json.loads(ran.out))


def by_kind(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Lines put into lists by a test's own hand."""
    lists: dict[str, Any] = {"schema": 1}
    for line in lines:
        kind = line["kind"]
        if kind in SINGLE:
            lists[kind] = line
        else:
            lists.setdefault(list_name(kind), []).append(line)
    return lists


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question[0])
@pytest.mark.parametrize("path", [None, REINIT], ids=["one job", "several"])
def test_answers_have_the_objects_of_the_lines(question: tuple[str, ...], path: Path | None) -> None:
    path = path or BEST.get(question[0], BOOM)
    whole = dict(json.loads(ask(question, path, "--format", "json").out))
    lines = ask(question, path, "--format", "jsonl").objects
    assert {key: value for key, value in whole.items() if value != []} == by_kind(lines)


def test_one_message() -> None:
    (line,) = decode(CHAIN, "--message", "6", "--format", "jsonl").objects
    assert document(CHAIN, "--message", "6") == {"schema": 1, "messages": [line]}
    assert document(CHAIN, "--message", "6", "-f", "index == 7") == {"schema": 1, "messages": []}
    assert decode(CHAIN, "--message", "99", "--format", "json").out == ""


@pytest.mark.parametrize("options", [("-w", "PCAP"), ("--no-hash",), ()])
def test_beside_files_and_without_hashes(options: tuple[str, ...], tmp_path: Path) -> None:
    names = {"PCAP": tmp_path / "part.pcap"}
    arguments = [CHAIN, *(names.get(option, option) for option in options), "-f", "index < 9"]
    whole = document(*arguments)
    lines = decode(*arguments, "--format", "jsonl").objects
    assert {key: value for key, value in whole.items() if value != []} == by_kind(lines)


def test_standard_input_and_files_give_the_same(tmp_path: Path) -> None:
    whole = document(CHAIN)
    piped = document("-", stdin=CHAIN.read_bytes())
    assert piped["captures"][0].pop("path") == "-"
    whole["captures"][0].pop("path")
    assert piped == whole
    assert decode(CHAIN, "--format", "json", "-o", tmp_path / "out").out == ""
    assert json.loads((tmp_path / "out").read_text())["messages"] == whole["messages"]


def test_an_empty_run_is_a_document_too() -> None:
    whole = document(HIDDEN)
    assert whole["messages"] == []
    assert [finding["code"] for finding in whole["findings"]] == ["invisible-transport"]
    assert document(HIDDEN, "--check", code=1) == whole
