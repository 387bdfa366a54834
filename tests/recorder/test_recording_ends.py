"""How recordings end: with the command, by signals, by a full disk, by force. No torch, to be quick."""

from __future__ import annotations

import os
import pty
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import decoded
from tests.recorder.recording import (
    Ran,
    children,
    environment,
    finish,
    need_own_network,
    record,
    start,
    wait_for,
)

TALK = (sys.executable, str(Path(__file__).with_name("talk.py")))
WIRE = ("-o", "x.pcap", "--private-net", "--")
NOTHING = "WARNING: no process called init_rpc"
"""How the summary ends of a command that is no job of RPC."""
COUNT = """
import signal, sys, time
caught = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: caught.append(number))
print("ready", flush=True)
end = time.monotonic() + 60
while not caught and time.monotonic() < end:
    time.sleep(0.02)
time.sleep(0.5)
print(*(signal.Signals(number).name for number in caught), flush=True)
sys.exit(9)
"""


@pytest.fixture(autouse=True)
def _own_network() -> None:
    need_own_network()


def is_whole(path: Path) -> bool:
    """Whether a capture ends with a whole record."""
    return decoded.decode(path, hashes=False).problems() == []


def test_streams_and_exit_code_are_the_commands(tmp_path: Path) -> None:
    done = record(*WIRE, "sh", "-c", "cat; echo oops >&2; exit 5", folder=tmp_path, text="in\n")
    assert (done.code, done.out) == (5, "in\n")
    assert [line for line in done.err.splitlines() if not line.startswith("rpcinspect: ")] == ["oops"]
    assert done.told[0] == "recording via wire into x.pcap"
    assert done.told[-1].startswith(NOTHING)


def test_options_behind_the_command_are_the_commands(tmp_path: Path) -> None:
    done = record("-o", "x.pcap", "--private-net", "echo", "-o", "--help", folder=tmp_path)
    assert (done.code, done.out) == (0, "-o --help\n")


