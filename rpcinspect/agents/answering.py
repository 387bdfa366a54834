"""A thread that works answers out, one after the other, while the server goes on listening.

In: work, which is asked now and then whether anybody still waits for it. Out: what it returns. Runs are no
matter for two threads at once; and a thread that works can't be ended, so nobody waits for it at the end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from msgspec import Struct

from rpcinspect.agents.printed import Abandoned


class _Asked(Struct):
    work: Callable[[Callable[[], bool]], str]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[str]
    abandoned: threading.Event


class AnsweringThread:
    """Works answers out one after the other, so that the server hears of cancelled questions meanwhile."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[_Asked] = SimpleQueue()
        threading.Thread(target=self._answer_all, name="answers", daemon=True).start()

    async def answer(self, work: Callable[[Callable[[], bool]], str]) -> str:
        """Returns what `work` returns, or raises what it raises. Who is cancelled here abandons it."""
        loop = asyncio.get_running_loop()
        asked = _Asked(work, loop, loop.create_future(), threading.Event())
        self._asked.put(asked)
        try:
            return await asked.answer
        finally:
            asked.abandoned.set()

    def _answer_all(self) -> None:
        while True:
            self._answer(self._asked.get())

    def _answer(self, asked: _Asked) -> None:
        text, error = "", None
        try:
            if asked.abandoned.is_set():
                return
            text = asked.work(asked.abandoned.is_set)
        except Abandoned:
            return
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is over
            asked.loop.call_soon_threadsafe(_tell, asked.answer, text, error)


def _tell(answer: asyncio.Future[str], text: str, error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(text)
    else:
        answer.set_exception(error)
