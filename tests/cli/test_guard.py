"""Errors that are expected become a line and an exit code; what is not expected stays what it is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rpcinspect import exit_codes
from rpcinspect.cli.guard import guarded
from rpcinspect.errors import CaptureError, OutputError, RpcInspectError
from tests.cli.runner import CHAIN


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CaptureError("x.pcap: no capture"), exit_codes.UNREADABLE),
        (OutputError("x.txt: no such directory"), exit_codes.USAGE),
        (RpcInspectError("no such context"), exit_codes.USAGE),
    ],
)
def test_errors_are_a_line(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise error

    assert guarded(command) == code
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"rpcinspect: {error}\n")


def test_codes_pass_and_the_interrupt_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise KeyboardInterrupt

    assert guarded(command) == exit_codes.INTERRUPTED == 130
    assert guarded(lambda: 7) == 7
    assert capsys.readouterr().err == ""


def test_a_mistake_of_ours_is_not_hidden() -> None:
    def command() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        guarded(command)


def test_without_a_place_for_temporary_files_one_line_says_so() -> None:
    """No file may grow, as on a full disk; what is written to a pipe may."""
    command = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); "
    command += f"import sys; sys.argv = ['rpcinspect', 'decode', {str(CHAIN)!r}]; "
    command += "from rpcinspect.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (exit_codes.USAGE, "")
    assert done.stderr.startswith("rpcinspect: No usable temporary directory found in [")
    assert len(done.stderr.splitlines()) == 1
