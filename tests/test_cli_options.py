"""Options that several commands share: the same name, help and default in each."""

from __future__ import annotations

import pytest

from rpcinspect.cli_options import Format
from tests.commands.runner import CHAIN, rpcinspect


@pytest.mark.parametrize("command", ["decode", "replay", "diff"])
def test_every_command_has_them(command: str) -> None:
    out = " ".join(rpcinspect(command, "--help").out.split())
    assert "--format" in out
    assert "Write there instead of standard output." in out


@pytest.mark.parametrize("command", ["decode", "replay", "diff"])
def test_a_format_that_is_none_is_a_mistake(command: str) -> None:
    ran = rpcinspect(command, "--format", "xml", CHAIN)
    assert ran.code == 2
    assert "xml" in ran.err


def test_formats() -> None:
    assert [form.value for form in Format] == ["table", "jsonl"]
