"""Another program that is run for its output: started without a shell, ended by its own handle.

In: a list of arguments. Out: a descriptor of its standard output and, once it has ended, what it complained
of. Its standard error goes to a deleted temporary file, so that it never waits for us. It gets a session of
its own: Ctrl-C reaches only us, and we end it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

from rpcinspect.errors import CaptureError
from rpcinspect.files.temporary import Temporary

_PATIENCE_S = 2.0
_ERROR_BYTES = 1 << 16


class ChildTool:
    """A running program; `close` it."""

    def __init__(self, arguments: Sequence[str], descriptors: Sequence[int] = ()) -> None:
        """Starts the program, without standard input; the process inherits `descriptors`."""
        self.name = os.path.basename(arguments[0])
        self._errors = Temporary()
        try:
            self._process = subprocess.Popen(
                list(arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                pass_fds=list(descriptors),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._errors.close()
            raise CaptureError(
                f"{self.name} can't be run: {getattr(error, 'strerror', None) or error}"
            ) from error

    def read(self, size: int) -> bytes:
        """Returns at most `size` bytes of standard output, waits for the first; empty at the end."""
        stdout = self._process.stdout
        return b"" if stdout is None or stdout.closed else os.read(stdout.fileno(), size)

    def output(self) -> int:
        """Returns a duplicate of the descriptor of standard output; the caller closes it."""
        assert self._process.stdout is not None
        return os.dup(self._process.stdout.fileno())

    def result(self) -> int:
        """Returns the exit code, negative for a signal. Call this after the end of the output."""
        try:
            return self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._stop()
            return self._process.returncode

    def complaint(self) -> list[str]:
        """Returns the lines of standard error, empty lines left out."""
        if self._errors.closed:
            return []
        self._errors.seek(0)
        text = self._errors.read(_ERROR_BYTES).decode("utf-8", "backslashreplace")
        return [line.strip() for line in text.splitlines() if line.strip()]

    def interrupt(self) -> None:
        """Sends SIGINT, as Ctrl-C does. Signal handlers may call this."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Ends the process, after some seconds by force, and waits for it; closing twice is fine."""
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._stop()
        self._errors.close()

    def _stop(self) -> None:
        process = self._process
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
