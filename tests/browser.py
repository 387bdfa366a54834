"""A real browser for the tests of pages: Debian's chromium, driven over a pair of pipes.

The DevTools protocol needs no library for what is asked for here: JSON objects, each ended by a zero byte.
The browser ends when its pipe does, so that none is left behind, however a test ends.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
SECONDS = 40
"""For one answer of the browser; a machine that does much else needs some."""
FLAGS = (
    "--headless",
    "--no-sandbox",  # tests may run as root, and open nothing but pages that they made
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--remote-debugging-pipe",
)
START = """
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(argument), fcntl.F_DUPFD, 10) for argument in sys.argv[1:3])
os.dup2(reads, 3)
os.dup2(writes, 4)
os.closerange(5, 64)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser reads from descriptor 3 and writes to 4, whichever numbers the pipes had."""


Note: TypeAlias = Callable[[dict[str, Any]], None]


class BrowserError(Exception):
    """The browser said no, or nothing in time."""


class Tab:
    """A page that is open, and everything that it complained about or asked the network for."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.errors: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, self.note, **params)

    def note(self, event: dict[str, Any]) -> None:
        """Keeps what must not be."""
        params = event.get("params", {})
        if event["method"] == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event["method"] == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in (
            "error",
            "warning",
            "assert",
        ):
            self.errors.append(str(params["args"]))
        elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(str(params["entry"]))

    def size(self, width: int, height: int, *, dark: bool = False, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=scale, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path: Path, fragment: str = "") -> float:
        """Opens a page; how long it took until its script said that it is ready."""
        before = time.monotonic()
        self.call("Page.navigate", url=f"file://{path}{fragment}")
        self.wait("document.body?.dataset.ready === 'yes' || document.getElementById('broken')?.textContent")
        return time.monotonic() - before

    def forget(self) -> None:
        """What the page before has complained about and asked for."""
        self.errors, self.requests = [], []

    def run(self, script: str) -> Any:
        """The value of an expression; promises are waited for."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise BrowserError(f"{script}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def wait(self, script: str, seconds: float = SECONDS) -> Any:
        """Until the expression is true."""
        end = time.monotonic() + seconds
        while True:
            value = self.run(script)
            if value:
                return value
            if time.monotonic() > end:
                raise BrowserError(f"{script} stayed {value!r} for {seconds} s; errors: {self.errors}")
            time.sleep(0.02)

    def click(self, selector: str, n: int = 0) -> None:
        """A click in the middle of the n-th element that fits, as a mouse would do it."""
        place = f"document.querySelectorAll({json.dumps(selector)})[{n}]"
        x, y = self.run(
            f"(() => {{ const e = {place}; e.scrollIntoView({{ block: 'nearest' }});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        self.click_at(x, y)

    def click_at(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def wheel(self, x: float, y: float, by: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=by)

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown" else {}))

    def type(self, selector: str, text: str) -> None:
        """Replaces what stands in a field."""
        field = f"document.querySelector({json.dumps(selector)})"
        self.run(f"(() => {{ {field}.focus(); {field}.select(); }})()")
        if text:
            self.call("Input.insertText", text=text)
        else:
            self.run(f"{field}.value = ''; {field}.dispatchEvent(new Event('input'))")

    def picture(self) -> bytes:
        """What can be seen, as PNG."""
        return b64decode(self.call("Page.captureScreenshot", format="png")["data"])


class Browser:
    """The process and its pipes; see `browser`."""

    def __init__(self, profile: str) -> None:
        assert CHROMIUM is not None
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        for descriptor in (theirs_in, theirs_out):
            os.set_inheritable(descriptor, True)
        command = [sys.executable, "-c", START, str(theirs_in), str(theirs_out), CHROMIUM, *FLAGS]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = ours_in, ours_out
        self._buffer = b""
        self._number = 0

    def tab(self, width: int = 1280, height: int = 800) -> Tab:
        """A new page."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        tab.size(width, height)
        return tab

    def call(
        self, method: str, session: str | None = None, note: Note | None = None, **params: Any
    ) -> dict[str, Any]:
        """Sends a command and waits for its result; events on the way go to `note`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        end = time.monotonic() + SECONDS
        while True:
            answer = self._read(end, method)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return answer["result"]  # type: ignore[no-any-return]
            if "method" in answer and note is not None and answer.get("sessionId") == session:
                note(answer)

    def _read(self, end: float, method: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0, end - time.monotonic()))
            piece = os.read(self._in, 1 << 20) if ready else b""
            if not piece:
                raise BrowserError(f"no answer to {method}")
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Ends the browser and waits for it; what it started is in its process group."""
        with suppress(BrowserError, OSError):
            self.call("Browser.close")
        os.close(self._in)
        os.close(self._out)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own, both gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="rpcinspect-browser-", ignore_cleanup_errors=True) as profile:
        one = Browser(profile)
        try:
            yield one
        finally:
            one.close()
