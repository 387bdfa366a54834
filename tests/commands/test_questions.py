"""`decode --graph`, `--contexts`, `--latency`: what is asked of the whole run, and in which forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.runner import CAPTURES, CHAIN, HIDDEN, decode

BOOM = CAPTURES / "bwd_boom.pcap.gz"
REINIT = CAPTURES / "reinit.pcap.gz"
PROFILED = CAPTURES / "profiled_legacy.pcap"
QUESTIONS = (
    ("--graph", "0:0"),
    ("--contexts",),
    ("--latency",),
    ("--profile",),
    ("--rrefs",),
    ("--device-maps",),
    ("--closings",),
)
BEST = {"--profile": PROFILED, "--rrefs": CAPTURES / "rref_relay.pcap.gz"}
"""Captures that have an answer, where it is not BOOM."""


@pytest.mark.parametrize("question", QUESTIONS)
def test_each_question_has_a_table_and_json_lines(question: tuple[str, ...], tmp_path: Path) -> None:
    path = BEST.get(question[0], BOOM)
    table = decode(path, *question)
    assert (table.code, table.err) == (0, "")
    assert "worker0" in table.out
    told = decode(path, *question, "--format", "jsonl")
    assert told.code == 0
    assert all("kind" in line for line in told.objects)
    decode(path, *question, "-o", tmp_path / "out")
    assert (tmp_path / "out").read_text() == table.out


@pytest.mark.parametrize("question", QUESTIONS)
def test_standard_input_can_be_asked_too(question: tuple[str, ...]) -> None:
    assert decode("-", *question, stdin=CHAIN.read_bytes()).out == decode(CHAIN, *question).out


@pytest.mark.parametrize("form", ["dot", "mermaid"])
def test_graphs_can_be_drawn(form: str) -> None:
    ran = decode(BOOM, "--graph", "0", "--format", form)
    assert ran.code == 0
    assert ran.out.startswith({"dot": "digraph", "mermaid": "sequenceDiagram"}[form])


def test_a_context_may_be_named_both_ways() -> None:
    assert decode(BOOM, "--graph", "0").out == decode(BOOM, "--graph", "0:0").out


@pytest.mark.parametrize("wrong", ["9:9", "x", "-1", ""])
def test_of_an_unknown_context_the_known_ones_are_told(wrong: str) -> None:
    ran = decode(BOOM, f"--graph={wrong}")
    assert ran.code == 2
    assert "there is no such context; there is 0:0" in ran.err
    assert ran.out == ""


def test_an_id_that_several_jobs_have_shows_each() -> None:
    ran = decode(REINIT, "--contexts")
    ids = [line.split()[:2] for line in ran.out.splitlines()[1:]]
    if ran.out.startswith("job"):
        assert len({tuple(pair) for pair in ids}) == len(ids)
    assert ran.code == 0


def test_a_capture_without_messages_says_why() -> None:
    for question in (("--contexts",), ("--latency",)):
        ran = decode(HIDDEN, *question)
        assert ran.code == 0
        assert "No RPC messages" in ran.err
    assert decode(HIDDEN, "--graph", "0").code == 2


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--graph", "0", "--latency"), "--graph and --latency can't be used together"),
        (("--contexts", "--stream"), "--stream and --contexts can't be used together"),
        (("--message", "1", "--latency"), "--message and --latency can't be used together"),
        (("--format", "dot"), "--format dot is for --graph"),
        (("--latency", "--format", "mermaid"), "--format mermaid is for --graph"),
        (("--contexts", "--all"), "--all is for the table"),
    ],
)
def test_what_does_not_go_together(options: tuple[str, ...], complaint: str) -> None:
    ran = decode(BOOM, *options)
    assert ran.code == 2
    assert complaint in ran.err


def test_a_live_capture_is_no_whole_run() -> None:
    ran = decode("--live", "lo", "--latency")
    assert ran.code == 2
    assert "--live" in ran.err


def test_check_and_strict_hold_here_too() -> None:
    assert decode(HIDDEN, "--contexts", "--check").code == 1
    assert decode(CHAIN, "--contexts", "--check", "--strict").code == 0
