"""One output: a command line runs in a fork of this process, and what it says and writes becomes a text.

In: arguments of `rpcinspect`, whose modules are imported here once (`prepare`). Out: an `Answer`: the exit
code, and a text of standard output, standard error and the files made, without what is not the program's
doing: where it lies, its version, how others compress. Unix only.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zlib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

from tests.golden.importing import import_commands

CPU_LIMIT_S = 60
WALL_LIMIT_S = 300
MEMORY_LIMIT = 6 << 30
WARM_UP = "captures/basic_chain.pcap"
DIGITS = 16
"""Hexadecimal digits of a hash that are kept: an accident, not an attack, is to be seen."""


@dataclass(frozen=True)
class Answer:
    """What a command came to."""

    code: int
    """Its exit code; below 0 the signal that ended it."""
    digest: str
    packed: bytes = b""

    @property
    def text(self) -> str:
        """Empty if only the hash was wanted."""
        return zlib.decompress(self.packed).decode() if self.packed else ""


def prepare(root: Path, package: Path) -> None:
    """Makes a process whose forks are commands in `root`, as if begun anew, of `package`'s rpcinspect."""
    os.chdir(root)
    os.environ.update(COLUMNS="120", LINES="50", TZ="UTC", LC_ALL="C.UTF-8", PATH="/nowhere", NO_COLOR="1")
    for name in ("TERM", "FORCE_COLOR", "RPCINSPECT_DEBUG", "TERMINAL_WIDTH", "GITHUB_ACTIONS"):
        os.environ.pop(name, None)
    time.tzset()
    sys.path.insert(0, str(package))
    gc.disable()
    import rpcinspect

    if not Path(rpcinspect.__file__).is_relative_to(package):
        raise RuntimeError(f"{rpcinspect.__file__} was imported, not that of {package}")
    import_commands()
    for name in ("tests.golden.rendering", "pyarrow.dataset"):
        importlib.import_module(name)
    _warm_up()
    gc.freeze()


def _warm_up() -> None:
    """Runs some commands here, so that forks find made what a first command makes: another fifth."""
    from rpcinspect.cli import main

    before = sys.argv, sys.stdout, sys.stderr
    with open(os.devnull, "w") as nowhere:
        sys.stdout = sys.stderr = nowhere
        for words in ("decode", "decode --format jsonl", "export html", "replay --plan"):
            sys.argv = ["rpcinspect", *words.split(), WARM_UP]
            with contextlib.suppress(SystemExit, Exception):  # which forks will tell
                main()
            gc.disable()
    sys.argv, sys.stdout, sys.stderr = before


def answer(arguments: list[str], *, text: bool) -> Answer:
    """Runs it; with `text`, not only its hash."""
    folder = Path(tempfile.mkdtemp(prefix="rpcinspect-golden-"))
    try:
        process = os.fork()
        if process == 0:
            _command(arguments, folder, text)
        _, status = os.waitpid(process, 0)
        end = os.waitstatus_to_exitcode(status)
        if end < 0:
            return Answer(end, "", zlib.compress(f"ended by {signal.Signals(-end).name}\n".encode()))
        code, digest, rest = (folder / "answer").read_bytes().split(b"\n", 2)
        if end:
            raise RuntimeError(rest.decode())
        return Answer(int(code), digest.decode(), zlib.compress(rest, 1) if text else b"")
    finally:
        shutil.rmtree(folder)


def _command(arguments: list[str], folder: Path, text: bool) -> NoReturn:
    """The fork: runs a command, leaves `answer` in the folder, and exits with 0."""
    try:
        (folder / "made").mkdir()
        (folder / "tmp").mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(WALL_LIMIT_S)
        code = _run([word.replace("OUT/", f"{folder}/made/") for word in arguments], folder)
        from tests.golden.rendering import rendered

        shown = f"exit code {code}\n{rendered(folder)}"
        digest = sha256(shown.encode()).hexdigest()[:DIGITS]
        (folder / "answer").write_bytes(f"{code}\n{digest}\n{shown if text else ''}".encode())
        os._exit(0)
    except BaseException:
        (folder / "answer").write_text(f"1\n\n{arguments}: {traceback.format_exc()}", encoding="utf-8")
        os._exit(1)


def _run(arguments: list[str], folder: Path) -> int:
    """The command itself, with files as its standard streams."""
    flags = os.O_RDWR | os.O_CREAT
    for number, place in enumerate((os.devnull, f"{folder}/stdout", f"{folder}/stderr")):
        opened = os.open(place, flags if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    files = (io.BufferedWriter(io.FileIO(number, "w", closefd=False)) for number in (1, 2))
    out, err = (io.TextIOWrapper(file, "utf-8") for file in files)
    sys.stdout = sys.__stdout__ = out  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = err  # type: ignore[misc]
    sys.argv = ["rpcinspect", *arguments]
    from rpcinspect.cli import main

    try:
        main()
        code: object = 0
    except SystemExit as end:
        code = end.code
    except BaseException as error:  # what a user would see as a traceback, whose lines change with any change
        print(f"Traceback: {type(error).__name__}: {error}", file=sys.stderr)
        code = 1
    for stream in (out, err):
        stream.flush()
    return code if isinstance(code, int) else int(code is not None)
