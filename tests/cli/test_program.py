"""The help: commands in groups, each with options, examples and exit codes, and imported when named."""

from __future__ import annotations

import re
import shlex
from itertools import takewhile

import pytest
import typer.main

from rpcinspect.cli import app
from rpcinspect.cli.program import Program
from tests.cli.runner import CHAIN, rpcinspect

NAMES = [name for names in Program.GROUPS.values() for name in names]
FORMATS = ["html", "perfetto", "otlp", "parquet", "rpclog", "safetensors", "dot"]
COMMANDS = [*((name,) for name in NAMES if name != "export"), *(("export", name) for name in FORMATS)]


def test_commands_stand_in_their_groups_a_line_each() -> None:
    out = rpcinspect("--help").out
    at = [out.index(f"{title}:\n") for title in Program.GROUPS]
    assert at == sorted(at)
    for name in NAMES:
        (line,) = re.findall(rf"^  {name} +(.+)$", out, re.MULTILINE)
        assert line[0].isupper()
    assert max(map(len, out.splitlines())) <= 80
    assert re.findall(r"^  (\w+)  ", rpcinspect("export", "--help").out, re.MULTILINE)[:7] == FORMATS


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_each_has_examples_that_can_be_parsed_and_exit_codes(words: tuple[str, ...]) -> None:
    out = rpcinspect(*words, "--help").out
    assert max(map(len, out.splitlines())) <= 80
    examples = re.findall(r"^  rpcinspect (.+)$", out.partition("Examples:\n")[2], re.MULTILINE)
    assert examples
    for example in examples:
        own = list(takewhile(lambda word: word not in "|>", shlex.split(example)))
        assert own[: len(words)] == list(words)
        parsed = typer.main.get_command(app)
        for name in words:
            parsed = parsed.get_command(None, name)  # type: ignore[attr-defined]
        parsed.make_context(words[-1], own[len(words) :])  # complains of what is no option
    codes = re.findall(r"^  (\d+) +\w", out.partition("Exit codes:\n")[2], re.MULTILINE)
    assert codes == sorted(codes, key=int)
    assert "0" in codes


def test_a_mistyped_command_is_told_the_right_one() -> None:
    ran = rpcinspect("latancy", "x.pcap")
    assert ran.code == 2
    assert "Did you mean 'latency'?" in ran.err


def test_a_capture_in_place_of_a_command() -> None:
    ran = rpcinspect(CHAIN, "--all")
    assert ran.code == 2
    assert f"Did you mean: rpcinspect decode {CHAIN} --all" in ran.err.replace("\n", " ")


def test_own_options_stand_above_those_that_others_have_too() -> None:
    out = rpcinspect("graph", "--help").out
    assert out.index("--context") < out.index("--format") < out.index("--reader")
    assert "Usage: " in out
    assert "{" not in out.partition("\n")[0]
