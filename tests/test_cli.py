"""The program as a process: terminals, pipes, signals, closed streams, completion. What it says is tested in
tests/cli, in this process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from rich.cells import cell_len

from rpcinspect import __version__
from tests.cli.runner import CAPTURES, CHAIN, ask, decode, rpcinspect
from tests.decoded import decode as messages_of
from tests.forks import LOCALE, python

PROGRAM = ("-m", "rpcinspect")
ROOT = str(CAPTURES.parent)
STYLE = re.compile(r"\x1b\[[\d;]*m")


def start(*arguments: object, **how: object) -> subprocess.Popen[bytes]:
    """A process with pipes to all three of its streams."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    return python(*PROGRAM, *arguments, **pipes)


def on_terminal(
    columns: int, *arguments: object, program: tuple[str, ...] = PROGRAM, **environment: str
) -> tuple[int, str]:
    """Exit code and output of a process on a terminal of its own."""
    locale = {name: value for name, value in os.environ.items() if name in LOCALE}
    settings = (
        {"TERM": "xterm-256color", "PATH": os.environ["PATH"], "PYTHONPATH": ROOT} | locale | environment
    )
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    out = bytearray()
    with python(*program, *arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=settings) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):  # Linux's way to say that the other side has closed
            while piece := os.read(terminal, 1 << 16):
                out += piece
    os.close(terminal)
    return process.returncode, out.decode().replace("\r\n", "\n")


