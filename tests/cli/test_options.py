"""Options that several commands share: the same name, help and default in each."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.capture.tshark import find_program
from rpcinspect.cli.options import given
from tests.commands.runner import CHAIN, rpcinspect

SHARED = {
    "Write there instead of standard output.": ("decode", "replay", "diff"),
    "Who reads the captures: native (pcap, pcapng),": ("decode", "replay", "diff"),
    "A preference for tshark, such as the keys for decryption;": ("decode", "replay", "diff"),
    "Accept what torch.testing accepts; otherwise every bit counts.": ("replay", "diff"),
    "The same with this relative tolerance.": ("replay", "diff"),
    "The same with this absolute tolerance.": ("replay", "diff"),
}
INPUTS = {"decode": [CHAIN], "replay": [CHAIN, "--plan"], "diff": [CHAIN, CHAIN]}


@pytest.mark.parametrize("command", ["decode", "replay", "diff"])
def test_every_command_has_them(command: str) -> None:
    out = " ".join(rpcinspect(command, "--help").out.split())
    assert "--format" in out
    for text, commands in SHARED.items():
        assert (text in out) == (command in commands)


@pytest.mark.parametrize("command", ["decode", "replay", "diff"])
def test_a_format_that_is_none_is_a_mistake(command: str) -> None:
    ran = rpcinspect(command, "--format", "xml", CHAIN)
    assert ran.code == 2
    assert "xml" in ran.err


def test_what_was_given_has_no_lists() -> None:
    assert given({"files": ["a", "b"], "output": None, "check": False}) == {
        "files": ("a", "b"),
        "check": False,
    }


@pytest.mark.parametrize("command", ["replay", "diff"])
@pytest.mark.parametrize("option", ["--rtol", "--atol"])
def test_tolerances_are_finite(command: str, option: str) -> None:
    for value in ("-1", "nan", "inf"):
        ran = rpcinspect(command, *INPUTS[command], option, value)
        assert (ran.code, ran.err) == (2, f"rpcinspect: {option} {value}: a finite number from 0 up\n")


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
    for form in ("table", "jsonl", "html"):
        assert rpcinspect("decode", CHAIN, "--format", form, "-o", "-").out == (
            rpcinspect("decode", CHAIN, "--format", form).out
        )
    assert rpcinspect("diff", CHAIN, CHAIN, "-o", "-").out == rpcinspect("diff", CHAIN, CHAIN).out
    assert rpcinspect("decode", CHAIN, "--format", "parquet", "-o", "-").code == 2
    assert not list(tmp_path.iterdir())
