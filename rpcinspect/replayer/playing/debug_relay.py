"""The terminal of debuggers that run in live workers: their lines are shown here, and what is typed here goes
to them.

In: a socket from each live worker, and a terminal. Out: what workers ask and tell, to a `SessionDebugger`.
One thread does it, so that the replay goes on meanwhile. It reads the terminal only while a debugger waits
for a line; of several, the first that asked gets it. Live workers run user code: what they send is checked,
and a worker that sends anything else is heard no more.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from rpcinspect.errors import ReplayError
from rpcinspect.files.closing import Closing
from rpcinspect.replayer.playing.debugging import SessionDebugger
from rpcinspect.replayer.workers.worker_protocol import ControlSocket, Object

READ_BYTES = 1 << 12
SLOW_S = 1.0
"""For the rest of what a worker has begun to send."""


class Terminal(Protocol):
    """Where people look and type."""

    input: int | None
    """A file number; None: nothing can be typed."""

    make_room: Callable[[], None]
    """Takes away what else is drawn there, such as a progress bar."""

    def write(self, text: str) -> None:
        """Shows text, which may hold anything."""

    def typed(self, line: str) -> None:
        """A line was typed, which comes without its end; empty where the input has ended."""

    def show(self, name: str, line: str) -> None:
        """Shows a line that a worker has written."""

    def say(self, line: str) -> None:
        """Shows a line that is ours."""


HELP = "pdb's commands, and c: to the next stop, nm: to the next message, q: end the replay, h: help\n"


class _HeardWorker(Struct, frozen=True, eq=False):
    """A live worker with its socket."""

    name: str
    control: ControlSocket
    debugger: SessionDebugger


class DebugRelay(Closing):
    """The thread between live workers and the terminal. Use it in a `with` statement."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._wake, self._alarm = socket.socketpair()
        self._new: deque[_HeardWorker] = deque()
        self._waiting: deque[_HeardWorker] = deque()
        """Who waits for a line."""
        self._typed = bytearray()
        self._helped = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="debuggers of workers", daemon=True)
        self._thread.start()

    def add(self, name: str, file: int, debugger: SessionDebugger) -> None:
        """Serves another worker, over a socket that is ours from now on."""
        self._new.append(_HeardWorker(name, ControlSocket(socket.socket(fileno=file)), debugger))
        self._alarm.send(b"!")

    def close(self) -> None:
        """Ends the thread; calling it again is fine."""
        if not self._closed:
            self._closed = True
            self._alarm.send(b"!")
            self.join(self._thread)
            if self._waiting and not self._thread.is_alive():  # behind a prompt
                self._terminal.write("\n")
            self._wake.close()
            self._alarm.close()

    def _run(self) -> None:
        workers: set[_HeardWorker] = set()
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ)
            while not self._closed:
                self._look_at_input(selector)
                for key, _ in selector.select():
                    if key.fileobj is self._wake:
                        self._wake.recv(1)
                        while self._new:
                            new = self._new.popleft()
                            workers.add(new)
                            selector.register(new.control.sock, selectors.EVENT_READ, new)
                    elif key.data is None:
                        self._read(key.fd)
                    elif not self._hear(key.data):
                        selector.unregister(key.fileobj)
                        workers.discard(key.data)
                        self._waiting = deque(one for one in self._waiting if one is not key.data)
                        key.data.control.close()
        for worker in [*workers, *self._new]:
            worker.control.close()

    # --- the terminal ---------------------------------------------------------------------------------------

    def _look_at_input(self, selector: selectors.BaseSelector) -> None:
        """Reads what is typed while somebody waits for it, and no longer."""
        while self._waiting and b"\n" in self._typed:
            self._answer()
        number = self._terminal.input
        if number is None:
            while self._waiting:
                self._answer()
            return
        watched = number in selector.get_map()
        if self._waiting and not watched:
            try:
                selector.register(number, selectors.EVENT_READ)
            except (OSError, ValueError):  # a plain file, which is always readable
                self._read(number)
                self._look_at_input(selector)
        elif watched and not self._waiting:
            selector.unregister(number)

    def _read(self, number: int) -> None:
        """Takes what was typed; nothing: the input has ended, and who waits gets what is there."""
        try:
            data = os.read(number, READ_BYTES)
        except OSError:  # of a terminal that is gone, or a file that is not for reading
            data = b""
        self._typed += data
        if not data and self._waiting:
            self._answer()

    def _answer(self) -> None:
        """Gives the first who waits its line; what is there where the input has ended."""
        line, newline, rest = self._typed.partition(b"\n")
        self._typed = bytearray(rest)
        worker = self._waiting.popleft()
        self._terminal.typed(line.decode("utf-8", "replace"))
        with contextlib.suppress(ReplayError):  # it has ended
            worker.control.send({"line": (line + newline).decode("utf-8", "replace")})

    # --- live workers ---------------------------------------------------------------------------------------

    def _hear(self, worker: _HeardWorker) -> bool:
        """Takes what a worker has sent; False: nothing more will come."""
        try:
            while True:
                heard = worker.control.receive(SLOW_S)
                if heard is None:
                    return False
                self._take(worker, heard[0])
                if not worker.control.said_more:
                    return True
        except (ReplayError, KeyError, TypeError, ValueError):
            return False

    def _take(self, worker: _HeardWorker, what: Object) -> None:
        say = what["say"]
        if say == "got":
            worker.control.send(worker.debugger.got(worker.name, what))
        elif say == "found":
            worker.control.send({"stops": worker.debugger.found(worker.name, str(what["text"]))})
        elif say == "hold":
            worker.debugger.hold(worker.name, str(what["key"]))
            if what["head"]:
                helps = what["here"] and not self._helped
                self._terminal.write(f"{what['head']}\n" + (HELP if helps else ""))
                self._helped |= helps
        elif say == "write":
            self._terminal.write(str(what["text"]))
        elif say == "tell":
            self._terminal.say(f"{worker.name}: {what['text']}")
        elif say == "read":
            self._waiting.append(worker)
        elif say == "go-on":
            worker.debugger.go_on(worker.name, str(what["key"]), str(what["to"]))
            worker.control.send({})
        elif say == "quit":
            worker.debugger.quit()
