"""Every character that is not ASCII becomes as many that are as it takes cells."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rpcinspect.browse.ascii import as_ascii, shows_ascii_only


def test_lines_arrows_and_marks_look_alike() -> None:
    assert as_ascii("● worker0 → worker1 … 12 µs ✓ ✗ ⇄") == "* worker0 > worker1 ~ 12 us + x ="
    assert as_ascii("├─┄▶│◀═┘") == "+-.>|<-+"
    assert as_ascii("é日本") == "e????"
    assert as_ascii("\x1b[1;2H\x1b[31m plain") == "\x1b[1;2H\x1b[31m plain"


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_the_width_stays(text: str) -> None:
    made = as_ascii(text)
    assert made.isascii()
    assert len(made) == sum(map(cell_len, text))


def test_the_locale_says_it() -> None:
    for environment in ({}, {"LANG": "de_DE.UTF-8"}, {"LC_ALL": "C.utf8"}, {"LC_ALL": "", "LANG": "C.UTF-8"}):
        assert not shows_ascii_only(environment)
    for environment in (
        {"LANG": "C"},
        {"LC_ALL": "POSIX", "LANG": "C.UTF-8"},
        {"LC_CTYPE": "de_DE.ISO-8859-1"},
    ):
        assert shows_ascii_only(environment)
