"""Options that several commands share: the same name, help and default in each."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.capture.tshark import find_program
from rpcinspect.cli.decode import DecodeCommand
from rpcinspect.cli.options import option
from tests.cli.runner import CHAIN, rpcinspect

EVERY = ("decode", "latency", "replay", "reproduce", "diff")
SHARED = {
    "Write to this file.": ("decode", "latency", "replay", "diff"),
    "Show only what matches, such as": ("decode", "latency"),
    "Choose the reader; auto: native, or tshark where needed.": EVERY,
    "Set a tshark preference; repeatable.": EVERY,
    "Use the tolerances of torch.testing.": ("replay", "diff"),
    "Accept this relative tolerance.": ("replay", "diff"),
    "Accept this absolute tolerance.": ("replay", "diff"),
    "Seed all live workers, or one; repeatable.": ("replay", "reproduce"),
}
INPUTS = {"decode": [CHAIN], "replay": [CHAIN, "--plan"], "diff": [CHAIN, CHAIN]}


@pytest.mark.parametrize("command", EVERY)
def test_every_command_has_them(command: str) -> None:
    out = " ".join(rpcinspect(command, "--help").out.split())
    for text, commands in SHARED.items():
        assert (text in out) == (command in commands)


@pytest.mark.parametrize("command", ["decode", "latency", "replay", "diff"])
def test_a_format_that_is_none_is_a_mistake(command: str) -> None:
    ran = rpcinspect(command, "--format", "xml", CHAIN)
    assert ran.code == 2
    assert "xml" in ran.err


def test_an_option_is_written_as_the_help_shows_it() -> None:
    made = option("-w --write PCAP", "Save it.")
    assert (made.default, *made.param_decls) == ("-w", "--write")
    assert (made.metavar, made.help) == ("PCAP", "Save it.")
    assert option("--calls", "Show calls.").metavar is None


def test_each_command_has_lists_of_its_own() -> None:
    one, two = DecodeCommand(), DecodeCommand()
    one.files.append("x")
    assert two.files == []


@pytest.mark.parametrize("command", ["replay", "diff"])
@pytest.mark.parametrize("option", ["--rtol", "--atol"])
def test_tolerances_are_finite(command: str, option: str) -> None:
    for value in ("-1", "nan", "inf"):
        ran = rpcinspect(command, *INPUTS[command], option, value)
        assert (ran.code, ran.err) == (2, f"rpcinspect: {option} {value}: must be 0 or more, finite\n")


@pytest.mark.parametrize("command", ["decode", "replay", "diff"])
def test_tshark_s_options_are_for_tshark(command: str) -> None:
    ran = rpcinspect(command, *INPUTS[command], "--reader", "native", "--tshark-option", "tcp.port:1")
    assert (ran.code, ran.err) == (2, "rpcinspect: --tshark-option is for tshark, not for --reader native\n")


@pytest.mark.skipif(find_program("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("command", ["decode", "replay", "diff"])
def test_captures_are_read_by_tshark_where_it_is_named(command: str) -> None:
    """It says the same, and looks at its own options."""
    (native, by_tshark) = (
        rpcinspect(command, *INPUTS[command], "--format", "jsonl", "--reader", reader)
        for reader in ("native", "tshark")
    )
    assert native.code == by_tshark.code == 0
    assert [line for line in native.objects if line["kind"] != "capture"] == [
        line for line in by_tshark.objects if line["kind"] != "capture"
    ]
    wrong = rpcinspect(command, *INPUTS[command], "--tshark-option", "no.such.preference:1")
    assert wrong.code == 2
    assert "no.such.preference" in wrong.err


def test_a_dash_is_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (("decode",), ("decode", "--format", "jsonl"), ("export", "html"), ("contexts",)):
        assert rpcinspect(*words, CHAIN, "-o", "-").out == rpcinspect(*words, CHAIN).out
    assert rpcinspect("diff", CHAIN, CHAIN, "-o", "-").out == rpcinspect("diff", CHAIN, CHAIN).out
    assert rpcinspect("export", "parquet", CHAIN, "-o", "-").code == 2
    assert not list(tmp_path.iterdir())
