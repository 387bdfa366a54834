"""docs/wireshark.md: its commands print what it shows, and its table has the fields of the dissector."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rpcinspect.export.wireshark.dissector import SCRIPT
from tests.places import ROOT
from tests.tshark import needs_tshark

PAGE = (ROOT / "docs" / "wireshark.md").read_text(encoding="utf-8")
LUA = (ROOT / "rpcinspect" / "export" / "wireshark" / SCRIPT).read_text(encoding="utf-8")
DIALOGUES = [
    part.rstrip("\n").split("\n")
    for block in re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
]


@needs_tshark
def test_the_output_is_real(tmp_path: Path) -> None:
    """`…` at the end of a line stands for its rest."""
    (tmp_path / "captures").symlink_to(ROOT / "captures")
    assert len(DIALOGUES) == 8
    for command, *lines in DIALOGUES:
        words = shlex.split(command)
        own = [sys.executable, "-m", "rpcinspect"] if words[0] == "rpcinspect" else [words[0]]
        done = subprocess.run(
            [*own, *words[1:]],
            check=True,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        printed = done.stdout.splitlines()
        if words[0] == "rpcinspect":
            printed += done.stderr.splitlines()
        shown = [line.removesuffix("…") for line in lines]
        assert [
            a[: len(b)] if c.endswith("…") else a for a, b, c in zip(printed, shown, lines, strict=True)
        ] == shown


def test_every_field_is_explained() -> None:
    fields = set(re.findall(r'"(torchrpc\.\w+)"', LUA))
    rows = "".join(line for line in PAGE.splitlines() if line.startswith("| `torchrpc."))
    assert set(re.findall(r"torchrpc\.\w+", rows)) == fields
