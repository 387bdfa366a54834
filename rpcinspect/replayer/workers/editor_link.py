"""Stops of a live worker in an editor: debugpy listens at a port of the loopback, and waits.

In: what holds. Out: the same, in an editor that has attached. Runs in live workers only; debugpy is an extra
of ours (`rpcinspect[debug]`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rpcinspect.replayer.workers.remote_pdb import CannotDebugError, DebugLink


class Editor:
    """The editor of one live worker."""

    def __init__(self, worker: str, port: int, link: DebugLink) -> None:
        """Raises `CannotDebugError` before anything holds: later it would be taken for the user's error."""
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except (OSError, OverflowError) as error:
            why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
            raise CannotDebugError(
                f"--debug-port: {worker} can't wait for an editor at port {port}: {why}"
            ) from error
        self._worker = worker
        self._port = port
        self._link = link
        self._listens = False

    @contextmanager
    def holding(self, head: str, key: int | None = None) -> Iterator[Any]:
        """Returns a context in which the worker holds and an editor has attached, with debugpy itself."""
        import debugpy  # type: ignore[import-not-found,unused-ignore]

        held = self._link.hold(head, key, here=False)
        try:
            if not self._listens:
                self._listens = True
                debugpy.listen(("127.0.0.1", self._port))
            if not debugpy.is_client_connected():
                text = f"{self._worker} waits for an editor to attach to 127.0.0.1:{self._port}\n"
                self._link.say({"say": "write", "text": text})
                debugpy.wait_for_client()
            debugpy.debug_this_thread()
            yield debugpy
        finally:
            self._link.go_on(held, "stop")
