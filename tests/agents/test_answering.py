"""The thread that answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from rpcinspect.agents.answering import AnsweringThread
from rpcinspect.agents.printed import Abandoned


def test_answers_come_one_after_the_other_and_errors_too() -> None:
    async def ask() -> list[object]:
        thread = AnsweringThread()
        name = "worked out in "
        asked = [
            thread.answer(lambda _, n=n: f"{name}{threading.current_thread().name} {n}") for n in range(3)
        ]
        failing = thread.answer(lambda _: str(1 // 0))
        return await asyncio.gather(*asked, failing, return_exceptions=True)

    *answers, error = asyncio.run(ask())
    assert answers == [f"worked out in answers {n}" for n in range(3)]
    assert isinstance(error, ZeroDivisionError)


def test_what_nobody_waits_for_ends_and_the_next_is_answered() -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(abandoned: Callable[[], bool]) -> str:
        begun.set()
        try:
            while not abandoned():
                pass
            raise Abandoned
        finally:
            ended.set()

    async def ask() -> str:
        thread = AnsweringThread()
        waiting = asyncio.ensure_future(thread.answer(endless))
        never = asyncio.ensure_future(thread.answer(lambda _: pytest.fail("nobody asked")))
        await asyncio.to_thread(begun.wait, 30)
        never.cancel()
        waiting.cancel()
        await asyncio.gather(waiting, never, return_exceptions=True)
        return await thread.answer(lambda _: "next")

    assert asyncio.run(ask()) == "next"
    assert ended.is_set()
