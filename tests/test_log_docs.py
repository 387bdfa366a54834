"""The writer in docs/log-format.md writes a log that decodes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.decoded import decode


def test_the_writer_of_the_docs_writes_what_decodes(repo: Path, tmp_path: Path) -> None:
    page = (repo / "docs/log-format.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len([line for line in script.splitlines() if line]) <= 24
    log = tmp_path / "a.rpclog"
    subprocess.run([sys.executable, "-c", script, str(log)], check=True, timeout=60)
    found = decode(log)
    assert found.problems() == []
    call, ret = found.messages
    assert (call["src"], call["dst"], call["type"]) == ("worker0", "worker1", "PYTHON_CALL")
    assert (call["body"]["function"], call["body"]["args"]) == ("train.scale", ["2"])
    assert (ret["answers"], ret["body"]["value"]) == (0, "'done'")
    assert call["pipe"] is call["location"] is None
