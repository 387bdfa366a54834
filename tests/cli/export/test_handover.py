"""`rpcinspect export perfetto --open`: who gets the page and the trace, and who gets nothing."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rpcinspect.cli.export import handover, perfetto
from rpcinspect.cli.export.handover import why_unopened
from tests import perfetto_ui
from tests.browser import Browser, Tab, browser
from tests.cli.runner import CHAIN, rpcinspect
from tests.forks import command
from tests.perfetto_ui import needs_perfetto

OPENING_S = 60.0
OPEN = ("export", "perfetto", "--open")


@pytest.fixture(autouse=True)
def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def opening(*arguments: object) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The command at work, and the address that it has printed."""
    with command(*OPEN, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process, process.stdout.readline().decode().strip()
        finally:
            process.kill()


def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    try:
        connection.request(method, parts.path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_page_and_trace_go_to_who_has_the_address_and_nothing_else_does(tmp_path: Path) -> None:
    capture = tmp_path / "<!--<script>\u202e.pcap"
    shutil.copy(CHAIN, capture)
    with opening(capture) as (process, url):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{43}/", url)
        port = urlsplit(url).port
        for host in ("rebound.example", f"rebound.example:{port}", f"localhost:{port}", "127.0.0.1", ""):
            for path in ("", "trace"):
                assert ask(url + path, Host=host)[0] == 421
        root = f"http://127.0.0.1:{port}/"
        for other in (root, f"{root}trace", f"{root}favicon.ico", f"{url}x", f"{url}../trace"):
            assert ask(other)[0] == 404
        for method in ("POST", "HEAD", "OPTIONS", "PUT"):
            assert ask(url, method)[0] == 501
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", port), 5):
            pass

        status, headers, page = ask(url)
        assert status == 200
        assert "Access-Control-Allow-Origin" not in headers
        assert headers["Referrer-Policy"] == "no-referrer"
        policy = headers["Content-Security-Policy"]
        (nonce,) = set(re.findall(rb'nonce="([\w-]+)"', page))
        assert f"script-src 'nonce-{nonce.decode()}'" in policy
        assert policy.startswith("default-src 'none'; ")
        assert b"<!--" not in page
        (about,) = re.findall(rb'<script type="application/json" id="about">(.*)</script>', page)
        told = json.loads(about)
        assert told["ui"] == "https://ui.perfetto.dev"
        assert told["title"] == "<!--<script>\\u202e.pcap"

        status, headers, trace = ask(f"{url}trace")
        assert (status, headers["Content-Type"]) == (200, "application/json")
        _, err = process.communicate(timeout=20)
        assert process.returncode == 0
        with pytest.raises(ConnectionRefusedError):
            ask(f"{url}trace")
    lines = err.decode().splitlines()
    assert lines[0] == "rpcinspect: there is no display: open this page in a browser"
    assert lines[-1] == f"rpcinspect: the browser has the trace, {len(trace):,} bytes"
    assert trace.decode() == rpcinspect("export", "perfetto", capture).out


def test_a_browser_that_is_named_gets_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in an ssh session, where editors set BROWSER to a program that opens it at the other end."""
    seen = tmp_path / "seen"
    code = "import sys, urllib.request as http; http.urlretrieve(sys.argv[2] + 'trace', sys.argv[1])"
    monkeypatch.setenv("BROWSER", shlex.join([sys.executable, "-c", code, str(seen), "%s"]))
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 50000 192.0.2.2 22")
    ran = rpcinspect(*OPEN, CHAIN, "-f", "type == BACKWARD_AUTOGRAD_REQ")
    assert ran.code == 0
    port = urlsplit(ran.out.strip()).port
    assert f"ssh -L {port}:127.0.0.1:{port} HOST" in ran.err
    assert json.loads(seen.read_bytes())["otherData"]["filter"] == "type == BACKWARD_AUTOGRAD_REQ"


def test_control_c_ends_it_quietly() -> None:
    with opening(CHAIN) as (process, url):
        assert ask(url)[0] == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out) == (130, b"")
        assert err.count(b"\n") == 2
        with pytest.raises(ConnectionRefusedError):
            ask(url)


def test_nobody_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "WAIT_S", 0.2)
    ran = rpcinspect(*OPEN, CHAIN)
    assert ran.code == 1
    assert ran.err.endswith("rpcinspect: no browser took the trace in 0 s\n")


def test_a_trace_that_is_too_large_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto, "MAX_OPENED", 10_000)
    ran = rpcinspect(*OPEN, CHAIN)
    assert (ran.code, ran.out) == (2, "")
    assert "more than 10,000 bytes, too many for a page: choose a part, such as -f" in ran.err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--open", "-o", "x.json"), "--open hands the trace to a browser: no -o with it"),
        (("--ui", "https://perfetto.example"), "--ui is for --open"),
        (
            ("--open", "--ui", "file:///etc/passwd"),
            "--ui: an address such as https://ui.perfetto.dev is needed",
        ),
        (("--open", "--ui", "javascript:alert(1)"), "--ui: an address such as"),
        (("--open", "--ui", "https://["), "--ui: an address such as"),
    ],
)
def test_options_that_make_no_sense(options: tuple[str, ...], told: str) -> None:
    ran = rpcinspect("export", "perfetto", CHAIN, *options)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err


@pytest.mark.parametrize(
    ("environment", "platform", "opens"),
    [
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({}, "linux", False),
        ({}, "darwin", True),
        ({"SSH_CONNECTION": "a 1 b 22", "DISPLAY": "localhost:10.0"}, "linux", False),
        ({"SSH_CONNECTION": "a 1 b 22"}, "darwin", False),
        ({"SSH_CONNECTION": "a 1 b 22", "BROWSER": "opens-it-at-the-other-end"}, "linux", True),
    ],
)
def test_where_a_browser_is_opened(environment: dict[str, str], platform: str, opens: bool) -> None:
    assert (why_unopened(environment, platform) is None) is opens


@pytest.mark.slow
@needs_perfetto
def test_perfetto_itself_takes_the_trace() -> None:
    """The page in a real browser, and the real Perfetto, served by this machine."""
    with (
        perfetto_ui.served() as ui,
        opening(CHAIN, "--ui", f"{ui}/") as (process, url),
        browser() as chromium,
    ):
        tab = chromium.tab()
        tab.call("Page.navigate", url=url)
        tab.wait("document.readyState === 'complete' && document.querySelector('#open') !== null")
        if not tab.run("document.querySelector('#open').hidden"):  # nobody has clicked, so no window opens
            tab.click("#open")
        opened = attached(chromium, ui)
        opened.wait("globalThis.app?.trace !== undefined", 120)
        ((slices,),) = perfetto_ui.query(opened, "select count(*) from slice where category = 'message'")
        assert slices == 24
        assert opened.run("app.trace.traceInfo.traceTitle").startswith(CHAIN.name)
        assert tab.run("document.querySelector('#state').textContent").startswith("Perfetto has the trace.")
        assert set(tab.requests) - {"data:,"} == {url, f"{url}trace"}
        process.communicate(timeout=20)
        assert process.returncode == 0


def attached(chromium: Browser, address: str) -> Tab:
    """The window that a page has opened."""
    end = time.monotonic() + OPENING_S
    while time.monotonic() < end:
        for target in chromium.call("Target.getTargets")["targetInfos"]:
            if target["type"] == "page" and target["url"].startswith(address):
                found = chromium.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
                return Tab(chromium, found["sessionId"])
        time.sleep(0.05)
    raise AssertionError("no window was opened")
