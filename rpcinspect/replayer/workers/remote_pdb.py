"""pdb in a live worker whose terminal is that of our process.

A live worker is not in the foreground of any terminal, and has several threads in which a function may stop.
So the debugger's lines go over a socket to our process (`debug_relay.py`), which shows them and brings back
what was typed.

In: a `DebugLink` and what holds. Out: a dialogue, and after it whether the replay goes on to the next stop or
to the next message. Runs in live workers only.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pdb
import sys
import threading
from collections.abc import Callable, Mapping
from types import CodeType, FrameType, TracebackType
from typing import Any

from rpcinspect.replayer.workers.worker_protocol import ControlSocket, Object

OWN = ("rpcinspect.*", "torch.distributed.rpc.internal")
"""Modules between RPC and the user's function: nobody wants to step through them."""

NEXT_STOP, NEXT_MESSAGE = "stop", "message"


class CannotDebugError(Exception):
    """What the user wants to debug with can't be used; the text says why."""


class DebugLink:
    """The socket to our process; one request with its reply at a time, from any thread."""

    def __init__(self, control: ControlSocket) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._numbers = itertools.count()

    def say(self, what: Object) -> None:
        """Sends what has no reply."""
        with self._lock:
            self._control.send(what)

    def ask(self, what: Object) -> Object:
        """Sends a request; returns its reply. Where our process is gone, this one ends."""
        with self._lock:
            self._control.send(what)
            reply = self._control.receive()
        if reply is None:
            os._exit(1)
        return reply[0]

    def hold(self, head: str, key: int | None = None, *, here: bool = True) -> str:
        """Says that this worker holds, and where. Returns the key to say with `go_on` that it no longer does;
        `key`: a message that our process holds already; `here`: on our terminal."""
        for stream in (sys.stdout, sys.stderr):  # what was printed before is shown above the prompt
            with contextlib.suppress(Exception):  # the user's modules may have replaced it
                stream.flush()
        named = f"{next(self._numbers)}" if key is None else f"#{key}"
        self.say({"say": "hold", "key": named, "head": head, "here": here})
        return named

    def go_on(self, key: str, to: str) -> None:
        """Says that what held goes on, to the next stop or to the next message; waits until our process knows
        it, which may get the answer first otherwise, and send the next message."""
        self.ask({"say": "go-on", "key": key, "to": to})


class _Terminal:
    """What pdb reads and writes."""

    encoding = "utf-8"

    def __init__(self, link: DebugLink) -> None:
        self._link = link

    def write(self, text: str) -> int:
        """Shows text."""
        self._link.say({"say": "write", "text": text})
        return len(text)

    def flush(self) -> None:
        """Does nothing: what is written is shown."""

    def readline(self) -> str:
        """Returns a line that was typed; empty at the end of the input."""
        return str(self._link.ask({"say": "read"}).get("line", ""))


