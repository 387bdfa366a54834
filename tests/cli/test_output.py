"""Where output goes, and what becomes of writes that fail. Whole runs: test_decode.py and test_cli.py."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rpcinspect.cli.output import (
    give_up_stdout,
    open_console,
    open_output,
    overwriting,
    say,
)
from rpcinspect.errors import OutputError
from rpcinspect.views.text.console import StyledText

FULL = Path("/dev/full")


class Stdout(io.TextIOWrapper):
    """Standard output that keeps what it is given."""

    def __init__(self) -> None:
        self.raw = io.BytesIO()
        super().__init__(self.raw, encoding="utf-8", write_through=True)


def kept_stdout(monkeypatch: pytest.MonkeyPatch) -> Stdout:
    """To be called in the test itself: pytest sets its own between a fixture and the test."""
    made = Stdout()
    monkeypatch.setattr(sys, "stdout", made)
    return made


def test_a_file_is_emptied_and_filled(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"earlier and longer")
    with open_output(path) as output:
        output.write(b"now")
    assert path.read_bytes() == b"now"


def test_a_file_is_emptied_though_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"earlier")
    with open_output(path):
        assert path.read_bytes() == b"earlier"
    assert path.read_bytes() == b""


def _press_ctrl_c(written: int = 0) -> None:
    raise KeyboardInterrupt


def test_work_that_ends_before_it_writes_leaves_what_there_was(tmp_path: Path) -> None:
    path, new = tmp_path / "out", tmp_path / "new"
    path.write_bytes(b"earlier")
    for each in (path, new):
        with pytest.raises(KeyboardInterrupt), open_output(each):
            _press_ctrl_c()
    assert path.read_bytes() == b"earlier"
    assert not new.exists()


def test_work_that_ends_in_between_leaves_what_there_was(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"earlier and longer")
    with pytest.raises(KeyboardInterrupt), open_output(path) as output:
        _press_ctrl_c(output.write(b"half"))
    assert path.read_bytes() == b"earlier and longer"
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_what_grows_keeps_what_was_written_and_what_there_was_before_that(tmp_path: Path) -> None:
    path, new = tmp_path / "out", tmp_path / "new"
    path.write_bytes(b"earlier and longer")
    for each in (path, new):
        with pytest.raises(KeyboardInterrupt), open_output(each, grows=True):
            _press_ctrl_c()
    assert path.read_bytes() == b"earlier and longer"
    assert not new.exists()
    with pytest.raises(KeyboardInterrupt), open_output(path, grows=True) as output:
        _press_ctrl_c(output.write(b"half"))
    assert path.read_bytes() == b"half"
    with open_output(path, grows=True):
        pass
    assert path.read_bytes() == b""


def test_without_a_path_it_is_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = kept_stdout(monkeypatch)
    with open_output(None) as output:
        output.write(b"\xff\0raw")
    assert stdout.raw.getvalue() == b"\xff\0raw"


@pytest.mark.parametrize("name", [".", "no/such/folder", "nul\0"])
def test_what_cannot_be_opened_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match="can't be written: ") as caught, open_output(tmp_path / name):
        pytest.fail("nothing was opened")
    assert "Errno" not in str(caught.value)


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_one_line() -> None:
    with pytest.raises(OutputError) as caught, open_output(FULL) as output:
        output.write(b"x" * 100_000)
    assert str(caught.value) == "/dev/full: can't be written: No space left on device"
    with pytest.raises(OutputError), open_output(FULL) as output:
        output.write(b"x")  # found out only when it is closed


def overwritten(output: Path | None, inputs: list[str]) -> str | None:
    """The input that would be."""
    told = next(overwriting({"-o": output}, inputs), None)
    return None if told is None else told.removesuffix(": is an input, -o would overwrite it")


def test_an_input_under_any_name_is_not_overwritten(tmp_path: Path) -> None:
    capture, link, other = tmp_path / "a.pcap", tmp_path / "link", tmp_path / "other"
    capture.write_bytes(b"x")
    other.write_bytes(b"y")
    link.symlink_to(capture)
    for output in (capture, link, tmp_path / "." / "a.pcap"):
        assert overwritten(output, [str(other), str(capture)]) == str(capture)
    assert overwritten(capture, [str(link)]) == str(link)
    assert overwritten(capture, [str(other)]) is None
    assert overwritten(None, [str(capture)]) is None
    assert overwritten(tmp_path / "new", [str(capture)]) is None


def test_what_is_no_file_is_left_to_whoever_opens_it(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_bytes(b"")
    assert overwritten(output, ["-", "no/such/file", "nul\0"]) is None
    assert overwritten(Path("nul\0"), ["-", "file"]) is None


def test_a_console_on_a_file_writes_no_styles_and_any_text(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with open_console(path) as console:
        console.print(StyledText("[b]not markup[/b] :smile: é \udcff", "bold red"))
        console.print("x" * 500)
    lines = path.read_text("utf-8").splitlines()
    assert lines == ["[b]not markup[/b] :smile: é \\udcff", "x" * 500]


def test_a_console_on_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = kept_stdout(monkeypatch)
    with open_console(None) as console:
        console.print(StyledText("one line", "bold"))
    assert stdout.raw.getvalue() == b"one line\n"


def test_lines_for_people_that_nobody_can_read() -> None:
    code = "from rpcinspect.cli.output import say; say('one'); print('went on')"
    for name in (FULL, Path(os.devnull)):
        with name.open("wb") as full:
            ran = subprocess.run(
                [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=full, check=True
            )
        assert ran.stdout == b"went on\n"


def test_lines_for_people_are_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    say("a file named \x1b[31m\n\udcff")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rpcinspect: a file named ")
    assert err.endswith("\n")
    assert err[:-1].isprintable()


def test_giving_up_standard_output_loses_what_is_buffered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    monkeypatch.setattr(sys, "stdout", os.fdopen(write, "w"))
    sys.stdout.write("buffered")
    give_up_stdout()
    sys.stdout.close()
    with os.fdopen(read, "rb") as other_end:
        assert other_end.read() == b""


def test_giving_up_a_stand_in_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = kept_stdout(monkeypatch)
    give_up_stdout()
    print("still there")
    assert stdout.raw.getvalue() == b"still there\n"
