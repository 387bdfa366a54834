"""The processes of a command: what those that used RPC say of themselves, and how they ended, whoever their
parent is.

In: a folder of notes and a handle on itself that each of them gives us at its start
(startup/rpcinspect_notes.py), and what the kernel (Linux) says of our children. Out: `ProcessNote`s, and a
`ProcessEnd` for each. Notes are written by processes of the user: one that can't be read is passed over.

A handle is a pidfd. From Linux 6.15 on it keeps the status after the parent has taken it in; before, the
status can be read as long as the parent has not. It comes through a socket whose queue keeps it, so that a
process which dies at once is known too. What none of these tells is `unknown`, never likely.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, ValidationError, convert

from rpcinspect.session.process_end import ProcessEnd


class ProcessNote(Struct, frozen=True, kw_only=True):
    """A process that started RPC, or tried to."""

    pid: int
    name: str | None = None
    id: int | None = None
    torch: str | None = None
    recorded: bool
    why: str | None = None
    started: int | None = None
    """When the process began, in the kernel's ticks: ids of processes are used again."""
    job: str | None = None
    """As the log calls it."""
    ended: str | None = None
    """`clean`: it ended by itself, and said so."""
    status: int | None = None
    """The exit status with which it did, where it knew it."""
    error: str | None = None
    """The class of the exception that ended it."""
    messages: int = 0
    """What its recorder counted, as the three that follow."""
    bytes: int = 0
    dropped: int = 0
    failed: int = 0


_MAX_BYTES = 1 << 16


def read_notes(folder: Path) -> list[ProcessNote]:
    """Every note, in the order of processes' starts."""
    paths = sorted(folder.glob("*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    notes = [_read(path) for path in paths]
    return sorted(
        (note for note in notes if note is not None), key=lambda note: (note.id is None, note.id or 0)
    )


def _read(path: Path) -> ProcessNote | None:
    try:
        with path.open("rb") as file:
            return convert(json.loads(file.read(_MAX_BYTES)), ProcessNote)
    except (OSError, ValueError, ValidationError):
        return None


def is_running(pid: int, start: int | None = None) -> bool:
    """Returns whether a process still runs, if `start` is given the one that began then; False for one that
    has ended and was not waited for."""
    stat = process_stat(pid)
    return stat is not None and not is_zombie(stat) and start in (None, int(stat[START]))


def still_running(notes: Iterable[ProcessNote]) -> frozenset[int]:
    """Returns the processes that were started and have not ended."""
    return frozenset(note.pid for note in notes if note.ended is None and is_running(note.pid))


PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37
STATE, START, EXIT_CODE = 0, 19, 49
"""Fields of /proc/PID/stat behind the name of the program, which may hold anything."""

Process = tuple[int, int]
"""(id, start in ticks since the system's): ids are used again."""


class Reaper:
    """Makes orphans of a command our children, so that we see the status with which they end: from before it
    begins to its end; `close` lets others have the orphans again.

    Nobody waits for one that still runs. Where the system can't give us orphans they go where they always
    went, and nothing is known of them.
    """

    def __init__(self) -> None:
        self.statuses: dict[Process, tuple[int, int]] = {}
        """(wait status, time_ns) of those that have ended."""
        known = _children()
        self._known = known or frozenset()
        """Children that other parts of our process wait for."""
        self._was = _is_subreaper()
        self._adopts = known is not None and _set_subreaper(True)

    def wait_for(self, pid: int) -> int | None:
        """The wait status of a child; None of one that still runs, or is none of ours."""
        stat = process_stat(pid)
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if not ended:
            return None
        if stat is not None:
            self.statuses[pid, int(stat[START])] = status, time.time_ns()
        return status

    def look(self) -> None:
        """Takes in orphans that have ended: none stays a zombie."""
        if self._adopts:
            for pid in (_children() or frozenset()) - self._known:
                self.wait_for(pid)

    def close(self) -> None:
        """Lets orphans go where they went before."""
        if self._adopts:
            self.look()
            _set_subreaper(self._was)
            self._adopts = False


def process_stat(pid: int) -> list[str] | None:
    """Returns the fields of /proc/PID/stat; None where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields if len(fields) > EXIT_CODE else None


def is_zombie(stat: list[str]) -> bool:
    """Returns whether the process has ended, and its parent has not waited for it."""
    return stat[STATE] in ("Z", "X")


def _children() -> frozenset[int] | None:
    """Returns the children of this process; None where the kernel does not list them."""
    try:
        lists = [path.read_text(encoding="ascii") for path in Path("/proc/self/task").glob("*/children")]
    except OSError:
        return None
    return frozenset(int(pid) for text in lists for pid in text.split()) if lists else None


def _is_subreaper() -> bool:
    told = ctypes.c_int(0)
    return _prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(told)) and bool(told.value)


def _set_subreaper(on: bool) -> bool:
    return _prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(on))


def _prctl(option: int, argument: object) -> bool:
    """Calls prctl; returns whether that succeeded."""
    try:
        zero = ctypes.c_ulong(0)
        return bool(ctypes.CDLL(None).prctl(option, argument, zero, zero, zero) == 0)
    except (OSError, AttributeError):  # no Linux
        return False


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


class CommandProcesses:
    """Watches a command's processes from before its begin to after its end; `close` it in any case."""

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
        self, notes: Iterable[ProcessNote], statuses: Mapping[Process, tuple[int, int]]
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
        """Takes notes until the end is asked for, and then what has come by then."""
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
        """Takes one more process."""
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


def _ended(note: ProcessNote, status: int | None, time_ns: int | None, killed: int) -> ProcessEnd:
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
    if is_running(note.pid, note.started):
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
    """Returns the listening socket; None where there can be none, such as under too long a path."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.bind(str(path))
        listener.listen(WAITING)
    except OSError:
        listener.close()
        return None
    return listener


GROUPS = Path("/sys/fs/cgroup")


def oom_kills() -> int | None:
    """How many processes of our control group, in which a command begins, the kernel has killed for lack of
    memory, by now; of version 2 with the groups below ours. None where it keeps no count, as for the root
    group of version 2.
    """
    for path in _counters():
        try:
            lines = path.read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdigit():
                return int(count)
    return None


def _counters() -> Iterator[Path]:
    """Returns where the counters may be, likeliest first: a container may see its group as the root."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        if "memory" in controllers.split(","):
            folder, file = GROUPS / "memory", "memory.oom_control"
        elif not controllers:
            folder, file = GROUPS, "memory.events"
        else:
            continue
        yield folder / group.lstrip("/") / file
        yield folder / file
