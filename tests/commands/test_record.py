"""How a recording is called. What is recorded: tests/recorder."""

from __future__ import annotations

import re

import pytest

from rpcinspect.commands.record import default_name


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py", "--steps", "3"], "train"),
        (["/opt/x/bin/torchrun", "--nproc-per-node", "2", "jobs/ps.py"], "ps"),
        (["./train.py"], "train"),
        (["/usr/bin/make", "run"], "make"),
        (["python3", "-m", "acme.train"], "python3"),
    ],
)
def test_a_file_is_called_after_the_script(command: list[str], name: str) -> None:
    made = default_name(command, "agent")
    assert made.parent.name == ""
    assert re.fullmatch(re.escape(name) + r"-\d{8}-\d{6}\.rpclog", made.name)
    assert default_name(command, "wire").suffix == ".pcap"
