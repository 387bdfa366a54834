"""Errors that are expected become a line and an exit code; what is not expected stays what it is."""

from __future__ import annotations

import pytest

from rpcinspect import exit_codes
from rpcinspect.cli.guard import guarded
from rpcinspect.errors import CaptureError, OutputError, RpcInspectError


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
