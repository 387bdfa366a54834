"""`--junit` and `--annotations`: what CI servers get beside the answer, of results and of errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rpcinspect.checks.findings import CODES
from rpcinspect.cli.ci_reports import reported
from rpcinspect.cli.findings import FindingsCommand
from rpcinspect.cli.github_log import GithubLog, inert
from rpcinspect.rpc.command import PythonCall, PythonResp
from rpcinspect.rpc.command_codec import to_payload
from tests.cli.runner import CAPTURES, CHAIN, Ran, rpcinspect
from tests.github_runner import commands
from tests.junit import Case, cases_of
from tests.logs import log_of, message
from tests.places import ROOT
from tests.replayer.talks import udf

BOOM = CAPTURES / "bwd_boom.pcap.gz"
PAIR = (CAPTURES / "pairs/base.pcap.gz", CAPTURES / "pairs/dropout_seed.pcap.gz")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a step of GitHub Actions, until a test says so."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setattr(GithubLog, "asked", False)


def with_report(folder: Path, *arguments: object) -> tuple[Ran, dict[str, Case]]:
    """A run, and the cases that it wrote."""
    ran = rpcinspect(*arguments, "--junit", folder / "x.xml")
    return ran, cases_of((folder / "x.xml").read_bytes())


@pytest.mark.parametrize(
    ("arguments", "code", "bad"),
    [
        (("findings", BOOM, "--check"), 1, {"error-response", "missing-gradient"}),
        (("findings", CHAIN, "--check"), 0, set()),
        (("diff", *PAIR), 1, {"verdict", "worker1 → worker0 FORWARD_AUTOGRAD_RESP training.forward"}),
        (("diff", CHAIN, CHAIN), 0, set()),
        (("replay", CHAIN), 4, {"verdict"}),
        (("findings", "README.md"), 3, {"verdict"}),
        (("diff", CHAIN, "none.pcap"), 3, {"verdict"}),
        (("diff", CHAIN, CHAIN, "--rename", "a=b"), 2, {"verdict"}),
        (("replay", CHAIN, "--path", CAPTURES, "--seed", "nobody=1"), 2, {"verdict"}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_the_report_says_what_the_exit_code_says(
    arguments: tuple[object, ...], code: int, bad: set[str], tmp_path: Path
) -> None:
    ran, cases = with_report(tmp_path, *arguments)
    assert ran.code == code
    failed = {case.name for case in cases.values() if case.outcome in ("failure", "error")}
    assert failed >= bad
    assert bool(failed) == bool(code)
    assert not commands(ran.out + ran.err)


def test_the_answer_stays_as_it_is(tmp_path: Path) -> None:
    plain = rpcinspect("diff", *PAIR, "--format", "jsonl")
    ran = rpcinspect(
        "diff", *PAIR, "--format", "jsonl", "--junit", tmp_path / "x.xml", "--annotations", "github"
    )
    assert ran.out == plain.out
    assert [command.name for command in commands(ran.err)] == ["error"]


@pytest.mark.parametrize(
    ("environment", "options", "marks"),
    [
        ("true", (), 2),
        ("true", ("--annotations", "none"), 0),
        ("true", ("-f", "index < 3"), 2),  # as the exit code, they are about the whole run
        ("", (), 0),
        ("", ("--annotations", "github"), 2),
    ],
)
def test_annotations_go_where_they_are_read(
    environment: str, options: tuple[str, ...], marks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", environment)
    ran = rpcinspect("findings", BOOM, *options)
    assert commands(ran.out) == []
    found = commands(ran.err)
    assert [command.name for command in found] == ["error"] * marks
    if marks:
        assert found[0].properties["title"].startswith("error-response: ")
        assert "Fix worker1 first" in found[0].data


def test_an_error_is_marked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    ran = rpcinspect("findings", "none.pcap")
    assert ran.code == 3
    (mark,) = commands(ran.err)
    assert mark.data == "none.pcap: No such file or directory"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("findings", CHAIN, "--junit", "-"), "name a file"),
        (("findings", CHAIN, "--junit", CHAIN), "--junit would overwrite it"),
        (("diff", CHAIN, CHAIN, "--junit", "x", "-o", "./x"), "can't both be written there"),
        (("replay", CHAIN, "--plan", "--junit", "x.xml"), "--plan compares nothing"),
        (("replay", CHAIN, "--path", ".", "--threads", "1,2", "--junit", "x.xml"), "it writes one replay"),
        (
            ("replay", CHAIN, "--path", ".", "--against", ".", "--junit", "x.xml"),
            "can't be used with --junit",
        ),
    ],
)
def test_mistakes(arguments: tuple[object, ...], told: str) -> None:
    ran = rpcinspect(*arguments)
    assert ran.code == 2
    assert told in ran.err


def test_a_report_that_can_not_be_written_is_an_error_of_its_own(tmp_path: Path) -> None:
    for capture, code in ((CHAIN, 2), ("none.pcap", 3)):
        ran = rpcinspect("findings", capture, "--junit", tmp_path / "no folder" / "x.xml")
        assert ran.code == code
        assert len(ran.err.splitlines()) == 1


def test_a_fault_of_our_own_leaves_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = FindingsCommand(files=["run.pcap"], junit=tmp_path / "x.xml", annotations="github")
    with pytest.raises(KeyError), reported(asked, "findings", asked.files):
        raise KeyError("lost")
    (case,) = cases_of((tmp_path / "x.xml").read_bytes()).values()
    assert case.outcome == "error"
    assert case.message.startswith("rpcinspect itself failed: KeyError: 'lost'")
    assert [command.name for command in commands(capsys.readouterr().err)] == ["error"]


NAMES = (
    "::error::forged",
    "  ::stop-commands::x",
    "##[set-output name=a]b",
    "\n::add-mask::a",
    "\r::add-mask::a",
    "\x00]]>\u202e'\"<",
    "::error::" + "x" * 1_000_000,
)


def hostile(path: Path, name: str) -> Path:
    """A log whose workers, functions and errors are called so; no worker may have a name of a megabyte."""
    worker = name[:1000]
    error = f"On WorkerInfo(id=1, name=w1):\n{name}\nValueError: {name}\n{name}".encode(errors="replace")
    failure = b"\x80\x02ctorch.distributed.rpc.internal\nRemoteException\nX"
    failure += len(error).to_bytes(4, "little") + error + b"cbuiltins\nValueError\n\x86\x81."
    spoken = name.replace("\n", "").replace("\r", "")
    call = to_payload(PythonCall(udf(f"mod.{spoken}" if "." not in spoken else spoken), False))
    answer = to_payload(PythonResp(failure))
    records = []
    for number in range(2):
        records.append(message(worker, "w1", "PYTHON_CALL", call, id=number, time_ns=10 * number + 1))
        records.append(message("w1", worker, "PYTHON_RET", answer, id=number, time_ns=10 * number + 5))
    path.write_bytes(log_of(*records))
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("findings", "x", "--format", "##[error]x"),
        ("export", "##[error]x"),
        ("a\n::error::x",),
        ("export", "otlp", "run.rpclog"),
        ("export", "perfetto", "run.rpclog"),
    ],
    ids=" ".join,
)
def test_a_process_prints_no_command(words: tuple[str, ...], tmp_path: Path) -> None:
    """Mistakes on the command line, of which typer tells, quote it; traces quote what was captured."""
    (tmp_path / "a\n::error::x").touch()
    hostile(tmp_path / "run.rpclog", "##[error]x")
    ran = subprocess.run(
        [sys.executable, "-m", "rpcinspect", *words],
        check=False,
        capture_output=True,
        encoding="utf-8",
        cwd=tmp_path,
        env={**os.environ, "GITHUB_ACTIONS": "true", "PYTHONPATH": str(ROOT)},
    )
    assert ran.returncode == (0 if "run.rpclog" in words else 2)
    assert "error" in ran.stdout + ran.stderr
    assert commands(ran.stdout) + commands(ran.stderr) == []
    assert not re.search("^\\s*::", ran.stdout + ran.stderr, re.MULTILINE)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:24]))
def test_captured_text_is_no_command(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    capture = hostile(tmp_path / "a.rpclog", name)
    other = hostile(tmp_path / "b.rpclog", f"2{name}")
    for arguments in (
        ("findings", capture, "--check"),
        ("findings", capture, "--format", "jsonl"),
        ("diff", capture, other, "--all"),
        ("diff", capture, other, "--format", "jsonl"),
        ("replay", capture, "--plan", "--all"),
        ("replay", capture),
    ):
        junit = () if "--plan" in arguments else ("--junit", tmp_path / "x.xml")
        ran = rpcinspect(*arguments, *junit)
        assert commands(ran.out) == []
        found = commands(ran.err)
        assert {command.name for command in found} <= {"error", "warning"}
        titles = {command.properties["title"].partition(":")[0] for command in found}
        assert titles <= {*CODES, *(f"rpcinspect {command}" for command in ("findings", "diff", "replay"))}
        assert sum(line.startswith("::") for line in ran.err.splitlines()) == len(found)
        if junit:
            assert cases_of((tmp_path / "x.xml").read_bytes())
        assert len(ran.err) < 20_000


def test_json_stays_the_same_json(tmp_path: Path) -> None:
    capture = hostile(tmp_path / "a.rpclog", "##[error]x")
    ran = rpcinspect("findings", capture, "--format", "jsonl")
    assert "##[" not in ran.out
    assert any("##[error]x" in json.dumps(line) for line in ran.objects)


def test_lines_that_would_be_commands_are_escaped_and_others_are_not() -> None:
    assert inert("a::b ##\n c::d::\n") == "a::b ##\n c::d::\n"
    assert inert("  ::error::x\n::y\n") == "  \\x3a:error::x\n\\x3a:y\n"
    assert inert("so ##[add-mask]x") == "so ##\\x5badd-mask]x"
