"""The wheel and the sdist, as a package index would have them, and what they install without PyTorch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests import forks
from tests.once import once
from tests.places import ROOT

pytestmark = pytest.mark.slow

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
ENVIRONMENT |= {"PIP_NO_COMPILE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
"""Of what pip installs here little is imported: compiling all would be half of the time."""
SHOWN = (
    ("decode", "captures/basic_chain.pcap"),
    ("decode", "captures/reports/job/plain.pcap.gz", "-f", 'call ~ "forward"', "--calls"),
    ("replay", "captures/basic_chain.pcap", "--path", "captures", "--plan"),
    ("diff", "captures/pairs/base.pcap.gz", "captures/pairs/dropout_seed.pcap.gz"),
    ("findings", "captures/basic_chain.pcap"),
    ("export", "html", "captures/basic_chain.pcap", "-o", "-"),
)
"""What `make demo-light` shows, and what needs other packages or files."""


def ran(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """One run, without the packages of this checkout."""
    return subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist of this checkout, and the wheel that is built of that sdist, as whoever installs it does."""

    def build(folder: Path) -> None:
        done = ran(sys.executable, "-m", "build", "-o", folder, ROOT, folder=folder)
        if "No matching distribution found for hatchling" in done.stdout + done.stderr:
            pytest.skip("no package registry can be reached")
        assert done.returncode == 0, done.stdout + done.stderr

    return {path.suffix: path for path in once(tmp_path_factory, "dist", build).iterdir()}


@pytest.fixture(scope="module")
def unpacked(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built[".gz"]) as archive:
        archive.extractall(folder, filter="data")
    (root,) = folder.iterdir()
    return root


@pytest.fixture(scope="module")
def python(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment's, with the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("venv")
    python = folder / "bin" / "python"
    install = (
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "-q",
        "-c",
        ROOT / "constraints.txt",
        built[".whl"],
    )
    for arguments in (("-m", "venv", "--without-pip", folder), install):
        done = ran(sys.executable, *arguments, folder=folder)
        assert done.returncode == 0, done.stderr
    return python


def metadata(built: dict[str, Path]) -> Message:
    with zipfile.ZipFile(built[".whl"]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(wheel.read(name).decode())


def test_the_wheel_has_each_file_of_the_package(built: dict[str, Path]) -> None:
    ours = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "rpcinspect").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(built[".whl"]) as wheel:
        names = {name.partition(".dist-info/")[2] or name for name in wheel.namelist()}
    assert names >= ours
    assert "rpcinspect/py.typed" in names
    others = {name for name in names - ours if not re.search(r"\.data/data/share/man/man1/[a-z-]+\.1$", name)}
    assert others == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}


def test_the_sdist_has_each_file_of_the_repository(unpacked: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], check=False, capture_output=True, cwd=ROOT)
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = {name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()}
    assert {name for name in names if not (unpacked / name).is_file()} == set()


def test_the_license_is_apaches_and_nobody_is_invented(built: dict[str, Path]) -> None:
    said = metadata(built)
    assert (said["License-Expression"], said["License-File"]) == ("Apache-2.0", "LICENSE")
    assert not {"Project-URL", "Home-page", "Author-email", "Maintainer"} & set(said.keys())
    assert f"Copyright 2026 {said['Author']}" in (ROOT / "LICENSE").read_text()


def test_the_readme_of_the_index_says_the_same_without_links_into_the_repository(
    built: dict[str, Path],
) -> None:
    def read(markdown: str) -> str:
        return str(MarkdownIt("commonmark").enable("table").render(markdown))

    page, here = read(str(metadata(built).get_payload())), read((ROOT / "README.md").read_text())
    assert [
        link for link in re.findall(r'(?:href|src)="([^"]*)', page) if not link.startswith("https:")
    ] == []
    here = re.sub(r"<p><img [^>]*></p>\n", "", here)
    here = re.sub(r'<a href="(?!https:)([^"]*)">\1</a>', r"\1", here)
    assert page == re.sub(r'<a href="(?!https:)([^"]*)">(.*?)</a>', r"\2 (\1)", here)


def test_the_wheel_runs_with_only_what_it_needs(python: Path) -> None:
    where = ran(python, "-c", "import rpcinspect; print(rpcinspect.__file__)", folder=python.parent)
    assert Path(where.stdout).is_relative_to(python.parent.parent)
    assert ran(python, "-c", "import torch", folder=ROOT).returncode == 1
    for arguments in SHOWN:
        one = ran(python.with_name("rpcinspect"), *arguments, folder=ROOT)
        ours = forks.ran(*arguments, cwd=ROOT, env=ENVIRONMENT, encoding="utf-8")
        assert (one.returncode, one.stdout, one.stderr) == (ours.returncode, ours.stdout, ours.stderr)
        assert one.stdout
    assert (python.parent.parent / "share" / "man" / "man1" / "rpcinspect-export-html.1").is_file()


def test_the_tests_of_the_sdist_run(unpacked: Path) -> None:
    done = ran(sys.executable, "-m", "pytest", "-q", "tests/test_captures.py", folder=unpacked)
    assert done.returncode == 0, done.stdout
