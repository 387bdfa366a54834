"""What grows while it is browsed: a file, and an interface in a network namespace of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
import zstandard

from rpcinspect.browse.app import Browser
from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.browse.marks import Marks
from rpcinspect.capture import Followed
from rpcinspect.pipeline import Decoding, Options
from tests.browse.terminals import Terminal
from tests.browsing import until
from tests.cli.runner import CAPTURES, CHAIN

HEADER = CHAIN.read_bytes()[:24]
"""Of a pcap."""
PLAY = '"$1" -m tests.capture.replay "$2" -- sleep 60 >/dev/null 2>&1 &'
UP = f'ip link set lo up && {{ {PLAY} shift 2; exec "$@"; }}'
"""The conversation is played once somebody captures."""


@pytest.mark.rooted
def test_messages_come_while_they_are_captured_and_stay() -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("needs root, unshare and ip")
    if subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no network namespaces here")
    inside = ("unshare", "--net", "sh", "-c", UP, "sh", sys.executable, str(CHAIN))
    with Terminal("browse", "--live", "lo", through=inside) as terminal:
        terminal.until("24 messages  ·  live  ·")
        terminal.until("basic_chain.scale(")
        assert "gradients of context" not in terminal.text
        terminal.press("k")
        terminal.until("G follows it")
        terminal.press("\x03")
        terminal.until("the capture ends here")
        terminal.until("gradients of context")  # what belongs together is known now
        terminal.press("q")
        assert terminal.ended() == 0


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[tuple[GrowingRun, Callable[[bytes], None], threading.Event]]:
    """A capture that grows by what is appended, until the event is set."""
    path, over = tmp_path / "grows.pcap", threading.Event()
    path.write_bytes(HEADER)
    reading = GrowingRun(
        Decoding([Followed(str(path), over.is_set)], Options(by_completion=True)), follows=True
    )

    def append(data: bytes) -> None:
        with path.open("ab") as file:
            file.write(data)

    yield reading, append, over
    over.set()
    reading.close()


def wait_for(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


def packets_of(data: bytes) -> Iterator[bytes]:
    """The packets of a pcap, each with its header."""
    at = len(HEADER)
    while at < len(data):
        size = 16 + int.from_bytes(data[at + 8 : at + 12], "little")
        yield data[at : at + size]
        at += size


def test_names_are_shown_once_they_are_known(
    growing: tuple[GrowingRun, Callable[[bytes], None], threading.Event],
) -> None:
    reading, append, over = growing
    reading.start()
    packets = packets_of(zstandard.decompress((CAPTURES / "attacks" / "a14_prod.pcap.zst").read_bytes()))
    for packet in islice(packets, 30):
        append(packet)
    for packet in packets:
        append(packet)
        if wait_for(lambda: reading.count > 2, 0.1):
            break
    assert reading.ends(2) == ("w0", "10.0.0.2:5000")
    append(b"".join(packets))
    assert wait_for(lambda: reading.ends(2) == ("w0", "w1"))
    assert reading.run is None, "it is known before the end"
    over.set()
    reading.wait(20)
    assert reading.state == "done"


def test_the_list_follows_the_end_until_one_leaves_it(
    growing: tuple[GrowingRun, Callable[[bytes], None], threading.Event],
) -> None:
    reading, append, over = growing
    packets = [*packets_of(CHAIN.read_bytes())]

    async def run() -> None:
        app = Browser(reading, Marks())
        async with app.run_test(size=(100, 30)) as pilot:
            view = app.lines_view
            await pilot.press("2", "a")
            append(b"".join(packets[:400]))
            await until(pilot, lambda: len(view.lines) > 5)
            before = len(view.lines)
            assert (view.following, view.cursor) == (True, before - 1)
            await pilot.press("up")
            append(b"".join(packets[400:]))
            await until(pilot, lambda: reading.count == 24 and len(view.lines) == 24)
            assert (view.following, view.cursor) == (False, before - 2)
            await pilot.press("G")
            assert (view.following, view.cursor) == (True, 23)
            kept = app.row
            over.set()
            await until(pilot, lambda: reading.run is not None and app.settled)
            assert app.row == kept
            assert len(view.lines) == 24

    asyncio.run(run())
