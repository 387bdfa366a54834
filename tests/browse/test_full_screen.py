"""Why nothing can be shown, in one line; the rest is tested on real terminals (test_terminal.py)."""

from __future__ import annotations

import os
import sys

import pytest

from rpcinspect.browse.full_screen import missing_terminal


@pytest.mark.parametrize("reads_stdin", [False, True])
def test_output_that_goes_elsewhere(reads_stdin: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, "w") as nowhere:
        monkeypatch.setattr(sys, "__stdout__", nowhere)
        told = missing_terminal(reads_stdin)
    assert told is not None
    assert "standard output is not one: rpcinspect decode" in told
