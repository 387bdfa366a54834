"""Old spellings: one line says the new one, which exists; none of them works."""

from __future__ import annotations

import re

import pytest

from rpcinspect.cli.gone import GONE, line_for
from tests.cli.runner import CHAIN, rpcinspect

OLD = [(command, old, new) for command, spellings in GONE.items() for old, new in spellings.items()]


@pytest.mark.parametrize(("command", "old", "new"), OLD, ids=lambda value: str(value))
def test_each_is_one_line_that_says_a_command_of_today(command: str, old: str, new: str) -> None:
    ran = rpcinspect(command, CHAIN, *old.split())
    assert (ran.code, ran.out) == (2, "")
    assert re.fullmatch(rf"rpcinspect: {re.escape(old)} is an? .+ now: rpcinspect (.+)\n", ran.err)
    assert new in ran.err
    words = new.split()
    help = rpcinspect(*words[: 2 if words[0] == "export" else 1], "--help")
    assert help.code == 0
    for option in re.findall(r"(?:^| )(--?[a-z-]+)", new):
        assert re.search(rf"(?<![\w-]){option}\b", help.out), option


def test_the_first_of_several_is_told_in_any_spelling() -> None:
    told = rpcinspect("decode", CHAIN, "--format=html", "--latency").err
    assert told == "rpcinspect: --format html is a command now: rpcinspect export html FILE… -o OUT\n"
    assert line_for("replay", ["run.pcap", "--export=x"]) is not None


def test_what_is_still_an_option_and_what_is_recorded_is_none() -> None:
    assert line_for("decode", ["--format", "jsonl", "--message", "1"]) is None
    assert line_for("replay", ["--live", "a", "--", "--leave"]) is None
    assert line_for("record", ["--", "python", "train.py", "--latency"]) is None
