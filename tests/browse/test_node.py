"""Nodes of long lists, and labels of anything."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.browse.node import MAX_LABEL, PAGE, Node, clean, pages, text_node, way_down


def listed(count: int, made: list[int]) -> Node:
    def make(number: int) -> Node:
        made.append(number)
        return Node(str(number))

    return Node("list", (), pages(count, make, ()))


def test_of_a_hundred_thousand_items_a_page_is_made() -> None:
    made: list[int] = []
    root = listed(100_000, made)
    assert len(root.children) == 3
    assert root.children[0].label == "items 0…39,999"
    assert root.children[0].children[1].label == "items 200…399"
    assert not made
    assert [node.label for node in root.children[2].children[-1].children][-1] == "99999"
    assert len(made) == PAGE


@settings(max_examples=50)
@given(count=st.integers(1, 100_000), data=st.data())
def test_the_way_to_an_item(count: int, data: st.DataObject) -> None:
    made: list[int] = []
    root = listed(count, made)
    number = data.draw(st.integers(0, count - 1))
    assert list(way_down(root, number, count))[-1].label == str(number)
    assert len(made) <= PAGE
    assert len(root.children) <= PAGE


@given(st.text())
def test_labels_are_printable_and_short(text: str) -> None:
    assert clean(text).isprintable()
    assert len(clean(text * 300)) <= MAX_LABEL


def test_long_texts_stand_below() -> None:
    text = "one\ntwo \x1b[31m\n" + "x" * 1_000_000
    node = text_node("text: " + text, text, ())
    assert len(node.label) <= MAX_LABEL
    assert len(node.children) == 32
    lines = [line.label for page in node.children for line in page.children]
    assert lines[:2] == ["one", "two \\x1b[31m"]
    assert "".join(lines[2:]) == "x" * 1_000_000
    assert not text_node("short: a", "a", ()).has_children


def test_no_more_of_a_text_than_a_mebibyte() -> None:
    node = text_node("t", "y" * (3 << 20), ())
    last = node.children[-1].children[-1]
    assert last.label == f"… {2 << 20:,} more characters"
