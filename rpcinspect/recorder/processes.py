"""How the processes of a command that used RPC ended, whoever their parent is.

In: a handle on itself that each of them gives us at its start (startup/rpcinspect_notes.py), statuses of our
own children, and what a process has told of its own last lines. Out: an `ProcessEnd` for each note.

A handle is a pidfd. From Linux 6.15 on it keeps the status after the parent has taken it in; before, the
status can be read as long as the parent has not. It comes through a socket whose queue keeps it, so that a
process which dies at once is known too. What none of these tells is `unknown`, never likely.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from rpcinspect.recorder.memory import oom_kills
from rpcinspect.recorder.notes import Note
from rpcinspect.recorder.reaper import EXIT_CODE, START, Process, is_zombie, process_stat
from rpcinspect.session.process_end import ProcessEnd

SOCKET = "processes"
"""In the folder of notes; startup/rpcinspect_notes.py has the name too."""
WAITING = 4096
"""Processes that may give us a handle before we take one."""
INFO_BYTES = 64
PIDFD_GET_INFO = 3 << 30 | INFO_BYTES << 16 | 0xFF << 8 | 11
PIDFD_INFO_EXIT = 1 << 3
"""Of linux/pidfd.h, with the size of the struct of its first version; the status is its last number."""
SECONDS = 1.0
"""A process that has connected is waited for so long: it says all at once."""


class Processes:
    """From before a command begins to after its end; `close` it in any case."""

    def __init__(self, folder: Path) -> None:
        self._listener = _listener(folder / SOCKET)
        self._handles: dict[int, Process] = {}
        self._ended: dict[Process, tuple[int | None, int]] = {}
        """(wait status, if it could be read at once; time_ns)."""
        self._stop, self._stopped = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._stop, select.POLLIN)
        if self._listener is not None:
            self._poll.register(self._listener, select.POLLIN)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._oom_kills = oom_kills()

    def watch(self) -> None:
        """Begins; a thread does it, which must not be there while our process forks."""
        self._thread.start()

    def ends(
        self, notes: Iterable[Note], statuses: Mapping[Process, tuple[int, int]]
    ) -> dict[Process, ProcessEnd]:
        """How each ended that has left a note, in the end; `statuses`: (wait status, time_ns) of our own."""
        self._halt()
        before, now = self._oom_kills, oom_kills()
        killed = 0 if before is None or now is None else max(0, now - before)
        handles = {process: handle for handle, process in self._handles.items()}
        found: dict[Process, ProcessEnd] = {}
        for note in notes:
            if note.started is None:
                continue
            process = note.pid, note.started
            status, time_ns = statuses.get(process, (None, None))
            if status is None:
                early, time_ns = self._ended.get(process, (None, None))
                kept = None if process not in handles else exit_status(handles[process])
                status = early if kept is None else kept
            if status is None:
                status = zombie_status(process)
            found[process] = _ended(note, status, time_ns, killed)
        return found

    def close(self) -> None:
        """Ends the thread, and forgets the handles."""
        self._halt()
        for handle in self._handles:
            os.close(handle)
        self._handles = {}
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for end in (self._stop, self._stopped):
            if end >= 0:
                os.close(end)
        self._stop = self._stopped = -1

    def _halt(self) -> None:
        if self._thread.is_alive():
            os.write(self._stopped, b"!")
            self._thread.join()

    def _watch(self) -> None:
        """Until told to stop, and then what has come by then."""
        stopping = False
        while True:
            ready = self._poll.poll(0 if stopping else None)
            if stopping and not ready:
                return
            for descriptor, _ in ready:
                if descriptor == self._stop:
                    self._poll.unregister(self._stop)
                    stopping = True
                elif descriptor in self._handles:
                    self._poll.unregister(descriptor)
                    process = self._handles[descriptor]
                    self._ended[process] = zombie_status(process), time.time_ns()
                else:
                    self._take()

    def _take(self) -> None:
        """One more process."""
        assert self._listener is not None
        try:
            caller, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # too many files are open: whoever comes now is not known
            self._poll.unregister(self._listener)
            return
        with caller, contextlib.suppress(OSError, ValueError):
            caller.settimeout(SECONDS)
            said, handles, _, _ = socket.recv_fds(caller, 64, 1)
            for handle in handles:
                try:
                    pid, start = map(int, said.split())
                except ValueError:
                    os.close(handle)
                    raise
                self._handles[handle] = pid, start
                self._poll.register(handle, select.POLLIN)


def exit_status(handle: int) -> int | None:
    """The wait status that a pidfd keeps of a process that is gone."""
    info = array.array("B", struct.pack("=Q", PIDFD_INFO_EXIT).ljust(INFO_BYTES, b"\0"))
    try:
        fcntl.ioctl(handle, PIDFD_GET_INFO, info)
    except OSError:  # an older kernel
        return None
    (known,) = struct.unpack_from("=Q", info)
    status: int = struct.unpack_from("=i", info, INFO_BYTES - 4)[0]
    return status if known & PIDFD_INFO_EXIT else None


def zombie_status(process: Process) -> int | None:
    """The wait status of a process that has ended and that nobody has waited for yet."""
    stat = process_stat(process[0])
    if stat is None or int(stat[START]) != process[1] or not is_zombie(stat):
        return None
    return int(stat[EXIT_CODE])


def is_there(process: Process) -> bool:
    """Whether it still runs."""
    stat = process_stat(process[0])
    return stat is not None and int(stat[START]) == process[1] and not is_zombie(stat)


def _ended(note: Note, status: int | None, time_ns: int | None, killed: int) -> ProcessEnd:
    assert note.started is not None
    if status is not None:
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            error = note.error if code else None
            return ProcessEnd(how="exit", status=code, error=error, time_ns=time_ns, pid=note.pid)
        return ProcessEnd(
            how="signal",
            signal=_name(-code),
            error=note.error,
            time_ns=time_ns,
            pid=note.pid,
            oom_kills=killed if -code == signal.SIGKILL else 0,
        )
    if is_there((note.pid, note.started)):
        return ProcessEnd(how="running", pid=note.pid)
    if note.ended is None:
        return ProcessEnd(how="unknown", time_ns=time_ns, pid=note.pid)
    return ProcessEnd(how="exit", status=note.status, error=note.error, time_ns=time_ns, pid=note.pid)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _listener(path: Path) -> socket.socket | None:
    """None where there can be none, such as in a folder with a name that is too long for that."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.bind(str(path))
        listener.listen(WAITING)
    except OSError:
        listener.close()
        return None
    return listener
