"""Patterns that are compiled once they are used: what they find, and when."""

from __future__ import annotations

import re

import pytest

from rpcinspect.late_pattern import late


def test_it_finds_what_the_pattern_does() -> None:
    made, late_one = re.compile(r"(a+)b", re.IGNORECASE), late(r"(a+)b", re.IGNORECASE)
    for text in ("xAAb", "b", ""):
        assert late_one.findall(text) == made.findall(text)
        assert bool(late_one.search(text)) == bool(made.search(text))
    assert late_one.sub(r"<\1>", "aab") == "<aa>"
    assert (late_one.pattern, late_one.flags) == (made.pattern, made.flags)


def test_it_is_compiled_once_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    compile_it = re.compile
    monkeypatch.setattr(re, "compile", lambda *asked: compiled.append(asked) or compile_it(*asked))
    digits = late(rb"\d+")
    assert compiled == []
    assert all(map(digits.match, (b"12", b"3")))
    assert compiled == [(rb"\d+", 0)]
