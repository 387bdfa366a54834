"""`make golden`: a changed output is found, named and shown; and a sample is what was kept of it.

Where the sample differs and was meant to: `make golden GOLDEN_ARGS='--against HEAD'` shows how, and
GOLDEN_ARGS=--write keeps it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden.asked import DEAR, SHARED, Subject, captures, subjects
from tests.golden.kept import KeptError, compare, read, replaced, told, written
from tests.places import WITHOUT_SHARED

KEPT = """\
# a remark
captures/a.pcap
 decode --check 0 1111111111111111
 graph --context 0:0 2 2222222222222222
captures/a.pcap captures/b.pcap
 diff 1 3333333333333333
"""


def golden(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "bench" / "golden.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


# --- what is kept -------------------------------------------------------------------------------------------


def test_what_is_written_is_read_again() -> None:
    outputs = read(KEPT)
    assert outputs["captures/a.pcap"]["graph --context 0:0"] == (2, "2222222222222222")
    assert read(written(outputs)) == outputs


def test_what_a_merge_left_is_told() -> None:
    with pytest.raises(KeptError, match="line 4: a second answer"):
        read("x\n decode 0 11\n diff 0 11\n decode 0 22\n")
    with pytest.raises(KeptError, match="line 2: a merge left both sides"):
        read("x\n<<<<<<< HEAD\n decode 0 11\n")
    with pytest.raises(KeptError, match="line 2: neither"):
        read("x\n decode\n")


def test_each_difference_is_named_under_its_capture() -> None:
    kept = read(KEPT)
    now = read(KEPT.replace("0:0 2 22", "1:1 2 22").replace("diff 1 3", "diff 0 4"))
    found = compare(kept, now)
    assert told(found, kept, now) == [
        "captures/a.pcap",
        "  gone     graph --context 0:0",
        "  new      graph --context 1:1",
        "captures/a.pcap captures/b.pcap",
        "  changed  diff  (exit code 1 → 0)",
    ]
    assert found.same == 1
    assert replaced(kept, now, found.gone) == now


def test_what_was_not_asked_stays_kept() -> None:
    kept = read(KEPT)
    now = {"captures/a.pcap": {"decode --check": (0, "4" * 16)}}
    assert written(replaced(kept, now, [])) == written(read(KEPT.replace("1" * 16, "4" * 16)))


def test_the_file_is_as_it_would_be_written(repo: Path) -> None:
    text = (repo / "bench" / "golden.txt").read_text(encoding="utf-8")
    assert written(read(text)) == text
    assert len(text) < 1_000_000


def test_every_capture_is_kept(repo: Path) -> None:
    kept = read((repo / "bench" / "golden.txt").read_text(encoding="utf-8"))
    there = {subject.name for subject in subjects()}
    assert there <= kept.keys()
    assert [name for name in kept.keys() - there if not (WITHOUT_SHARED and SHARED in name)] == []


# --- what is asked ------------------------------------------------------------------------------------------


def test_files_beside_captures_are_none() -> None:
    for name in captures():
        assert name.endswith((".pcap", ".pcapng", ".rpclog", ".cap", ".dmp", ".dump")), name
    assert captures().keys() >= DEAR.keys()


def test_a_question_is_a_command() -> None:
    one = Subject(("captures/basic_chain.pcap",))
    assert one.command("decode --check") == ["decode", "captures/basic_chain.pcap", "--check"]
    assert one.command("replay --plan SOURCES")[2:] == ["--plan", "--path", "captures"]
    assert one.command("decode --filter latency>1ms||problem")[-2:] == ["--filter", "latency>1ms||problem"]


# --- what is run --------------------------------------------------------------------------------------------


def test_a_sample_is_as_it_was_kept(repo: Path) -> None:
    """All views of one capture, and one comparison."""
    pair = "captures/pairs/base.pcap.gz captures/pairs/dropout_seed.pcap.gz"
    ran = golden(repo, "--jobs", "2", "--capture", "captures/basic_chain.pcap", "--capture", pair)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "\n0 outputs differ from bench/golden.txt" in ran.stdout


@pytest.fixture
def checkout(repo: Path, tmp_path: Path) -> Path:
    """A commit of the package with two captures, and what it says of them kept."""
    root = tmp_path / "checkout"
    for part in ("rpcinspect", "tests/golden"):
        shutil.copytree(repo / part, root / part)  # with what was compiled of it
    (root / ".gitignore").write_text("__pycache__/\n")
    files = ("tests/__init__.py", "tests/places.py", "bench/golden.py")
    for name in (*files, "captures/basic_chain.pcap", "captures/draws.pcap.gz"):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(repo / name, root / name)
    assert golden(root, "--jobs", "1", "--write", "--view", "contexts*").returncode == 0
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", "-C", str(root), *who, *command], check=True, timeout=60)
    return root


def test_a_changed_output_is_found_named_and_shown(checkout: Path, tmp_path: Path) -> None:
    kept = (checkout / "bench" / "golden.txt").read_text()
    view = checkout / "rpcinspect" / "views" / "questions" / "contexts.py"
    source = view.read_text()
    assert source.count('title="cleanup"') == 1
    view.write_text(source.replace('title="cleanup"', 'title="mopped"'))

    ran = golden(checkout, "--jobs", "1", "--view", "contexts*")
    assert ran.returncode == 1, ran.stderr
    assert "is not there: only the bundled captures are compared" in ran.stderr
    assert ran.stdout.splitlines()[:4] == [
        "captures/basic_chain.pcap",
        "  changed  contexts",
        "captures/draws.pcap.gz",
        "  changed  contexts",
    ]
    assert "2 outputs differ from bench/golden.txt, 3 do not" in ran.stdout

    texts = tmp_path / "texts"
    arguments = ("--capture", "*draws*", "--view", "contexts*", "--diff-dir", str(texts))
    shown = golden(checkout, "--jobs", "1", "--against", "HEAD", *arguments)
    assert shown.returncode == 1, shown.stderr
    assert "-context  creator" in shown.stdout
    assert "+context  creator" in shown.stdout
    (place,) = texts.iterdir()
    assert "cleanup" in (place / "before.txt").read_text()
    assert "mopped" in (place / "after.txt").read_text()

    assert golden(checkout, "--jobs", "1", "--write", "--view", "contexts*").returncode == 0
    assert (checkout / "bench" / "golden.txt").read_text() != kept
