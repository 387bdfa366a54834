"""`make strings` finds what people read, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "bench"))

from strings import texts_of  # noqa: E402

SOURCE = '''
"""A module text that nobody is shown."""
LIMIT = "so many things"
"""What the limit is for."""

def act(name):
    """Acts on something."""
    say(f"{name}: can't be read; it has {len(name):,} bytes" + " and more")
    return name.startswith("key"), "  two   words  "
'''


def test_texts_are_whole_and_docstrings_are_none() -> None:
    assert [text for _, text in texts_of(SOURCE)] == [
        "so many things",
        "{…}: can't be read; it has {…} bytes and more",
        "two words",
    ]


def test_findings_help_and_pages_are_among_them() -> None:
    program = [sys.executable, str(ROOT / "bench/strings.py")]
    told = subprocess.run(program, check=True, capture_output=True, encoding="utf-8", timeout=60).stdout
    for text in (
        "Fix {…} first: the other errors follow from it.",
        "Show where the time went",
        "an option of another command",
        "only in sight",
    ):
        assert text in told, text
    some = subprocess.run(
        [*program, "cli", "--words", "5"], check=True, capture_output=True, encoding="utf-8"
    )
    assert 0 < len(some.stdout) < len(told) / 2
    assert "checks/" not in some.stdout
