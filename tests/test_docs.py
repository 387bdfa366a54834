"""The documentation against the program: options, commands, links; and no file tells where it was made."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

from rpcinspect.capture.tshark import find_program
from rpcinspect.cli.export import ExportCommand
from rpcinspect.cli.program import Program
from rpcinspect.rpc.message import MessageType
from rpcinspect.tcp.link import LINKS
from rpcinspect.tensorpipe.channel_kinds import CHANNELS, INVISIBLE
from tests.forks import LOCALE, ran
from tests.places import content

ROOT = Path(__file__).resolve().parent.parent
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
DOCS = (
    "data-path.md",
    "wireshark.md",
    "wire-format.md",
    "supported.md",
    "damage.md",
    "replay.md",
    "diff.md",
    "ci.md",
    "views.md",
    "browse.md",
    "pyshark.md",
    "parquet.md",
    "tracing.md",
    "findings.md",
    "filter.md",
    "log-format.md",
    "recording.md",
    "doctor.md",
    "redaction.md",
    "agents.md",
    "decisions.md",
    "nan.md",
    "capturing.md",
    "reference/commands.md",
    "reference/fields.md",
)
TUTORIALS = tuple(sorted((ROOT / "docs" / "tutorials").glob("*.md")))

FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}[^\n]*\n)+", re.MULTILINE)
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")

PRIVATE_PATHS = re.compile(
    rb"/(?:home|Users)/(?!venv/|lab/)[A-Za-z0-9_]"
    rb"|(?<![A-Za-z0-9_./-])/(?:root|work)/[A-Za-z0-9_.]"
    rb"|/tmp/(?!pytest|rpcinspect_h6_canary)[A-Za-z0-9_]{3}"
)
"""Absolute paths of somebody's machine, in text or in a capture; the ones left out were put there instead."""
PRIVATE_WORDS = (b"/home/", b"/Users/", b"/root/", b"/work/", b"/tmp/")
"""One is in each of them."""
UNREAD = {"tests/test_docs.py", "captures/reports/hostile/payload_bomb.rpclog.zst"}
"""These expressions, and what unpacks to 1.9 GB."""


def text(path: Path) -> str:
    """A file of the documentation."""
    return path.read_text(encoding="utf-8")


def code(markdown: str) -> str:
    """What stands in its code blocks."""
    return "\n".join(FENCE.findall(markdown) + INDENTED.findall(FENCE.sub("", markdown)))


