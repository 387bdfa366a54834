"""`rpcinspect replay --plan`: options, outputs, exit codes; and that it runs nothing."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.pickles.python import read_python_pickle
from tests.cli.runner import CAPTURES, CHAIN, HIDDEN, Ran, rpcinspect, visible
from tests.replayer.hostile_captures import hostile
from tests.replayer.talks import UDF, udf
from tests.views.replay.test_plan_json import check_contract


def replay(*arguments: object, stdin: bytes = b"") -> Ran:
    return rpcinspect("replay", "--plan", *arguments, stdin=stdin)


def step_actions(ran: Ran) -> list[str]:
    return [line["action"] for line in ran.objects if line["kind"] == "step"]


def plan_of(ran: Ran) -> dict[str, Any]:
    check_contract(ran.objects)
    return ran.objects[-1]


def test_a_table() -> None:
    ran = replay(CHAIN, "--path", CAPTURES)
    assert (ran.code, ran.err) == (0, "")
    assert "session 1 of 1: worker0 played, worker1 live" in ran.out
    assert "5 to send, 3 answers to give" in ran.out
    assert "REFUSED" not in ran.out
    assert visible(ran.out)


def test_all_steps_in_the_table() -> None:
    ran = replay(CHAIN, "--path", CAPTURES, "--all")
    assert "     0  skip    worker1 → worker0  PYTHON_CALL                   control: " in ran.out


def test_refusals_do_not_change_the_exit_code() -> None:
    ran = replay(CHAIN)
    assert ran.code == 0
    assert "REFUSED  basic_chain.scale" in ran.out


@pytest.mark.parametrize(
    "options",
    [
        ("--allow", "basic_chain"),
        ("--allow", "basic_chain:scale"),
        ("--path", CAPTURES),
        ("--path", CAPTURES / "basic_chain.py"),
        ("--trust-capture",),
    ],
)
def test_what_allows_a_function(options: tuple[object, ...]) -> None:
    ran = replay(CHAIN, "--format", "jsonl", *options)
    assert plan_of(ran)["sends"] == 5
    assert all(use["allowed"] for use in plan_of(ran)["globals"])
    assert ("--trust-capture" in ran.err) == ("--trust-capture" in options)


def test_the_main_script_allows_main(tmp_path: Path) -> None:
    path = hostile(tmp_path, UDF % (b"__mp_main__", b"step"), pickle.dumps(None))
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit\ndef step(): ...")
    assert plan_of(replay(path, "--format", "jsonl"))["sends"] == 0
    assert plan_of(replay(path, "--format", "jsonl", "--main", script))["sends"] == 1


@pytest.mark.parametrize(
    ("options", "sends"),
    [
        (("--role", "worker0"), 5),
        (("--live", "worker1"), 5),
        (("--role", "worker1"), 0),
        (("--context", 0), 5),
    ],
)
def test_who_and_what(options: tuple[object, ...], sends: int) -> None:
    ran = replay(CHAIN, "--format", "jsonl", "--allow", "basic_chain", *options)
    assert plan_of(ran)["sends"] == sends


def test_several_workers_are_named_at_once_or_one_by_one() -> None:
    boom = CAPTURES / "bwd_boom.pcap.gz"
    one = replay(boom, "--role", "worker0,worker2", "--trust-capture", "--format", "jsonl")
    other = replay(boom, "--role", "worker0", "--role", "worker2", "--trust-capture", "--format", "jsonl")
    assert one.out == other.out
    assert plan_of(one)["roles"] == ["worker0", "worker2"]
    kept = replay(boom, "--live", "worker1", "--trust-capture", "--format", "jsonl")
    assert plan_of(kept)["roles"] == ["worker0", "worker2"]


def test_what_is_no_capture(tmp_path: Path) -> None:
    (tmp_path / "x.pcap").write_bytes(b"no capture at all")
    assert replay(tmp_path / "x.pcap").code == 3


def test_nothing_to_replay() -> None:
    ran = replay(HIDDEN)
    assert ran.code == 0
    assert "Nothing to replay" in ran.out


def test_standard_input_and_output_files(tmp_path: Path) -> None:
    out = tmp_path / "plan.jsonl"
    ran = replay("-", "--format", "jsonl", "-o", out, stdin=CHAIN.read_bytes())
    assert (ran.code, ran.out) == (0, "")
    assert out.read_text() == replay(CHAIN, "--format", "jsonl").out


# --- hostile captures ---------------------------------------------------------------------------------------


class Canary:
    """Loading it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("where", ["request", "answer"])
def test_a_canary_in_a_pickle_is_listed_and_not_run(where: str, tmp_path: Path) -> None:
    sung = tmp_path / "sung"
    evil = pickle.dumps(Canary(sung))
    request, answer = (evil, pickle.dumps(1)) if where == "request" else (udf("app.f"), evil)
    path = hostile(tmp_path, request, answer)
    ran = replay(path, "--format", "jsonl", "--allow", "app")
    plan = plan_of(ran)
    culprit = f"{os.mkdir.__module__}.mkdir"
    found = {use["name"]: use for use in plan["globals"]}
    assert plan["roles"] == ["w0"]
    assert found[culprit]["allowed"] is False
    assert len(found[culprit]["messages"]) == 1
    assert plan["skips"]["not-allowed"] >= 1
    assert ran.code == 0
    assert not sung.exists()
    table = replay(path, "--trust-capture")
    assert table.code == 0
    assert not sung.exists()


def test_captured_names_reach_no_terminal_as_they_are(tmp_path: Path) -> None:
    path = hostile(tmp_path, udf("app.\x1b[2J\u202e"), pickle.dumps(1))
    for form in ("table", "jsonl"):
        ran = replay(path, "--format", form)
        assert ran.code == 0
        assert visible(ran.out)


def test_nothing_is_imported_that_a_replay_would_need(tmp_path: Path) -> None:
    """A plan needs no torch, and the user's files are parsed only."""
    (tmp_path / "basic_chain.py").write_text("raise SystemExit('imported')\ndef scale(): ...")
    code = (
        "import sys; sys.argv = ['rpcinspect', 'replay', '--plan', *sys.argv[1:]]\n"
        "from rpcinspect.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: code = end.code\n"
        "loaded = {'torch', 'basic_chain'} & set(sys.modules) - before\n"
        "sys.exit(f'{code} {sorted(loaded)}' if code or loaded else 0)\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; before = set(sys.modules)\n{code}",
            str(CHAIN),
            "--path",
            tmp_path,
        ],
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "5 to send" in done.stdout


def test_the_canary_is_what_pickle_would_run(tmp_path: Path) -> None:
    """The test above is worth nothing unless loading it does sing."""
    sung = tmp_path / "sung"
    data = pickle.dumps(Canary(sung))
    assert [str(name) for name in read_python_pickle(data).globals] == [f"{os.mkdir.__module__}.mkdir"]
    pickle.loads(data)
    assert sung.is_dir()
