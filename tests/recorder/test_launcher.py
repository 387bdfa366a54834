"""Commands that are run as if nobody stood between them and the shell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rpcinspect.errors import CommandError, RecordError
from rpcinspect.recorder.launcher import CommandProcess, find_program


def run(*arguments: str) -> int:
    with CommandProcess(arguments, os.environ, list) as command:
        command.begin()
        return command.wait()


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill $$", 143)]
)
def test_exit_codes_are_those_of_a_shell(script: str, code: int) -> None:
    assert run("sh", "-c", script) == code


def test_a_command_that_is_not_there() -> None:
    with pytest.raises(CommandError, match="no-such-command: no such command") as caught:
        find_program("no-such-command")
    assert caught.value.code == 127


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("x")
    for path in (tmp_path, tmp_path / "text"):
        with pytest.raises(CommandError) as caught:
            find_program(str(path))
        assert caught.value.code == 126


def test_a_program_that_the_system_refuses(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x00\x01")
    program.chmod(0o755)
    with (
        pytest.raises(CommandError, match="Exec format error") as caught,
        CommandProcess([str(program)], os.environ, list) as command,
    ):
        command.begin()
    assert caught.value.code == 126
    with pytest.raises(ChildProcessError):  # nobody is left who would have to be waited for
        os.waitpid(command.pid, os.WNOHANG)


def test_what_the_stage_opens_reaches_us() -> None:
    def stage() -> list[int]:
        read, write = os.pipe()
        os.write(write, str(os.getpid()).encode())
        return [read]

    with CommandProcess(["true"], os.environ, stage) as command:
        (descriptor,) = command.descriptors
        assert os.read(descriptor, 100) == str(command.pid).encode()
        command.begin()
        assert command.wait() == 0
    os.close(descriptor)


def test_a_stage_that_is_refused(tmp_path: Path) -> None:
    def stage() -> list[int]:
        raise RecordError("not here")

    with pytest.raises(RecordError, match="not here"):
        CommandProcess(["touch", str(tmp_path / "ran")], os.environ, stage)
    assert not (tmp_path / "ran").exists()


def test_a_command_that_is_given_up_does_not_run(tmp_path: Path) -> None:
    with CommandProcess(["touch", str(tmp_path / "ran")], os.environ, list):
        pass
    assert not (tmp_path / "ran").exists()
