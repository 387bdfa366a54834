"""A trace handed to Perfetto in a browser, by a page that this process serves until the browser has it.

In: a trace, its title, the address of Perfetto. Out: whether a browser took it. Perfetto takes a trace from
whoever has opened it, as a message between windows, so that nothing is uploaded. Only programs on this
machine can connect. Other pages in the browser can't guess the path, and a page whose name was made to lead
to this machine sends that name as Host, which is refused. The trace is sent once.
"""

from __future__ import annotations

import json
import os
import sys
import webbrowser
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from secrets import token_urlsafe
from socketserver import ThreadingTCPServer
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from rpcinspect.cli.output import say, tell
from rpcinspect.fields.phrases import counted
from rpcinspect.files.closing import Closing
from rpcinspect.files.temporary import Temporary

PERFETTO = "https://ui.perfetto.dev"
LOOPBACK = "127.0.0.1"
WAIT_S = 300.0
"""How long a browser may take to ask for the trace."""
IDLE_S = 30.0
"""How long a connection may say nothing; browsers open some that they do not use."""
PIECE_BYTES = 1 << 20
PAGE = Path(__file__).with_name("handover.html")


def hand_over(trace: Temporary, size: int, title: str, ui: str) -> bool:
    """Serves a trace to one browser, which is opened where that makes sense; returns whether it took it."""
    with _Handover(trace, size, title, ui) as handover:
        tell([handover.url], None)
        unopened = why_unopened(os.environ, sys.platform)
        if unopened is None:
            # some browsers are waited for until they are closed
            Thread(target=webbrowser.open, args=(handover.url,), daemon=True).start()
        else:
            say(f"{unopened}: open this page in a browser")
        if "SSH_CONNECTION" in os.environ:
            port = handover.port
            say(
                f"from the machine that you sit at: ssh -L {port}:{LOOPBACK}:{port} HOST; open the page there"
            )
        say(f"the page hands the trace to {ui}; waiting for {WAIT_S:.0f} s, Ctrl-C ends it")
        taken = handover.taken.wait(WAIT_S)
    if taken:
        say(f"the browser has the trace, {counted(size, 'byte')}")
    else:
        say(f"no browser took the trace in {WAIT_S:.0f} s")
    return taken


def why_unopened(environment: Mapping[str, str], platform: str) -> str | None:
    """Returns why no browser is opened here; None where one is. Who sets BROWSER has said what to open."""
    if environment.get("BROWSER"):
        return None
    if environment.get("SSH_CONNECTION"):
        return "this is an ssh session"
    shown = environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    if platform.startswith("linux") and not shown:
        return "there is no display"
    return None


def is_page(url: str) -> bool:
    """Returns whether this is an address that a browser can open as Perfetto."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
    except ValueError:
        return False


class _Handover(Closing, ThreadingTCPServer):
    """The server, on a port that was free, with its thread."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, trace: Temporary, size: int, title: str, ui: str) -> None:
        super().__init__((LOOPBACK, 0), _PageRequest)
        self.port = self.server_address[1]
        self.host = f"{LOOPBACK}:{self.port}"
        self.path = f"/{token_urlsafe()}/"
        self.url = f"http://{self.host}{self.path}"
        self.trace, self.size = trace, size
        self.page, self.policy = _page(title, ui)
        self.sending = Lock()
        self.sent = False
        self.taken = Event()
        """The whole trace was sent, and the connection closed."""
        self._thread = Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        if self.sent:
            self.taken.set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of browsers that close a connection early: they may come again."""

    def close(self) -> None:
        """Ends the server."""
        self.shutdown()
        self.join(self._thread)
        self.server_close()


def _page(title: str, ui: str) -> tuple[bytes, str]:
    """The page, and the policy that it comes with: it runs its own script and asks nobody but us."""
    nonce = token_urlsafe()
    about = json.dumps({"ui": ui, "title": title, "fileName": "trace.json"}).replace("<", "\\u003c")
    text = PAGE.read_text(encoding="utf-8").replace("{{nonce}}", nonce).replace("{{about}}", about)
    rules = (
        "default-src 'none'",
        f"script-src 'nonce-{nonce}'",
        f"style-src 'nonce-{nonce}'",
        "connect-src 'self'",
        "img-src data:",
        *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
    )
    return text.encode(), "; ".join(rules)


class _PageRequest(BaseHTTPRequestHandler):
    """Answers one request: for the page, or for the trace."""

    server: _Handover
    timeout = IDLE_S

    def do_GET(self) -> None:
        server = self.server
        if self.headers.get_all("Host") != [server.host]:
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        elif self.path == server.path:
            self._begin("text/html; charset=utf-8", len(server.page))
            self.wfile.write(server.page)
        elif self.path == f"{server.path}trace":
            self._send_trace()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send_trace(self) -> None:
        server = self.server
        if not server.sending.acquire(blocking=False):
            self.send_error(HTTPStatus.GONE)
            return
        try:
            if server.sent:
                self.send_error(HTTPStatus.GONE)
                return
            self._begin("application/json", server.size)
            for offset in range(0, server.size, PIECE_BYTES):
                self.wfile.write(server.trace.pread(offset, PIECE_BYTES))
            server.sent = True
        finally:
            server.sending.release()

    def _begin(self, kind: str, length: int) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.send_header("Content-Security-Policy", self.server.policy)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuses without a word of what was asked for."""
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def version_string(self) -> str:
        return "rpcinspect"

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the path is a secret, and what is asked for is others' text."""
