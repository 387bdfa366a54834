"""The results of steps: one meaning everywhere, in the code, in the documents and in the schema."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from rpcinspect.replay.playing.outcome import Result


def test_the_documents_explain_every_result(repo: Path) -> None:
    text = (repo / "docs" / "replay.md").read_text(encoding="utf-8")
    table = text.partition("| result | meaning |")[2].partition("\n\n")[0]
    assert tuple(re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE)) == (
        "identical",
        "tolerance",
        "different",
        "unanswered",
        "failed",
    )
    assert set(re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE)) == set(get_args(Result))
