"""Files that commands write: whole or not at all, ours alone where they hold what was captured, and in place
where they are no files. How it is done is in tests/files/.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.cli.runner import CAPTURES, CHAIN, decode, rpcinspect
from tests.forks import command
from tests.thorough import some

OTHER = CAPTURES / "profiled_legacy.pcap"

WAYS: dict[str, tuple[object, ...]] = {
    "table": ("decode", CHAIN, "-o"),
    "jsonl": ("decode", CHAIN, "--format", "jsonl", "-o"),
    "json": ("decode", CHAIN, "--format", "json", "-o"),
    "html": ("export", "html", CHAIN, "-o"),
    "perfetto": ("export", "perfetto", CHAIN, "-o"),
    "otlp": ("export", "otlp", CHAIN, "-o"),
    "latency": ("latency", CHAIN, "-o"),
    "fields": ("decode", "--fields", "-o"),
    "rpclog": ("export", "rpclog", CHAIN, "-o"),
    "pcap": ("decode", CHAIN, "-w"),
    "redacted": ("decode", CHAIN, "--redact", "-w"),
    "diff": ("diff", CHAIN, OTHER, "-o"),
    "diff-html": ("diff", CHAIN, OTHER, "--format", "html", "-o"),
    "shrink": ("diff", CHAIN, OTHER, "--shrink"),
    "plan": ("replay", CHAIN, "--plan", "-o"),
}
FOLDERS: dict[str, tuple[object, ...]] = {
    "tensors": ("export", "safetensors", CHAIN, "-o"),
    "parquet": ("export", "parquet", CHAIN, "-o"),
    "export": ("reproduce", CHAIN, "--trust-capture", "-o"),
}
TRAFFIC = {"rpclog", "pcap", "redacted", "shrink", "tensors", "export"}
"""What holds payloads, pickles or tensors as they were captured, or could."""


def process(arguments: Sequence[object], **options: object) -> subprocess.Popen[bytes]:
    return command(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def plain_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize("way", [*WAYS, *FOLDERS])
def test_who_may_read_them(way: str, tmp_path: Path, plain_umask: None) -> None:
    path = tmp_path / "out"
    assert rpcinspect(*(WAYS | FOLDERS)[way], path).code in (0, 1)
    written = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert written
    assert not [each.name for each in tmp_path.rglob(".*")]
    assert {stat.S_IMODE(each.stat().st_mode) for each in written} == {0o600 if way in TRAFFIC else 0o644}


@pytest.mark.parametrize("way", [*WAYS, *FOLDERS])
def test_a_full_disk_leaves_what_was_there(way: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    if way in FOLDERS:
        assert rpcinspect(*FOLDERS[way], path).code == 0
    else:
        path.write_bytes(b"what was there")
    before = content(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
    try:
        ran = rpcinspect(*(WAYS | FOLDERS)[way], path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ran.code == 2, ran.err
    assert "File too large" in ran.err.splitlines()[-1]
    assert content(tmp_path) == before


@pytest.mark.parametrize("way", WAYS)
def test_a_link_of_ours_is_followed(way: str, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "latest").symlink_to("runs/7")
    assert rpcinspect(*WAYS[way], tmp_path / "latest").code in (0, 1)
    assert (tmp_path / "latest").is_symlink()
    assert (tmp_path / "runs" / "7").stat().st_size > 0
    assert os.listdir(tmp_path / "runs") == ["7"]


@pytest.mark.rooted
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("way", WAYS)
def test_a_link_that_somebody_else_has_planted_is_not(way: str, tmp_path: Path) -> None:
    common, precious = tmp_path / "common", tmp_path / "precious"
    precious.write_bytes(b"mine")
    common.mkdir()
    (common / "out").symlink_to(precious)
    os.chown(common / "out", 65_534, -1, follow_symlinks=False)
    common.chmod(0o1777)
    ran = rpcinspect(*WAYS[way], common / "out")
    assert ran.code == 2
    assert "it belongs to user 65534, in a folder that others may write to" in ran.err
    assert precious.read_bytes() == b"mine"


IN_PLACE = [
    (way, where)
    for where in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", ">(cat)", "fifo")
    for way in ("jsonl", "rpclog", "pcap", "html")
]


@pytest.mark.parametrize(("way", "where"), some(IN_PLACE, 3))
def test_what_is_no_file_is_written_to_in_place(way: str, where: str, tmp_path: Path) -> None:
    """Quick, a third of the pairs: each way and each place is in one at least."""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc")
    assert rpcinspect(*WAYS[way], tmp_path / "wanted").code == 0
    words = " ".join(map(str, WAYS[way]))
    command = f"{sys.executable} -m rpcinspect {words} {where}"
    if where == "fifo":
        command = f"mkfifo {where}; cat {where} & {command} >/dev/null; wait"
    elif where == ">(cat)":
        command += " >&2; sleep 0.5"
    ran = subprocess.run(
        [shutil.which("bash") or "sh", "-c", command],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(CAPTURES.parent)},
    )
    wanted = (tmp_path / "wanted").read_bytes()
    assert ran.stdout.startswith(wanted)
    told = ran.stdout[len(wanted) :]  # -w says what it wrote, on standard output too
    assert told.endswith(f"in {where}\n".encode()) if way == "pcap" and where.startswith("/") else not told
    assert sorted(os.listdir(tmp_path)) == sorted({"wanted", *(["fifo"] if where == "fifo" else [])})


def test_standard_output_that_is_a_file_is_appended_to(tmp_path: Path) -> None:
    """As a shell's `>>` wants it; another file in its place would leave this one without an end."""
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    with log.open("ab") as file:
        words = [
            sys.executable,
            "-m",
            "rpcinspect",
            "decode",
            str(CHAIN),
            "--format",
            "jsonl",
            "-o",
            "/dev/stdout",
        ]
        subprocess.run(words, stdout=file, check=True, timeout=120)
    lines = log.read_bytes().splitlines()
    assert lines[0] == b"before"
    assert json.loads(lines[-1])["kind"] == "summary"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("way", WAYS)
