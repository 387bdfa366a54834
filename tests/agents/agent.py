"""An agent: the client of the mcp package, which starts the real server and asks it."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tests.places import ROOT

if TYPE_CHECKING:  # a second of each process that collects tests
    from mcp import Client, StdioServerParameters

FRAME = re.compile(r"^(.*)\nbegin ([0-9a-f]{16})\n(?:(.*)\n)?end \2\n(.*)$", re.DOTALL)


class Answer(Struct):
    """What the agent gets."""

    text: str
    is_error: bool

    @property
    def lines(self) -> list[str]:
        """The lines of the frame, less what marks them."""
        found = FRAME.match(self.text)
        assert found is not None, self.text
        lines = (found[3] or "").split("\n")
        assert all(line.startswith("| ") for line in lines), self.text
        return [line[2:] for line in lines]

    @property
    def below(self) -> str:
        """The line below the frame."""
        found = FRAME.match(self.text)
        assert found is not None, self.text
        return found[4]


class Agent:
    """An agent; its server is another process."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self.client = client
        self._loop = loop

    def wait(self, what: Coroutine[Any, Any, Any]) -> Any:
        """What comes of it."""
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(60)

    def ask(self, tool: str, **arguments: Any) -> Answer:
        """The answer of a tool."""
        found = self.wait(self.client.call_tool(tool, arguments))
        (block,) = found.content
        assert found.structured_content is None
        return Answer(block.text, found.is_error)


def command(*arguments: object) -> StdioServerParameters:
    """The server of these captures."""
    from mcp import StdioServerParameters

    own = {name: os.environ[name] for name in ("LC_ALL", "LANG") if name in os.environ}
    env = {"PYTHONPATH": str(ROOT), "RPCINSPECT_DEBUG": "1", "PYTHONWARNINGS": "error", **own}
    words = ["-m", "rpcinspect", "mcp", *map(str, arguments)]
    return StdioServerParameters(command=sys.executable, args=words, env=env, cwd=ROOT)


@contextmanager
def agent(*arguments: object) -> Iterator[Agent]:
    """An agent that may ask about these captures."""
    from mcp import Client

    loop, started = asyncio.new_event_loop(), threading.Event()
    ends: asyncio.Event
    client = Client(command(*arguments))
    failed: Sequence[BaseException] = ()

    async def live() -> None:
        nonlocal ends, failed
        ends = asyncio.Event()
        try:
            async with client:
                started.set()
                await ends.wait()
        except BaseException as error:
            failed = (error,)
            raise
        finally:
            started.set()

    thread = threading.Thread(target=lambda: loop.run_until_complete(live()))
    thread.start()
    assert started.wait(60)
    assert not failed
    try:
        yield Agent(client, loop)
    finally:
        loop.call_soon_threadsafe(ends.set)
        thread.join(60)
        loop.close()
