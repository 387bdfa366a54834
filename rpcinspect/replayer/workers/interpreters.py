"""Other Pythons than ours, for live workers: what is looked at before one is used.

In: the path of an interpreter. Out: its release, that of its torch, and where it finds modules;
`ReplayError` in one line where live workers can't run there. Only torch is needed there: what worker
processes import of this package needs Python's own library alone. The interpreter is run to be asked, as the
user's shell would run it; torch is not imported for that.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from msgspec import Struct

from rpcinspect.errors import ReplayError

OLDEST_PYTHON = (3, 10)
OLDEST_TORCH = (2, 2)
"""Earlier stores speak another protocol."""
NEWEST_TESTED_TORCH = (2, 15)
"""The newest release on which replays were tried (docs/replay.md)."""
ASK_S = 60.0
QUESTION = """
import json, sys
try:
    from importlib.metadata import version
    torch = version("torch")
except ImportError:  # PackageNotFoundError is one
    torch = None
path = [folder for folder in sys.path if folder]
print(json.dumps({"python": list(sys.version_info[:3]), "torch": torch, "path": path}))
"""


class Interpreter(Struct, frozen=True, kw_only=True):
    """A Python in which live workers can run."""

    program: str
    python: str
    """Its release."""
    torch: str
    """The release of its torch."""
    path: tuple[str, ...]
    """Where it finds modules, PYTHONPATH included."""


def own_path() -> list[str]:
    """Where this Python finds modules."""
    return [folder for folder in sys.path if folder]


def examine(program: str) -> Interpreter:
    """Returns what an interpreter is. Raises `ReplayError` where live workers can't run in it."""
    found = shutil.which(program)
    if found is None:
        raise ReplayError(f"{program}: there is no such program")
    found = str(Path(found).absolute())  # links stay: a venv's Python is one
    try:
        ran = subprocess.run(
            [found, "-c", QUESTION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_S,
            cwd="/",
            check=False,
        )
        said = json.loads(ran.stdout.splitlines()[-1])
        python, torch, path = said["python"], said["torch"], said["path"]
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReplayError(f"{program}: can't be run: {error}") from error
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise ReplayError(f"{program}: is not a Python: it does not answer as one") from error
    release = ".".join(map(str, python))
    if tuple(python) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise ReplayError(f"{program}: live workers need Python {oldest} or later, this is {release}")
    if torch is None:
        raise ReplayError(f"{program}: has no PyTorch: {found} -m pip install torch")
    need_recent(str(torch), program)
    return Interpreter(program=found, python=release, torch=str(torch), path=tuple(path))


def release_of(text: str) -> tuple[int, ...]:
    """Returns the first two numbers of a release of torch, such as `2.13.0+cpu`."""
    numbers = [part for part in text.split("+")[0].split(".") if part.isdigit()]
    return tuple(int(number) for number in numbers[:2])


def need_recent(torch: str, program: str | None = None) -> None:
    """Raises `ReplayError` where a release of torch is too old for live workers."""
    if release_of(torch) < OLDEST_TORCH:
        where = "" if program is None else f"{program}: "
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise ReplayError(f"{where}live workers need torch {oldest} or later, there is {torch}")
