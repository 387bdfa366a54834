"""Make the pictures of docs/views.md again: the page in a browser, the other views on a terminal.

    python docs/pictures/make.py            all of them
    python docs/pictures/make.py page …     these

In: the bundled captures, and chromium for the page. Out: PNG and SVG files beside this one, each small enough
for a repository.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from dataclasses import dataclass
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser import Tab, browser  # noqa: E402  (it lies in the folder named above)

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
    """What a command prints on a terminal that is so wide."""

    command: str
    width: int = 130


PICTURES: dict[str, Screen | Terminal] = {
    "page": Screen("captures/ps_race.pcap.gz", "#m28", width=1200, height=640),
    "page-overview": Screen("captures/ps_race.pcap.gz", "#overview", width=1160, height=560),
    "page-graph": Screen("captures/bwd_boom.pcap.gz", "#c0", width=1160, height=520, dark=True),
    "contexts": Terminal("decode captures/ps_race.pcap.gz --contexts", 110),
    "graph": Terminal("decode captures/bwd_boom.pcap.gz --graph 0:0", 120),
    "latency": Terminal("decode captures/ps_race.pcap.gz --latency", 165),
    "profile": Terminal("decode captures/profiled_legacy.pcap --profile", 206),
    "rrefs": Terminal("decode captures/rref_relay.pcap.gz --rrefs", 100),
    "device-maps": Terminal("decode captures/devmap_cpu.pcap.gz --device-maps", 80),
    "closings": Terminal("decode captures/faults/dies.pcap.gz --closings", 120),
}


def main() -> int:
    wanted = sys.argv[1:] or [*PICTURES]
    screens = {name: one for name, one in PICTURES.items() if name in wanted and isinstance(one, Screen)}
    for name in wanted:
        one = PICTURES[name]
        if isinstance(one, Terminal):
            write(f"{name}.svg", terminal(one).encode())
    if screens:
        with browser() as chromium, tempfile.TemporaryDirectory() as folder:
            for name, one in screens.items():
                write(f"{name}.png", screen(chromium.tab(), one, Path(folder)))
    return 0


def write(name: str, data: bytes) -> None:
    if len(data) > MAX_BYTES:
        raise SystemExit(f"{name}: {len(data):,} bytes are too many")
    (HERE / name).write_bytes(data)
    print(f"{name}: {len(data):,} bytes")


def screen(tab: Tab, one: Screen, folder: Path) -> bytes:
    """The page as the browser shows it."""
    page = folder / "page.html"
    rpcinspect = [sys.executable, "-m", "rpcinspect", "decode"]
    subprocess.run([*rpcinspect, one.capture, "--format", "html", "-o", str(page)], check=True, cwd=ROOT)
    tab.size(one.width, one.height, dark=one.dark)
    tab.open(page, one.at)
    if one.script:
        tab.run(one.script)
    tab.run("new Promise((done) => setTimeout(done, 500))")  # until everything is drawn
    if tab.errors:
        raise SystemExit(f"{one}: {tab.errors}")
    return tab.picture()


def terminal(one: Terminal) -> str:
    """The output of a command with its colours, as SVG."""
    text = Text.from_ansi(printed(one).replace("\r\n", "\n").rstrip())
    console = Console(record=True, width=one.width, file=io.StringIO(), legacy_windows=False)
    console.print(Text(f"$ rpcinspect {one.command}", style="bold"))
    console.print(text, soft_wrap=True)
    return console.export_svg(title="rpcinspect", code_format=FORMAT, unique_id="rpcinspect")


def printed(one: Terminal) -> str:
    """What the command writes, if it writes to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, one.width, 0, 0))
    environment = {"TERM": "xterm-256color", "PYTHONUTF8": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "rpcinspect", *one.command.split()]
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
        raise SystemExit(f"{one.command} ended with {process.returncode}")
    return b"".join(pieces).decode()


if __name__ == "__main__":
    sys.exit(main())
