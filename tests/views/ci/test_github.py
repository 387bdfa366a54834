"""Annotations, read as GitHub's runner reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.fields.phrases import printable
from rpcinspect.views.ci.github import MAX_OF_A_LEVEL, workflow_commands
from rpcinspect.views.ci.suite import Annotation
from tests.github_runner import Command, commands


def made(title: str, text: str) -> str:
    (line,) = workflow_commands([Annotation(level="error", title=title, lines=tuple(text.split("\n")))])
    return line


def test_a_title_and_several_lines() -> None:
    line = made("diff: a, b", "100 % of #3\n::warning::second")
    assert line == "::error title=diff%3A a%2C b::100 %25 of #3%0A::warning::second"
    assert commands(line) == [Command("error", {"title": "diff: a, b"}, "100 % of #3\n::warning::second")]


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_ends_its_command_or_begins_another(title: str, text: str) -> None:
    (command,) = commands(made(title, text))
    assert command.name == "error"
    assert set(command.properties) <= {"title"}
    assert command.data == "\n".join(map(printable, text.split("\n")))


@pytest.mark.parametrize(
    "text", ["::stop-commands::x", "\r::add-mask::a", "##[set-output name=a]b", "%0A::error::"]
)
def test_commands_in_a_text_are_text(text: str) -> None:
    ((_, _, data),) = commands(made(text, text))
    assert data == "\n".join(map(printable, text.split("\n")))


def test_more_than_github_shows_are_counted() -> None:
    some = [Annotation(level="error", title=str(n), lines=("x",)) for n in range(25)]
    some += [Annotation(level="warning", title=str(n), lines=("x",)) for n in range(MAX_OF_A_LEVEL)]
    found = [command for line in workflow_commands(some) for command in commands(line)]
    assert [command.name for command in found] == ["error"] * 10 + ["warning"] * 10
    assert found[9].data == "16 more errors, see the log"


def test_an_annotation_is_bounded() -> None:
    assert len(made("t" * 1_000_000, "\n".join(["x" * 1_000_000] * 50))) < 6_000