class RemotePdb(pdb.Pdb):
    """A debugger for one stop and what follows it in the same thread."""

    def __init__(self, link: DebugLink, place: str) -> None:
        """`place`: what the prompt shows."""
        terminal: Any = _Terminal(link)
        super().__init__(stdin=terminal, stdout=terminal, nosigint=True, readrc=False, skip=OWN)
        self.prompt = f"({place}) "
        self._link = link
        self._key: str | None = None
        self._head = ""
        self._names: Mapping[str, object] = {}
        self._looks_only = False
        """No code of this thread is run step by step: the dialogue looks at a frame as it is."""
        self._to = NEXT_STOP

    # --- ways to stop ---------------------------------------------------------------------------------------

    def call(
        self,
        function: Callable[[], Any],
        code: CodeType | None,
        *,
        head: str,
        names: Mapping[str, object],
        key: int | None = None,
    ) -> Any:
        """Calls a function under the debugger. It stops at the first line of `code`; None: only at the user's
        own breakpoints. `names`: what the prompt knows besides."""
        self._begin(head, names, key)
        if code is None:
            self._set_stopinfo(sys._getframe(), None, -1)  # type: ignore[attr-defined]
            sys.settrace(self.trace_dispatch)
        else:
            sys.settrace(self._waits_for(code))
        try:
            return function()
        finally:
            sys.settrace(None)
            self.release()

    def _begin(self, head: str, names: Mapping[str, object], key: int | None) -> None:
        """Prepares a dialogue; `key`: the message that holds already."""
        self._head, self._names = head, names
        if key is not None:
            self._key = f"#{key}"
        self.reset()

    def _waits_for(self, code: CodeType) -> Any:
        def trace(frame: FrameType, event: str, arg: object) -> Any:
            if frame.f_code is not code:
                return None
            sys.settrace(self.trace_dispatch)
            return self.trace_dispatch(frame, event, arg)

        return trace

    def look(
        self,
        head: str,
        names: Mapping[str, object],
        *,
        trace: TracebackType | None = None,
        key: int | None = None,
    ) -> None:
        """Holds a dialogue in which no line is run: about where an exception was raised, or about names
        alone."""
        self._looks_only = True
        self._begin(head, names, key)
        try:
            if trace is not None:
                self.interaction(None, trace)
            else:
                _here(self.interaction)
        finally:
            self.release()

    def stop_here_and_now(self, head: str, frame: FrameType, names: Mapping[str, object]) -> None:
        """Stops at the next line of a frame, as `breakpoint()` does."""
        self._head, self._names = head, names
        self.set_trace(frame)

    def release(self) -> None:
        """Says that nothing holds any more; harmless where nothing did."""
        key, self._key = self._key, None
        if key is not None:
            self._link.go_on(key, self._to)

    # --- as pdb calls them ----------------------------------------------------------------------------------

    def interaction(self, frame: FrameType | None, *rest: Any) -> None:
        if self._head:
            self._key = self._link.hold(self._head, None if self._key is None else int(self._key[1:]))
            self._head = ""
        elif self._key is None:
            self._key = self._link.hold("")
        super().interaction(frame, *rest)

    def setup(self, f: FrameType | None, tb: TracebackType | None) -> None:
        super().setup(f, tb)
        for there, _ in self.stack:
            if there.f_locals is not there.f_globals:  # of a module they would stay
                for name, value in self._names.items():
                    if name not in there.f_locals:
                        there.f_locals[name] = value

    def print_stack_entry(self, frame_lineno: Any, *rest: Any) -> None:
        if not self._is_ours(frame_lineno[0]):
            super().print_stack_entry(frame_lineno, *rest)

    def _is_ours(self, frame: FrameType | None) -> bool:
        """Returns whether a frame is one between RPC and the user's function."""
        return frame is None or self.is_skipped_module(frame.f_globals.get("__name__", ""))

    def user_return(self, frame: FrameType, return_value: object) -> None:
        super().user_return(frame, return_value)
        if self._is_ours(frame.f_back):
            self.set_continue()
            self.release()

    def do_args(self, arg: str) -> bool | None:
        """a(rgs): prints the arguments of the function; where none runs, the names that are known here."""
        if not self._is_ours(self.curframe):
            return super().do_args(arg)
        for name, value in self._names.items():
            self.message(f"{name} = {value!r}")
        return None

    do_a = do_args

    def do_list(self, arg: str) -> bool | None:
        """l(ist) [first[, last]]: lists the source around the current line."""
        if not self._is_ours(self.curframe):
            return super().do_list(arg)
        self.message("no function runs here; args prints what is known")
        return None

    do_l = do_list

    # --- commands -------------------------------------------------------------------------------------------

    def do_continue(self, arg: str) -> bool | None:
        """c(ont(inue)): goes on to the next stop: a --stop-at, a breakpoint, or the end of the replay."""
        self._to = NEXT_STOP
        done = super().do_continue(arg)
        if not self._looks_only:
            self.release()
        return done

    do_c = do_cont = do_continue

    def do_nextmessage(self, arg: str) -> bool | None:
        """nm, nextmessage: goes on to the next message that a live worker gets."""
        done = super().do_continue(arg)
        self._to = NEXT_MESSAGE
        if not self._looks_only:
            self.release()
        return done

    do_nm = do_nextmessage

    def do_step(self, arg: str) -> bool | None:
        """s(tep): goes to the next line, also in functions called; from the last to the next message.

        Where no function runs, it goes to the next message at once.
        """
        self._to = NEXT_MESSAGE
        return True if self._looks_only else super().do_step(arg)

    do_s = do_step

    def do_next(self, arg: str) -> bool | None:
        """n(ext): goes to the next line of this function; from the last one to the next message.

        Where no function runs, it goes to the next message at once.
        """
        self._to = NEXT_MESSAGE
        return True if self._looks_only else super().do_next(arg)

    do_n = do_next

    def do_quit(self, arg: str) -> bool | None:
        """q(uit), exit: ends the replay; the report says what was done until now."""
        self._link.ask({"say": "quit"})  # never answered: our process ends this one
        return True

    do_q = do_exit = do_quit

    def do_EOF(self, arg: str) -> bool | None:  # noqa: N802
        """EOF: ends the replay, as quit does."""
        self.message("the input has ended")
        return self.do_quit(arg)

    def do_interact(self, arg: str) -> bool | None:
        """interact: not here; statements can be typed at the prompt."""
        self.error("type statements at the prompt")
        return None

    def do_run(self, arg: str) -> bool | None:
        """run, restart: not here; a replay begins at its first message."""
        self.error("a replay can't be begun again from here")
        return None

    do_restart = do_run


def _here(interact: Callable[[FrameType, None], None]) -> None:
    """Gives a dialogue a frame of its own."""
    interact(sys._getframe(), None)