@pytest.mark.parametrize(("command", "code"), [(("no-such-command",), 127), (("/",), 126)])
def test_a_command_that_can_not_run(tmp_path: Path, command: tuple[str, ...], code: int) -> None:
    done = record(*WIRE, *command, folder=tmp_path)
    assert (done.code, done.out) == (code, "")
    assert len(done.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_ends_the_command(tmp_path: Path) -> None:
    done = record(*WIRE, "sh", "-c", "kill -SEGV $$", folder=tmp_path)
    assert done.code == 128 + signal.SIGSEGV
    assert done.told[-1].startswith(NOTHING)


def test_who_ignores_the_ends_of_children_is_served_too(tmp_path: Path) -> None:
    before = ("sh", "-c", "trap '' CHLD; exec \"$@\"", "sh")
    done = record(*WIRE, "sh", "-c", "exit 5", folder=tmp_path, before=before)
    assert (done.code, done.out) == (5, ""), done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on(tmp_path: Path, number: signal.Signals) -> None:
    process = start(*WIRE, sys.executable, "-c", COUNT, folder=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    done = finish(process)
    assert (done.code, done.out) == (9, f"{number.name}\n")
    assert done.told[-1].startswith(NOTHING)


def test_ctrl_c_reaches_the_command_once(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        arguments = [sys.executable, "-m", "rpcinspect", "record", *WIRE, sys.executable, "-c", COUNT]
        os.execve(sys.executable, arguments, environment())
    shown = b""
    try:
        while b"ready" not in shown:
            shown += os.read(terminal, 1000)
        os.write(terminal, b"\x03")
        while piece := read_terminal(terminal):
            shown += piece
    finally:
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 9, shown
    assert shown.count(b"SIGINT") == 1, shown
    assert NOTHING.encode() in shown


def read_terminal(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1000)
    except OSError:  # nobody has it open any more
        return b""


def test_a_background_process_does_not_hold_us_up(tmp_path: Path) -> None:
    begin = time.monotonic()
    done = record(*WIRE, "sh", "-c", "sleep 40 >/dev/null 2>&1 </dev/null & echo $!", folder=tmp_path)
    try:
        assert done.code == 0
        assert time.monotonic() - begin < 30
    finally:
        os.kill(int(done.out), signal.SIGKILL)


def test_the_recorder_killed(tmp_path: Path) -> None:
    """The job goes on, the sniffer writes what there was, and ends."""
    stop, ready = tmp_path / "stop", tmp_path / "ready"
    own = environment(TMPDIR=str(tmp_path))  # nobody is there to clear the notes away
    process = start(*WIRE, *TALK, 100_000, "ready", ready, "until", stop, folder=tmp_path, env=own)
    wait_for(ready.exists)
    family = children(process.pid)
    assert len(family) == 2
    os.kill(process.pid, signal.SIGKILL)
    job = family[0]
    wait_for(lambda: not alive(family[1]))
    assert alive(job)
    stop.touch()
    done = finish(process)
    assert done.code == -signal.SIGKILL
    assert "sent" in done.out
    assert (tmp_path / "x.pcap").stat().st_size > 100_000
    assert is_whole(tmp_path / "x.pcap")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_sniffer_killed(tmp_path: Path) -> None:
    """The job goes on; what was written before is there, and it is told."""
    stop, ready = tmp_path / "stop", tmp_path / "ready"
    process = start(*WIRE, *TALK, 100_000, "ready", ready, "until", stop, folder=tmp_path)
    wait_for(ready.exists)
    wait_for(lambda: (tmp_path / "x.pcap").stat().st_size > 100_000)
    sniffer = children(process.pid)[1]
    os.kill(sniffer, signal.SIGKILL)
    wait_for(lambda: not alive(sniffer))
    stop.touch()
    done = finish(process)
    assert done.code == 0
    assert "WARNING: the recording ended before the command: its process was killed" in done.told
    problems = decoded.decode(tmp_path / "x.pcap", hashes=False).problems()
    assert len(problems) <= 1, problems


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    process = subprocess.Popen(
        [sys.executable, "-m", "rpcinspect", "record", *WIRE, *TALK, "1000000"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
        start_new_session=True,
    )
    check_full(finish(process), tmp_path / "x.pcap", "File too large")


def check_full(done: Ran, path: Path, why: str) -> None:
    assert (done.code, done.out) == (0, "sent 1000000\n")
    assert f"{path.name}: {why}: the recording ends here, the job goes on" in done.told
    assert f"WARNING: the recording ended before the command: {why}" in done.told
    assert 0 < path.stat().st_size <= 300_000
    assert is_whole(path)


@pytest.mark.rooted
def test_a_full_disk(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("not root")
    disk = tmp_path / "disk"
    disk.mkdir()
    script = (
        'mount -t tmpfs -o size=256k none "$1" && cd "$1" && shift && "$@"; code=$?; cp x.pcap ..; exit $code'
    )
    before = ("unshare", "--mount", "sh", "-c", script, "sh", str(disk))
    done = record(*WIRE, *TALK, 1_000_000, folder=tmp_path, before=before)
    check_full(done, tmp_path / "x.pcap", "No space left on device")


MISTAKES = [
    ((), "which command"),
    (("-o", "-", "--", "true"), "standard output is the command's"),
    (("-o", "x.pcap.gz", "--", "true"), "not compressed"),
    (("-o", "x.txt", "--", "true"), "call it x.rpclog for messages, x.pcap for packets"),
    (("-o", "x.rpclog", "--via", "wire", "--", "true"), "--via wire writes a .pcap"),
    (("--via", "agent", "--interface", "lo", "--", "true"), "--interface is for --via wire"),
    (("--via", "agent", "--private-net", "--", "true"), "--private-net is for --via wire"),
    (("--redact-seed", "x", "--", "true"), "--redact-seed is for --redact"),
    (("-o", "none/x.pcap", "--redact", "--private-net", "--", "true"), "can't be written"),
    (("--interface", "no-such", "--", "true"), "no such interface; this machine has"),
    (("-o", "none/x.pcap", "--private-net", "--", "true"), "can't be written"),
]


@pytest.mark.parametrize(
    ("arguments", "told"), MISTAKES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_mistakes(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    done = record(*arguments, folder=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert told in done.err
    assert list(tmp_path.iterdir()) == []
