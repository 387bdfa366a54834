"""A test that looks at captures of others is skipped where there are none, whichever way it looks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT, SHARED, WITHOUT_SHARED, content, foreign, recorded

WAYS = f"""
import glob, os, subprocess, sys, threading
import pytest
from tests.cli.runner import decode
from tests.places import CAPTURES, all_foreign, foreign

FOLDER = {str(SHARED / "captures" / "examples")!r}

def test_asks(): foreign("examples/rnn_basic.pcap.gz")
def test_opens(): open(f"{{FOLDER}}/absent.pcap", "rb")
def test_lists(): os.listdir(FOLDER)
def test_opens_by_another_name(): open("../shared/captures/absent.pcap", "rb")
def test_globs(): assert glob.glob(f"{{FOLDER}}/*.pcap")
def test_decodes(): assert decode(f"{{FOLDER}}/rnn_basic.pcap.gz").code == 0
def test_runs_a_program(): subprocess.run([sys.executable, "-c", "", f"{{FOLDER}}/x"], check=True)

def test_swallows_what_happens():
    try:
        os.listdir(FOLDER)
    except BaseException:
        pass
    assert False

def test_looks_in_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.extend(os.listdir(FOLDER)))
    thread.start()
    thread.join(10)
    assert found

@pytest.fixture
def listed(): return os.listdir(FOLDER)

def test_looks_in_a_fixture(listed): pass
def test_goes_on_without(): all_foreign("nothing")
def test_needs_none(): assert os.listdir(CAPTURES)
"""
LOOKING = set(re.findall(r"def (test_\w+)", WAYS)) - {"test_goes_on_without", "test_needs_none"}


def run(folder: Path, **environment: str) -> tuple[str, set[str]]:
    """What pytest says of these tests, and which of them it notes as having looked."""
    test, noted = folder / "test_ways.py", folder / "looked"
    test.write_text(WAYS, encoding="utf-8")
    noted.write_text("")
    own = {key: value for key, value in os.environ.items() if key != "WITHOUT_SHARED"}
    plugins = ["-p", "tests.looks", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-c", "pyproject.toml", "-v", test],
        env={**own, **environment, "LOOKED_AT": str(noted)},
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    return done.stdout, {line.rpartition("::")[2] for line in noted.read_text().splitlines()}


def outcomes(said: str, outcome: str) -> set[str]:
    return set(re.findall(rf"::(test_\w+) {outcome}", said))


def test_whoever_looks_in_vain_is_skipped(tmp_path: Path) -> None:
    said, noted = run(tmp_path, WITHOUT_SHARED="1")
    assert noted == outcomes(said, "SKIPPED") == LOOKING, said
    assert outcomes(said, "PASSED") == {"test_goes_on_without", "test_needs_none"}
    assert outcomes(said, "(?:FAILED|ERROR)") == set()


@pytest.mark.skipif(WITHOUT_SHARED, reason="nothing is there to look at")
def test_whoever_looks_is_noted(tmp_path: Path) -> None:
    foreign("examples")
    said, noted = run(tmp_path)
    assert noted == LOOKING
    assert outcomes(said, "SKIPPED") == set()


def test_whoever_names_the_folder_asks_one_module_whether_it_is_there() -> None:
    """A question of its own would pass unseen."""
    modules = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").glob("*.py")]
    naming = {path.name: path.read_text() for path in modules}
    naming = {name: text for name, text in naming.items() if re.search(r"""/ ["']shared|/shared\b""", text)}
    assert {name for name, text in naming.items() if "WITHOUT_SHARED" not in text} == set()


def test_a_capture_is_found_by_its_name_however_it_is_packed() -> None:
    for name in ("basic_chain.pcap", "ctx_crowd.pcap", "ctx_crowd.pcap.gz", "torch/stress_mpt_uv.pcap"):
        assert recorded(name).name.startswith(Path(name).name)
        assert content(name)[:4] == bytes.fromhex("d4c3b2a1")
    assert recorded("torch/scripts").is_dir()
    with pytest.raises(FileNotFoundError):
        recorded("torch/absent.pcap")