def rpcinspect(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """One run of the program of this checkout in some folder."""
    locale = {name: value for name, value in os.environ.items() if name in LOCALE}
    own = {"COLUMNS": "200", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    return ran(*arguments, encoding="utf-8", cwd=folder, env=own | locale)


@cache
def run(*arguments: str) -> str:
    """Output of one run at the root of the checkout."""
    done = rpcinspect(*arguments, folder=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
COMMANDS = (
    *(name for names in Program.GROUPS.values() for name in names if name != "export"),
    *(f"export {name}" for names in ExportCommand.GROUPS.values() for name in names),
)


def options_of(command: str) -> set[str]:
    """The options in a command's real help, wide enough that nothing is cut."""
    return set(OPTION.findall(run(*command.split(), "--help"))) - {"--help"}


@cache
def tracked() -> tuple[Path, ...]:
    """Every committed file; empty outside a checkout."""
    done = subprocess.run(["git", "ls-files", "-z"], check=False, capture_output=True, cwd=ROOT)
    names = done.stdout.decode().split("\0") if done.returncode == 0 else []
    return tuple(ROOT / name for name in names if name and (ROOT / name).is_file())


def markdown_files() -> list[Path]:
    """All pages of ours."""
    return [
        README,
        *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
        *(ROOT / "docs" / name for name in DOCS),
        *TUTORIALS,
        ROOT / "captures/README.md",
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_documented(command: str) -> None:
    options = options_of(command)
    pages = text(README) + "".join(text(ROOT / "docs" / name) for name in DOCS)
    assert {option for option in options if option not in pages} == set()


def test_options_in_the_readme_and_in_the_docs_exist() -> None:
    known = {command: options_of(command) for command in COMMANDS}
    others = {"--version", "--install-completion", "--show-completion"}
    pages = "\n".join(code(text(page)) for page in markdown_files())
    for line in pages.splitlines():
        found = re.search(r"rpcinspect (export \w+|\w+)", line)
        if "rpcinspect" in line:
            options = known.get(found[1], set()) if found is not None else set()
            own = line.partition(" -- ")[0]  # behind it is the command that is recorded
            assert set(OPTION.findall(own)) <= options | others, line


def test_commands_in_the_readme_exist() -> None:
    blocks = code(text(README))
    targets = set(re.findall(r"^([a-z-]+):", text(ROOT / "Makefile"), re.MULTILINE))
    makes = set(re.findall(r"^ *make ([a-z-]+)", blocks + code(text(CONTRIBUTING)), re.MULTILINE))
    assert {"demo", "test"} <= makes
    assert makes <= targets
    used = set(re.findall(r"^ *(?:[^|\n]*\| *)?\$? ?rpcinspect (export [a-z]+|[a-z]+)", blocks, re.MULTILINE))
    assert used == set(COMMANDS)


def test_the_readme_starts_with_installing_and_the_two_set_up_commands() -> None:
    first, second, *_ = FENCE.findall(text(README))
    assert first.startswith("pip install .")
    assert second.split()[:2] == ["make", "demo"]
    assert "make test" in second
    assert "make test" in text(ROOT / ".ci" / "run")


@pytest.mark.parametrize(
    "page",
    [README, *(ROOT / "docs" / name for name in ("views.md", "diff.md", "nan.md", "ci.md")), *TUTORIALS],
    ids=lambda page: page.name,
)
def test_the_output_in_the_pages_is_real(page: Path, tmp_path: Path) -> None:
    """Every line, in order; `…` alone stands for lines left out, at the end of a line for its rest. What is
    said on standard error comes last. Commands may write files, and read what earlier ones wrote."""
    (tmp_path / "captures").symlink_to(ROOT / "captures")
    if "rpcinspect replay" in code(text(page)) and page != README:
        pytest.importorskip("torch")
    shown = [block.splitlines() for block in FENCE.findall(text(page)) if block.startswith("$ rpcinspect")]
    assert shown
    for command, *lines in shown:
        words = shlex.split(command)[2:]
        done = rpcinspect(*words, folder=tmp_path)
        assert done.returncode in (0, 1), done.stderr
        real = iter(line.rstrip() for line in (done.stdout + done.stderr).splitlines())
        for line in lines:
            if line.strip() == "…":
                continue
            cut = line.endswith("…")
            assert any(got.startswith(line[:-1]) if cut else got == line for got in real), line


DIALOGUES = re.findall(
    r"^```\n\$ printf '(.*?)' \| (rpcinspect .*?[^\\])\n(.*?)^```",
    text(ROOT / "docs" / "replay.md"),
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize(("typed", "command", "shown"), DIALOGUES)
def test_dialogues_with_live_workers_are_real(typed: str, command: str, shown: str) -> None:
    """As above; `…/captures` stands for the path of this checkout."""
    pytest.importorskip("torch")
    done = ran(
        *shlex.split(command.replace("\\\n", " "))[1:],
        given=typed.replace("\\n", "\n"),
        stdin=subprocess.PIPE,
        encoding="utf-8",
        cwd=ROOT,
    )
    real = iter((done.stderr + done.stdout).replace(str(ROOT), "…").splitlines())
    for line in shown.splitlines():
        assert line == "…" or line in real, line


def test_the_dialogues_are_found() -> None:
    assert len(DIALOGUES) == 2


def test_the_python_in_the_readme_shows_what_the_workers_sent() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", text(README), re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", block], check=True, capture_output=True, encoding="utf-8", timeout=60, cwd=ROOT
    )
    shown = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert {placement for _, placement, _ in shown} == {"certain"}
    calls = [
        line
        for line in text(ROOT / "captures" / "basic_chain.truth").splitlines()
        if '"event": "call"' in line or '"event": "answer"' in line
    ]
    sent = set(re.findall(r'"storage_sha256": "([0-9a-f]{64})"', "".join(calls)))
    assert sent
    assert sent <= {sha256(bytes.fromhex(data)).hexdigest() for _, _, data in shown}


PYTHON = re.compile(r"^```python\n(.*?)^```\n\n```\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = [
    pytest.param(page, *block, id=f"{page} {number}")
    for page in ("library.md", "pyshark.md")
    for number, block in enumerate(PYTHON.findall(text(ROOT / "docs" / page)))
]


@pytest.mark.parametrize(("page", "block", "shown"), PROGRAMS)
def test_the_python_of_the_pages_prints_what_they_show(page: str, block: str, shown: str) -> None:
    if page == "pyshark.md":
        pytest.importorskip("pyshark")
        if find_program("tshark") is None:
            pytest.skip("tshark is not installed")
    else:
        pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", block], check=True, capture_output=True, encoding="utf-8", timeout=60, cwd=ROOT
    )
    assert done.stdout == shown


NAME_BEHIND = re.compile(r"\]\(([^)\s]+\.py)\)\s+`([A-Za-z_]+)`")
NAME_BEFORE = re.compile(r"`([A-Za-z_]+)`(?: at the foot)?\s+(?:in|of)\s+\[[^\]]+\]\(([^)\s]+\.py)\)")


@pytest.mark.parametrize("page", [CONTRIBUTING, ROOT / "docs" / "changing.md"], ids=lambda page: page.name)
def test_names_that_are_said_to_stand_in_a_file_stand_there(page: Path) -> None:
    said = NAME_BEHIND.findall(text(page)) + [(file, name) for name, file in NAME_BEFORE.findall(text(page))]
    assert len(said) > 5
    for file, name in said:
        assert re.search(rf"\b{name}\b", text(page.parent / file)), f"{page.name}: {file} has no {name}"


@pytest.mark.parametrize("page", markdown_files(), ids=lambda page: page.name)
def test_relative_links_resolve(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", text(page))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor and file.suffix == ".md":
            titles = re.findall(r"^#+ +(.+?) *$", FENCE.sub("", text(file)), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in anchors, f"{page.name} links to {target}"


def test_supported_names_every_message_type_channel_and_link_type() -> None:
    page = text(ROOT / "docs" / "supported.md")
    names = [member.name for member in MessageType] + [*CHANNELS, *INVISIBLE]
    names += [f"| {number} " for number in LINKS]
    assert [name for name in names if name not in page] == []


def test_what_the_docs_name_exists() -> None:
    for name in DOCS:
        page = text(ROOT / "docs" / name)
        for mentioned in re.findall(r"`((?:tests|captures|docs|bench|rpcinspect)/[\w./:-]*)`", page):
            path, _, function = mentioned.partition("::")
            assert (ROOT / path).exists(), f"docs/{name} names {mentioned}"
            assert f"def {function}(" in text(ROOT / path) if function else True, f"docs/{name}: {mentioned}"


def test_no_file_names_the_machine_that_made_it() -> None:
    if not tracked():
        pytest.skip("not a git checkout")
    found = []
    for path in tracked():
        if path.relative_to(ROOT).as_posix() in UNREAD:
            continue
        data = content(path)
        if not any(word in data for word in PRIVATE_WORDS):  # ten times as fast
            continue
        found += [f"{path.relative_to(ROOT)}: {match[0]!r}" for match in PRIVATE_PATHS.finditer(data)]
    assert found == []
