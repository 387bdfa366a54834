"""The little of an editor's debugger that a test needs: it attaches, is told where a program stopped, asks
for variables, and lets it go on (the Debug Adapter Protocol)."""

from __future__ import annotations

import json
import socket
import time
from types import TracebackType
from typing import Any


class Editor:
    """A connection to debugpy. Use it in a `with` statement."""

    def __init__(self, port: int, timeout_s: float) -> None:
        """Attaches, as soon as somebody listens there."""
        end = time.monotonic() + timeout_s
        while True:
            try:
                self._sock = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
        self._file = self._sock.makefile("rb")
        self._number = 0
        self._kept: list[dict[str, Any]] = []
        self.ask("initialize", adapterID="python", pathFormat="path", linesStartAt1=True)
        attached = self.send("attach", justMyCode=False)
        self.event("initialized")
        self.ask("configurationDone")
        self._wait(lambda one: one.get("request_seq") == attached)

    def __enter__(self) -> Editor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._sock.close()

    def send(self, command: str, **arguments: object) -> int:
        """Sends a request; returns its number."""
        self._number += 1
        what = {"seq": self._number, "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(what).encode()
        self._sock.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        return self._number

    def ask(self, command: str, **arguments: object) -> dict[str, Any]:
        """Sends a request and waits for its answer; returns the body."""
        number = self.send(command, **arguments)
        answer = self._wait(lambda one: one.get("request_seq") == number)
        assert answer["success"], answer
        return dict(answer.get("body") or {})

    def event(self, name: str) -> dict[str, Any]:
        """Waits for an event; returns its body."""
        return dict(self._wait(lambda one: one.get("event") == name).get("body") or {})

    def _wait(self, wanted: Any) -> dict[str, Any]:
        for at, one in enumerate(self._kept):
            if wanted(one):
                return self._kept.pop(at)
        while True:
            length = 0
            while line := self._file.readline().strip():
                length = int(line.partition(b":")[2])
            assert length, "the debugger has closed the connection"
            one = json.loads(self._file.read(length))
            if wanted(one):
                return dict(one)
            self._kept.append(one)
