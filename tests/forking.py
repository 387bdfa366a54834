"""Runs Python programs as forks of a process that has imported what they need: torch, which takes each of
them seconds, or the commands of rpcinspect, which take half of one.

In: a listening socket, and over each connection one program: its arguments, environment and folder, and the
files that it is to have, under which numbers. Out: its process id, and how it ended. Each program is a
process in a session of its own, with the modules that were imported here and nothing else in common; when the
process that started this one is gone, all are ended. `tests/forks.py` is the other side.

Where a program with torch would start a Python for multiprocessing's own processes, the first is a fork, too:
it stands by since before the program began.

Started with -I: what a program may import is what its arguments and environment say, as in a new Python.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
import traceback
import types
import warnings
from multiprocessing import util
from typing import Any, NoReturn

SPAWN = util.spawnv_passfds
ABOVE = 512
"""Where files lie while they are put at their places."""
MAX_FILES = 16
NOT_FLUSHED = 120
"""Python's exit code where standard output can't take the rest."""


def received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What one side of a connection asks for, and the files that came with it."""
    data, files, _, _ = socket.recv_fds(connection, 4, MAX_FILES)
    length = int.from_bytes(data, "big")
    text = b""
    while len(text) < length and (part := connection.recv(length - len(text))):
        text += part
    return json.loads(text or b"{}"), files


def become(asked: dict[str, Any], files: list[int]) -> NoReturn:
    """In a fork: as if Python had been started for the program."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        above = [fcntl.fcntl(number, fcntl.F_DUPFD, ABOVE) for number in files]
        for number, place in zip(above, asked["places"], strict=True):
            os.dup2(number, place)
        for number in map(int, os.listdir("/proc/self/fd")):
            if number not in asked["places"]:
                with contextlib.suppress(OSError):  # that of the folder itself
                    os.close(number)
        sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
        sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
        sys.stdout.reconfigure(write_through=bool(asked["env"].get("PYTHONUNBUFFERED")))
        sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
        os.environ.clear()
        os.environ.update(asked["env"])
        tempfile.tempdir = None
        os.chdir(asked["cwd"])
        if asked.get("torch") and "tests.forks" in sys.modules:
            sys.modules["tests.forks"].workers_are_forks(asked["torch"])
        random.seed()
        code = run(asked["arguments"])
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
        except Exception as error:
            print(f"Exception ignored while flushing sys.stdout: {error}", file=sys.stderr)
            code = NOT_FLUSHED
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


class Standby:
    """A fork that waits until the program starts Python for multiprocessing, and is that Python then."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self._ours.close()
            asked, files = received(theirs)
            if not asked:  # the program has ended without
                os._exit(0)
            become(asked, files)
        theirs.close()

    def spawned(self, path: bytes, arguments: list[bytes], files: tuple[int, ...]) -> int:
        """As `multiprocessing.util.spawnv_passfds`."""
        told = [os.fsdecode(one) for one in arguments]
        code = told[told.index("-c") + 1]
        if self._ours.fileno() == -1 or "resource_tracker import" in code:
            return SPAWN(path, arguments, files)
        places = [0, 1, 2, *files]
        asked = {
            "arguments": told[told.index("-c") :],
            "env": dict(os.environ),
            "cwd": os.getcwd(),
            "places": places,
        }
        text = json.dumps(asked).encode()
        socket.send_fds(self._ours, [len(text).to_bytes(4, "big")], places)
        self._ours.sendall(text)
        self._ours.close()
        return self.pid


def run(arguments: list[str]) -> int:
    """Does what Python would with these; its exit code."""
    isolated = False
    while arguments[0] in ("-I", "-B", "-W"):
        isolated |= arguments[0] == "-I"
        if arguments[0] == "-W":
            warnings.simplefilter("ignore" if arguments[1] == "ignore" else "error")
        arguments = arguments[2 if arguments[0] == "-W" else 1 :]
    how = arguments[0] if arguments[0] in ("-c", "-m") else None
    sys.argv = arguments[1:] if how is not None else arguments
    if not isolated and how != "-c" and "torch" in sys.modules:
        util.spawnv_passfds = Standby().spawned
    if not isolated:
        first = "" if how is not None else os.path.dirname(os.path.abspath(arguments[0]))
        more = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [first, *(os.path.abspath(folder) for folder in more if folder)]
    try:
        if how == "-c":
            sys.argv = ["-c", *arguments[2:]]
            sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(arguments[1], "<string>", "exec"), vars(sys.modules["__main__"]))
        elif how == "-m":
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    finally:
        threading._shutdown()  # type: ignore[attr-defined] - as Python at its end
        atexit._run_exitfuncs()
    return 0


def prepare(folder: str, modules: list[str]) -> None:
    """Imports what the programs need. With `folder` that is everything of the commands of the rpcinspect
    there, whose live workers can be forks too (`tests/forks.py`); the parser of the options is made."""
    gc.disable()  # what is imported stays, and would be looked through again and again
    for name in modules:
        importlib.import_module(name)
    if folder:
        sys.path.insert(0, folder)
        importlib.import_module("tests.golden.importing").import_commands()
        importlib.import_module("tests.forks")
        sys.path.remove(folder)
    gc.enable()
    gc.collect()
    gc.freeze()


def main() -> None:
    """`forking.py LISTENER PARENT FOLDER MODULES`: until nothing is left of whoever holds the other end of
    `PARENT`. `prepare` says what the others are."""
    listener, parent = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    prepare(sys.argv[3], sys.argv[4:])
    wake, woken = socket.socketpair()
    for end in (wake, woken):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever presses it means the tests, which end this
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        for one in (listener, parent, wake):
            selector.register(one, selectors.EVENT_READ)
        parent.send(b"1")  # everything is imported
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if parent in ready:
                break
            if listener in ready:
                connection, _ = listener.accept()
                asked, files = received(connection)
                pid = os.fork()
                if pid == 0:
                    os.setsid()
                    become(asked, files)
                for number in files:
                    os.close(number)
                running[pid] = connection
                connection.send(b"%d\n" % pid)
            if wake in ready:
                with contextlib.suppress(BlockingIOError):
                    wake.recv(1 << 12)
            bury(running)
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def bury(running: dict[int, socket.socket]) -> None:
    """Tells how programs have ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as connection, contextlib.suppress(OSError):  # nobody wants to know any more
            connection.send(b"%d\n" % status)


if __name__ == "__main__":
    main()