def test_a_device_that_takes_nothing_is_one_line(way: str) -> None:
    ran = rpcinspect(*WAYS[way], "/dev/full")
    assert ran.code == 2
    assert ran.err.splitlines()[-1] == "rpcinspect: /dev/full: can't be written: No space left on device"
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def fed(running: subprocess.Popen[bytes], data: bytes) -> None:
    assert running.stdin is not None
    running.stdin.write(data)
    running.stdin.flush()


def wait_for(condition: object, what: str) -> None:
    end = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, what
        time.sleep(0.05)


def test_a_kill_in_the_middle_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"what was there")
    with process(("decode", "-", "--format", "jsonl", "-o", path), stdin=subprocess.PIPE) as running:
        fed(running, CHAIN.read_bytes()[:5000])
        wait_for(lambda: len(os.listdir(tmp_path)) == 2, "nothing was begun")
        running.send_signal(signal.SIGKILL)
        running.wait(60)
    assert path.read_bytes() == b"what was there"
    (left,) = [name for name in os.listdir(tmp_path) if name != "out.jsonl"]
    assert left.startswith(".out.jsonl.")
    assert decode(CHAIN, "--format", "jsonl", "-o", path).code == 0
    assert os.listdir(tmp_path) == ["out.jsonl"]


def test_live_output_grows_and_can_be_read_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"what was there")
    data = CHAIN.read_bytes()
    with process(
        ("decode", "-", "--stream", "--format", "jsonl", "-o", path), stdin=subprocess.PIPE
    ) as running:
        fed(running, data[: len(data) // 2])
        wait_for(
            lambda: path.read_bytes().startswith(b"{") and path.read_bytes().endswith(b"}\n"), "no line came"
        )
        running.send_signal(signal.SIGKILL)
        running.wait(60)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines
    assert {line["kind"] for line in lines} == {"message"}
    assert os.listdir(tmp_path) == ["out.jsonl"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("export", "html"), "rpcinspect export html writes"),
        (("decode", "--format", "jsonl"), "decode --format jsonl writes"),
        (("decode", "--format", "json"), "decode --format json writes"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_what_decode_wrote_is_told_where_it_is_taken_for_a_capture(
    words: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    written = tmp_path / "page"
    assert rpcinspect(*words, CHAIN, "-o", written).code == 0
    for ran in (decode(written), rpcinspect("diff", written, CHAIN), rpcinspect("replay", written)):
        assert (ran.code, ran.out) == (3, "")
        assert f"such as {told}" in ran.err
        assert ran.err.count("\n") == 1


def test_text_that_is_no_capture_is_shown_as_text(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text('"""Trains."""\nimport torch\n')
    ran = decode(script)
    assert (ran.code, ran.out) == (3, "")
    assert "not a pcap, pcapng or rpclog file" in ran.err
    assert "Trains" in ran.err