def test_version() -> None:
    assert rpcinspect("--version").out == f"rpcinspect {__version__}\n"
    done = subprocess.run([sys.executable, *PROGRAM, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"rpcinspect {__version__}\n"


def test_help_names_every_option() -> None:
    out = rpcinspect("decode", "--help").out
    for option in ("--format", "--output", "--message", "--all", "--stream", "--no-hash", "--calls"):
        assert option in out
    for option in ("--roundtrip", "--check", "--strict", "-h"):
        assert option in out
    assert rpcinspect("decode", "-h").out == out
    bare = rpcinspect()
    assert (bare.code, bare.out + bare.err) == (2, rpcinspect("--help").out)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    environment = {**os.environ, "_RPCINSPECT_COMPLETE": f"source_{shell}"}
    program = Path(sys.executable).with_name("rpcinspect")
    if not program.exists():
        pytest.skip("the package is not installed beside this interpreter")
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
    assert "_RPCINSPECT_COMPLETE" in done.stdout


def test_completion_of_options() -> None:
    program = Path(sys.executable).with_name("rpcinspect")
    if not program.exists():
        pytest.skip("the package is not installed beside this interpreter")
    words = {
        "_RPCINSPECT_COMPLETE": "complete_bash",
        "COMP_WORDS": "rpcinspect decode --ro",
        "COMP_CWORD": "2",
    }
    done = subprocess.run([program], env={**os.environ, **words}, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["--roundtrip"]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_terminals_of_every_width(columns: int) -> None:
    code, out = on_terminal(columns, "decode", CAPTURES / "bwd_boom.pcap.gz")
    lines = STYLE.sub("", out).splitlines()
    assert code == 0
    assert max(map(len, lines)) <= columns
    assert "\x1b[31m" in out  # the errors
    assert "bold" not in out
    if columns == 200:
        assert lines[:17] == decode(CAPTURES / "bwd_boom.pcap.gz").out.splitlines()[:17]


def test_no_color_is_respected() -> None:
    _, out = on_terminal(80, "decode", CAPTURES / "bwd_boom.pcap.gz", NO_COLOR="1")
    assert "\x1b[31m" not in out
    assert "✗ Error on Node 1" in out


def test_head_ends_it_quietly() -> None:
    process = start("decode", CHAIN, "--format", "jsonl")
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate()
    assert err == b""
    assert process.returncode in (0, -signal.SIGPIPE)


def test_full_disk_on_standard_output_is_one_line() -> None:
    for options in ((), ("--format", "jsonl"), ("--stream",)):
        with open("/dev/full", "wb") as full:
            process = start("decode", CHAIN, *options, stdout=full)
            _, err = process.communicate()
        assert process.returncode == 2
        assert err == b"rpcinspect: standard output: can't be written: No space left on device\n"


def test_closed_streams_and_poor_encodings_cause_no_traceback() -> None:
    script = f'exec "$0" -m rpcinspect decode {CHAIN} >&-'
    done = subprocess.run(["sh", "-c", script, sys.executable], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    script = 'exec "$0" -m rpcinspect decode - <&-'
    done = subprocess.run(["sh", "-c", script, sys.executable], capture_output=True, check=False)
    assert done.returncode == 3
    assert done.stderr.count(b"\n") == 1
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    errors = CHAIN.parent / "bwd_boom.pcap.gz"
    for arguments, drawn in (
        (("decode", CHAIN), b"worker0 -> worker1"),
        (("graph", CHAIN), b"|----------->"),
        (("decode", errors, "--calls"), b"` bwd_boom.explode(tensor[3])"),
    ):
        out, err = start(*arguments, env=ascii_only).communicate()
        assert err == b""
        assert drawn in out
        assert b"\\u" not in out


# --- input that is still being made -------------------------------------------------------------------------


def begun() -> int:
    """Bytes of the capture up to the first call and the answer to it: message 8 is the next."""
    data = CHAIN.read_bytes()
    at = 24
    for _ in range(messages_of(CHAIN).messages[8]["location"]["packet"] - 1):
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    return at


BEGUN = begun()


def read_until(process: subprocess.Popen[bytes], wanted: bytes) -> bytes:
    """Lines up to one that has the text, while the input stays open."""
    assert process.stdout is not None
    out = b""
    for line in process.stdout:
        out += line
        if wanted in line:
            return out
    raise AssertionError(f"no {wanted!r} in {out!r}")


def test_lines_appear_as_messages_complete() -> None:
    process = start("decode", "-")
    assert process.stdin is not None
    data = CHAIN.read_bytes()
    process.stdin.write(data[:BEGUN])
    process.stdin.flush()
    read_until(process, b"FORWARD_AUTOGRAD_RESP")  # the rest of the capture is not written yet
    out, err = process.communicate(data[BEGUN:])
    assert (process.returncode, err) == (0, b"")
    assert b"CLEANUP_AUTOGRAD_CONTEXT_RESP" in out
    assert b"24 messages in standard input" in out


@pytest.mark.parametrize(
    "words",
    [
        ("decode",),
        ("decode", "--format", "jsonl", "--stream"),
        ("decode", "--format", "jsonl"),
        ("decode", "--format", "json"),
        ("export", "perfetto"),
    ],
)
def test_control_c_shows_what_was_read(words: tuple[str, ...]) -> None:
    process = start(*words, "-")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(CHAIN.read_bytes()[:BEGUN])
    process.stdin.flush()
    seen = b""
    if words not in [
        ("decode",),
        ("decode", "--format", "jsonl", "--stream"),
    ]:  # what is written at the end only
        wait_until_asleep(process)
    else:
        seen = read_until(process, b"FORWARD_AUTOGRAD_RESP")
    process.send_signal(signal.SIGINT)
    out = seen + process.stdout.read()  # standard input is still open
    _, err = process.communicate()
    assert process.returncode == 130
    assert err == b""
    assert b"basic_chain.scale" in out
    if words[-1] in ("json", "perfetto"):
        assert json.loads(out)
    else:
        assert (b'"kind":"summary"' if len(words) > 1 else b"8 messages in standard input") in out


def test_control_c_of_a_whole_pipeline_loses_nothing() -> None:
    """`tcpdump -w - | rpcinspect decode -`: the key reaches both, and tcpdump writes what it still has."""
    process = start("decode", "-")
    assert process.stdin is not None
    data = CHAIN.read_bytes()
    process.stdin.write(data[:BEGUN])
    process.stdin.flush()
    read_until(process, b"FORWARD_AUTOGRAD_RESP")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(data[BEGUN:])
    assert (process.returncode, err) == (130, b"")
    assert b"24 messages in standard input" in out


def test_control_c_before_any_byte() -> None:
    process = start("decode", "-")
    wait_until_asleep(process)
    process.send_signal(signal.SIGINT)
    process.wait()
    assert process.returncode == 130
    out, err = process.communicate()
    assert (out, err) == (b"", b"")


def wait_until_asleep(process: subprocess.Popen[bytes]) -> None:
    """Until the process has read its pipe empty and does nothing for a while; Linux tells in /proc."""
    state = Path(f"/proc/{process.pid}/stat")
    if not state.exists():
        pytest.skip("this system does not tell what a process does")
    asleep = 0
    for _ in range(1000):
        asleep = asleep + 1 if state.read_text().rpartition(")")[2].split()[0] == "S" else 0
        if asleep == 20:
            return
        time.sleep(0.02)
    raise AssertionError("still busy")


QUESTIONS = (
    ("graph", "--context", "0:0"),
    ("contexts",),
    ("latency",),
    ("profile",),
    ("rrefs",),
    ("devices",),
    ("disconnects",),
    ("findings",),
)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question[0])
def test_answers_fit_a_narrow_terminal(question: tuple[str, ...]) -> None:
    name = "profiled_legacy.pcap" if question == ("profile",) else "bwd_boom.pcap.gz"
    for options in ((), ("-f", "error or type == FORWARD_AUTOGRAD_REQ")):
        code, out = on_terminal(40, *question, CAPTURES / name, *options, NO_COLOR="1")
        assert code == 0
        assert not re.search(r"\x1b\[[\d;]*3[0-7]m", out)
        lines = STYLE.sub("", out).splitlines()
        assert lines
        assert max(map(cell_len, lines)) <= 40
        assert bool(options) == ("shown: " in out)


@pytest.mark.parametrize(
    "words", [*QUESTIONS, ("decode", "--format=json"), ("export", "perfetto")], ids=" ".join
)
def test_head_ends_every_view_quietly(words: tuple[str, ...]) -> None:
    process = start(*words, CAPTURES / "bwd_boom.pcap.gz")
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate()
    assert err == b""
    assert process.returncode in (0, -signal.SIGPIPE)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question[0])
def test_files_without_an_answer(question: tuple[str, ...], tmp_path: Path) -> None:
    empty, other, none = tmp_path / "empty.pcap", tmp_path / "other.pcap", tmp_path / "none.pcap"
    empty.touch()
    other.write_text("PK\x03\x04 and so on")
    none.write_bytes(CHAIN.read_bytes()[:24])
    for options in ((), ("--format", "jsonl"), ("-f", "error")) if question[0] == "graph" else ((),):
        for path, told in (
            (empty, "empty file"),
            (other, "not a pcap, pcapng or rpclog file"),
            (tmp_path / "missing.pcap", "No such file or directory"),
            (tmp_path, "is a directory"),
        ):
            ran = ask(question, path, *options)
            assert (ran.code, ran.out) == (3, "")
            assert told in ran.err
            assert ran.err.count("\n") == 1
        ran = ask(question, none, *options)
        assert ran.code == (2 if question[0] == "graph" else 0)
        told = ran.out if question[0] == "findings" else ran.err  # there it is one of them
        assert "No RPC messages: the capture holds no packets." in told
        assert (ran.out + ran.err).count("No RPC messages") == 1


@pytest.mark.parametrize(
    "words", [("decode", "--format=jsonl"), ("latency",), ("export", "perfetto")], ids=" ".join
)
@pytest.mark.parametrize("pressed", [False, True], ids=["to the end", "Ctrl-C"])
def test_a_bar_for_what_takes_long_leaves_nothing(words: tuple[str, ...], pressed: bool) -> None:
    """A capture that comes slowly; standard error is a terminal, standard output a pipe."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
    data, at, drawn = CHAIN.read_bytes(), 0, b""
    with start(*words, "-", stderr=theirs, env=environment) as process:
        os.close(theirs)
        assert process.stdin is not None
        assert process.stdout is not None
        while b"reading" not in drawn and at < len(data):
            process.stdin.write(data[at : at + 200])
            process.stdin.flush()
            at += 200
            if select.select([ours], [], [], 0.1)[0]:
                drawn += os.read(ours, 1 << 16)
        assert b"reading" in drawn
        if pressed:
            process.send_signal(signal.SIGINT)
        process.stdin.write(data[at:])
        process.stdin.close()
        out = process.stdout.read()
    assert process.returncode == (130 if pressed else 0)
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 1 << 16):
            drawn += piece
    os.close(ours)
    assert drawn.endswith(b"\x1b[2K")  # it was taken away, and nothing was said after it
    assert not re.search(rb"\x1b\[[\d;]*3\d[;m]", drawn)
    if not pressed:
        assert out == rpcinspect(*words, "-", stdin=data).out.encode()


EAGER = """
import sys
from rpcinspect.cli import progress
progress.BEFORE_S = progress.BETWEEN_S = 0.0
from rpcinspect.cli import main
main()
"""
"""The program, that shows its bars at once."""


@pytest.mark.parametrize(
    ("arguments", "bars"),
    [
        (("decode", CHAIN), ["reading"]),
        (("contexts", CHAIN, "-f", "ctx"), ["reading"]),
        (("decode", CHAIN, "--message", "6"), ["reading"]),
        (("decode", CHAIN, "--roundtrip"), ["reading"]),
        (("export", "html", CHAIN), ["reading", "writing"]),
        (("export", "perfetto", CHAIN), ["reading", "writing"]),
        (("diff", CHAIN, CHAIN), ["reading", "comparing"]),
        (("replay", "--plan", CHAIN), ["reading"]),
        (("decode", "--stream", CHAIN), []),
    ],
    ids=lambda value: " ".join(str(word).rpartition("/")[2] for word in value),
)
def test_every_command_has_its_bars_and_none_on_a_pipe(
    arguments: tuple[object, ...], bars: list[str]
) -> None:
    command = ("-c", EAGER, *arguments)
    with python(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as quiet:
        quiet_out, quiet_err = quiet.communicate()
    assert quiet_err == b""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
    with python(*command, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        drawn = b""
        assert process.stdout is not None
        out = process.stdout.read()
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 1 << 16):
            drawn += piece
    os.close(ours)
    assert process.returncode == quiet.returncode
    assert out == quiet_out
    assert list(dict.fromkeys(re.findall(r"reading|comparing|writing", drawn.decode()))) == bars
    assert drawn.endswith(b"\x1b[2K") == bool(bars)


def test_no_bar_where_the_terminal_shows_what_is_written() -> None:
    code, out = on_terminal(80, "export", "perfetto", CHAIN, program=("-c", EAGER))
    assert code == 0
    assert "reading" in out
    assert "writing" not in out
