"""Answers as lines: what a line names, sentences that go on in the next line."""

from __future__ import annotations

from rpcinspect.browse.parts import Destination, PartLines
from rpcinspect.views.columns import Column, Links, table

FINDING = "warning: #107 carries NaN: 96 of tensor#0, from the gradients in #106. (#107, #102, #9000)"


def test_messages_are_named_once_and_tensors_are_none() -> None:
    lines = PartLines([(FINDING, "yellow")], 200)
    assert lines.targets(0) == [Destination(107), Destination(106), Destination(102)]
    assert lines.line(0, 30).look == "odd"


def test_a_sentence_goes_on_in_the_next_line() -> None:
    lines = PartLines([(FINDING, ""), ("", ""), (f"  {FINDING}", "")], 200)
    assert len(lines) == 3
    lines.header(31)
    texts = [lines.line(at, 31).text for at in range(len(lines))]
    assert all(len(text) <= 30 for text in texts)
    assert " ".join(text.strip() for text in texts).split() == f"{FINDING} {FINDING}".split()
    assert texts[0].startswith("warning")
    assert texts[1].startswith("  ")
    assert texts[-1].startswith("    ")
    assert {tuple(lines.targets(at)) for at in (0, 1, 2)} == {
        tuple(PartLines([(FINDING, "")], 200).targets(0))
    }
    assert lines.texts([0, 1]) == [FINDING, ""]


def test_a_table_is_not_broken() -> None:
    columns = [
        Column(title="a", cell=lambda row, _: row * 30),
        Column(title="b", cell=lambda row, _: Links((int(row),))),
    ]
    lines = PartLines([table(columns, ["3", "4"])], 200)
    lines.header(20)
    assert [lines.line(at, 20).text for at in range(len(lines))][1:] == ["3" * 30 + "  #3", "4" * 30 + "  #4"]
    assert lines.targets(1) == [Destination(3, "b")]
    assert [lines.item(at) for at in range(3)] == [None, 0, 1]
