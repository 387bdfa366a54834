"""An interface that is captured while it is browsed: real connections in a network namespace of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.browse.terminals import Terminal
from tests.cli.runner import CHAIN

pytest.importorskip("textual")
PLAY = '"$1" -m tests.capture.replay "$2" -- sleep 60 >/dev/null 2>&1 &'
UP = f'ip link set lo up && {{ {PLAY} shift 2; exec "$@"; }}'
"""The conversation is played once somebody captures."""


@pytest.mark.rooted
def test_messages_come_while_they_are_captured_and_stay() -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("needs root, unshare and ip")
    if subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no network namespaces here")
    inside = ("unshare", "--net", "sh", "-c", UP, "sh", sys.executable, str(CHAIN))
    with Terminal("browse", "--live", "lo", through=inside) as terminal:
        terminal.until("24 messages  ·  live  ·")
        terminal.until("basic_chain.scale(")
        assert "gradients of context" not in terminal.text
        terminal.press("k")
        terminal.until("G follows it")
        terminal.press("\x03")
        terminal.until("the capture ends here")
        terminal.until("gradients of context")  # what belongs together is known now
        terminal.press("q")
        assert terminal.ended() == 0
