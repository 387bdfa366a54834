"""A file that another process still writes, read as far as it has come.

In: a path, and what says whether its writer has ended. Out: a `Source` that waits at the end of the file
until there is more, or the writer has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rpcinspect.capture.source import GRACE_S, Source, open_file

LOOK_S = 0.05


class FollowedSource(Source):
    """The file; nothing of it is copied."""

    complete = False

    def __init__(self, path: str, is_over: Callable[[], bool]) -> None:
        super().__init__(path, open_file(path))
        self._is_over = is_over
        self._deadline: float | None = None

    def window(self, offset: int, minimum: int) -> bytes:
        """Waits for as many bytes as are needed at least; what comes later is in another window."""
        while True:
            over = self._ended()  # asked first: what was written before is all there then
            if over or self.size() >= offset + max(1, minimum):
                return super().window(offset, minimum)
            time.sleep(LOOK_S)

    def _ended(self) -> bool:
        return self._is_over() or (self._deadline is not None and time.monotonic() >= self._deadline)

    def end(self) -> bool:
        if self._deadline is None:
            self._deadline = time.monotonic() + GRACE_S
        return True
