"""How a recording is called, and what is beside it. What is recorded: tests/recorder."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from rpcinspect.commands.record import beside, default_name, hidden
from rpcinspect.errors import OutputError


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


def test_what_is_not_redacted_yet_is_ours_alone_and_goes(tmp_path: Path) -> None:
    """Somebody may have guessed its name, and put a link there."""
    path, precious = beside(tmp_path / "run.pcap"), tmp_path / "precious"
    precious.write_bytes(b"mine")
    path.symlink_to(precious)
    with hidden(path):
        assert not path.is_symlink()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.write_bytes(b"secret")
    assert [each.name for each in tmp_path.iterdir()] == ["precious"]
    assert precious.read_bytes() == b"mine"
    with pytest.raises(OutputError, match="can't be written: "), hidden(tmp_path / "none" / "x"):
        pass
