"""The agent's library for a command: which interpreter it will run in, and the build there.

In: a command line. Out: a `Library`; `RecordError` says in one line why there is none. native/build.py runs
in that interpreter, not in ours, which may have no torch, or another one.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, convert

from rpcinspect.errors import RecordError

BUILD = Path(__file__).resolve().parent / "native" / "build.py"
QUEUE_BYTES = 64 << 20
MAX_LINE = 1 << 10
"""Bytes of a script that name its interpreter."""


class TorchLook(Struct, frozen=True, kw_only=True):
    """What there is in an interpreter for the agent, without a build."""

    library: str | None = None
    """Where the agent is, if it is built."""
    compiler: str | None = None
    """What would build it."""
    lacks: str | None = None
    """Why it can be neither."""
    rpc: bool = False
    """Whether torch could be imported and has RPC."""
    cuda: str | None = None
    """The release of CUDA or ROCm that torch was built for."""
    gpus: tuple[str, ...] | None = None
    """Their names; None where nobody could ask."""
    why: str | None = None
    """Why there is not more of this."""
    late: bool = False
    """Whether that is because there was no time for it."""


class AgentLook:
    """A process that looks for what the agent needs, beside whatever else is looked for meanwhile."""

    def __init__(self, interpreter: str) -> None:
        """Starts it. Raises `RecordError` where the interpreter can't be run."""
        try:
            self._process = subprocess.Popen(
                [interpreter, str(BUILD), "--look"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise RecordError(f"{interpreter}: can't be run: {error.strerror}") from error

    def answer(self, seconds: float) -> TorchLook:
        """Returns what it has found within some seconds; then it ends."""
        late = False
        try:
            output, _ = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            self._process.kill()
        if late:
            output, _ = self._process.communicate()
        found: dict[str, object] = {}
        for line in output.splitlines():
            with suppress(ValueError):  # what else wrote there, such as a sitecustomize
                said = json.loads(line)
                found |= said if isinstance(said, dict) else {}
        if "gpus" not in found and "why" not in found:
            code = self._process.returncode
            slow = f"importing torch takes longer than {seconds:g} s"
            found |= {"why": slow if late else f"importing torch ended with code {code}", "late": late}
        return convert(found, TorchLook)


class Library(Struct, frozen=True):
    """A built agent."""

    path: str
    torch: str
    """The release that it was built for: in a process with another one it is not used."""

    def settings(
        self, log: Path, tensors: str, when_full: str, queue_bytes: int = QUEUE_BYTES
    ) -> dict[str, object]:
        """Returns the settings that startup/rpcinspect_agent.py always gets."""
        return {
            "library": self.path,
            "torch": self.torch,
            "output": str(log.resolve()),
            "tensors": tensors,
            "when_full": when_full,
            "queue_bytes": queue_bytes,
        }


def build_agent(interpreter: str, tell: Callable[[str], object] = lambda line: None) -> Library:
    """Returns the library for an interpreter's torch; calls `tell` before a compilation, which takes its
    time."""
    try:
        with subprocess.Popen(
            [interpreter, str(BUILD)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            said: dict[str, str] = {}
            for line in process.stdout:
                said = json.loads(line)
                if "building" in said:
                    tell(f"building the agent for torch {said['building']} once: this takes a minute or more")
            errors = process.stderr.read().strip().splitlines()
    except OSError as error:
        raise RecordError(f"{interpreter}: can't be run: {error.strerror}") from error
    except ValueError as error:
        raise RecordError(f"{interpreter}: is not a Python: it answers {line.strip()[:100]!r}") from error
    if "why" in said:
        raise RecordError(said["why"])
    if "library" not in said:
        raise RecordError(f"{interpreter} could not build the agent: {(errors or ['it said nothing'])[-1]}")
    return Library(said["library"], said["torch"])


def interpreter_of(command: Sequence[str]) -> str:
    """Returns the interpreter of a command: the program, or that of a script's first line; else our own."""
    program = shutil.which(command[0])
    if program is None:
        return sys.executable
    if _PYTHON.fullmatch(os.path.basename(program)):
        return program
    return _of_script(program) or sys.executable


def _of_script(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            first = file.readline(MAX_LINE)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    try:
        words = shlex.split(first[2:].decode("utf-8", "replace"))
    except ValueError:
        return None
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    found = shutil.which(words[0]) if words else None
    return found if found is not None and _PYTHON.fullmatch(os.path.basename(found)) else None


_PYTHON = re.compile(r"python(\d+(\.\d+)*)?[a-z]*")
