"""How a recording is called, and what is beside it. What is recorded: tests/recorder."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rpcinspect.cli.recording import beside, default_name, earlier, hidden, looked_into
from rpcinspect.errors import OutputError
from rpcinspect.recorder.processes import ProcessNote
from rpcinspect.recorder.record import RecordingResult
from tests.cli.runner import CHAIN
from tests.truth import capture_of


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


def ran_nothing(file: Path, *options: str) -> str:
    """What is said of the recording of a command that uses no RPC."""
    done = subprocess.run(
        [sys.executable, "-m", "rpcinspect", "record", "-o", str(file), *options, "--", "true"],
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0
    return done.stderr


@pytest.mark.parametrize("redact", [(), ("--redact",)], ids=["as it is", "redacted"])
def test_a_good_recording_outlives_one_of_nothing(redact: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "run.rpclog"
    assert f"recorded 0 messages, 88 bytes in {file}" in ran_nothing(file)
    file.write_bytes(b"precious")
    file.chmod(0o640)
    before = file.stat()
    told = ran_nothing(file, *redact)
    assert f"recorded nothing; {file} is what it was before" in told
    assert "next:" not in told
    assert file.read_bytes() == b"precious"
    assert (file.stat().st_ino, file.stat().st_mode) == (before.st_ino, before.st_mode)
    assert [each.name for each in tmp_path.iterdir()] == ["run.rpclog"]


def test_what_stood_there_goes_once_something_was_recorded(tmp_path: Path) -> None:
    """And comes back where the recording fails."""
    file = tmp_path / "run.pcap"
    file.write_bytes(b"earlier")
    file.chmod(0o640)
    with pytest.raises(OutputError), earlier(file), hidden(tmp_path / "none" / "x"):
        pass
    assert file.read_bytes() == b"earlier"
    with earlier(file):
        assert file.read_bytes() == b""
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
        file.write_bytes(b"whole")
    assert file.read_bytes() == b"whole"
    assert [each.name for each in tmp_path.iterdir()] == ["run.pcap"]


def read(path: Path, *names: str, seconds: float = 5) -> RecordingResult:
    notes = [ProcessNote(pid=1, name=name, recorded=True) for name in names]
    recorded = RecordingResult(file=path, bytes=1)
    return looked_into(recorded, notes, strangers=True, seconds=seconds)


def test_messages_and_workers_are_found() -> None:
    found = read(CHAIN, "worker0", "worker1")
    assert (found.messages, found.warnings) == ("24 messages", [])
    (warning,) = read(CHAIN, "worker0").warnings
    assert warning.startswith("captured other jobs' workers too: worker1;")


def test_a_file_without_messages_says_why(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(CHAIN.read_bytes()[:24])
    found = read(path, "worker0")
    assert found.messages == "no messages"
    (warning,) = found.warnings
    assert "the capture holds no packets" in warning
    assert read(path).warnings == []


def test_a_large_file_is_not_read_to_its_end() -> None:
    found = read(capture_of("dtype_zoo"), seconds=-1)
    assert str(found.messages).startswith("more than ")


def test_what_is_no_capture_any_more(tmp_path: Path) -> None:
    found = read(tmp_path / "none")
    assert (found.messages, found.warnings) == (None, [f"{tmp_path / 'none'} can no longer be read"])
