"""Environments for live workers with a release of torch: made when first asked for, used again later.

In: a requirement, such as `torch==2.14.1`. Out: the Python of a virtual environment in the user's cache
folder that has it, and nothing else beside what it needs. Made by `venv` and pip, with the user's settings of
pip; what these do is told line by line, sizes of downloads included. An environment whose making was
interrupted is removed, and one that others could have written to is not used.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from rpcinspect.errors import ReplayError

REQUIREMENT = re.compile(r"torch==[0-9][0-9A-Za-z.+!]*")
Tell = Callable[[str], None]
LAST_LINES = 3
"""Of what pip wrote that are told where it fails without a line of its own for that."""
ERROR = "ERROR: "


def environments_folder() -> Path:
    """Where environments are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache).absolute() / "rpcinspect" / "environments"


def made(requirement: str, tell: Tell) -> str:
    """Returns the Python of the environment of a requirement; makes it if need be, and tells that before.
    Raises `ReplayError` where that fails."""
    release = f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}"
    folder = environments_folder() / f"{requirement.replace('==', '-')}-{release}"
    python = folder / "bin" / "python"
    if folder.is_dir():
        _refuse_a_strangers(folder)
        return str(python)
    tell(
        f"making an environment with {requirement} in {folder}: pip downloads it and the packages that it "
        "needs, several GB where your package index has builds for CUDA only; it stays for later replays"
    )
    begun = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_a_strangers(folder.parent)
        _run([sys.executable, "-m", "venv", str(begun)], requirement, tell)
        pip = [str(begun / "bin" / "python"), "-m", "pip", "install", "--progress-bar", "off", requirement]
        _run(pip, requirement, tell)
        begun.rename(folder)
    except OSError as error:
        raise ReplayError(f"{folder}: can't be made: {error.strerror or error}") from error
    finally:
        shutil.rmtree(begun, ignore_errors=True)
    return str(python)


def _run(command: list[str], requirement: str, tell: Tell) -> None:
    """Runs a program to its end, and tells what it writes. Raises `ReplayError` where it fails."""
    lines: list[str] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="backslashreplace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                tell(f"pip: {lines[-1]}")
        except BaseException:  # Ctrl-C above all: nobody reads on, and a program that runs on would be left
            process.kill()
            raise
    if process.returncode:
        reasons = [line.removeprefix(ERROR) for line in lines if line.startswith(ERROR)][:1]
        told = " ".join(reasons or lines[-LAST_LINES:]) or f"it ended with code {process.returncode}"
        raise ReplayError(f"no environment with {requirement} can be made: {told}")


def _refuse_a_strangers(folder: Path) -> None:
    """Raises `ReplayError` where somebody else could have put there what would be run."""
    state = folder.stat()
    if state.st_uid not in (0, os.geteuid()) or state.st_mode & 0o022:
        raise ReplayError(f"{folder}: others can write there; set XDG_CACHE_HOME to a folder of your own")
