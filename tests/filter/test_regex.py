"""Regular expressions: what they find, what they refuse, and that no text makes them slow."""

from __future__ import annotations

import time

import pytest

from rpcinspect.filter.regex import compile_search


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        ("(?i)ABC", "abc", True),
        (r"\d+\.\d", "v1.13", True),
        ("", "", True),
        ("ü", "grün", True),
        ("a.c", "a\nc", False),
        ("(?s)a.c", "a\nc", True),
    ],
)
def test_search(pattern: str, text: str, found: bool) -> None:
    search = compile_search(pattern)
    assert [search(text), search(text)] == [found, found]


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "(?=x)", r"(a)\1", "a{2000}", "*"])
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="regular expression"):
        compile_search(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*a){20}$", "(x+x+)+y"])
def test_time_grows_with_the_text_and_not_beyond(pattern: str) -> None:
    """With a search that goes back and tries again, 40 of these characters take longer than anybody waits."""
    search = compile_search(pattern)
    begin = time.process_time()
    assert not search("a" * 20_000 + "!")
    assert not search("x" * 20_000 + "!")
    assert time.process_time() - begin < 5
