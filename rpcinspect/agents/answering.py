"""A thread that works answers out, one after the other, while the server goes on listening.

In: work, which is asked now and then whether anybody still waits for it. Out: what it returns. Runs are no
matter for two threads at once; and a thread that works can't be ended, so nobody waits for it at the end, as
an executor of Python would.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue


class AnsweringThread:
    """Works answers out one after the other, so that the server hears of cancelled questions meanwhile."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Future[str], Callable[[], str]]] = SimpleQueue()
        threading.Thread(target=self._answer_all, name="answers", daemon=True).start()

    async def answer(self, work: Callable[[Callable[[], bool]], str]) -> str:
        """Returns what `work` returns, or raises what it raises. Who is cancelled here abandons it."""
        answer: Future[str] = Future()
        abandoned = threading.Event()
        self._asked.put((answer, partial(work, abandoned.is_set)))
        try:
            return await asyncio.wrap_future(answer)
        finally:
            abandoned.set()

    def _answer_all(self) -> None:
        while True:
            answer, work = self._asked.get()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(work())
            except BaseException as error:  # `Abandoned`, too
                answer.set_exception(error)
