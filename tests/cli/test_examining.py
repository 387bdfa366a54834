"""`rpcinspect doctor`: what it says of this machine is what this machine says, and nothing stops it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.cli.examining import run_probe, states
from rpcinspect.cli.probes import MachineFact, told_by
from rpcinspect.recorder.library import AgentLook
from tests.cli.runner import rpcinspect, visible

KEYS = {"name", "state", "found", "needed_for", "remedy"}
NAMES = (
    *("rpcinspect", "system", "torch", "torch's RPC", "GPU", "agent"),
    *("packet capture", "dumpcap", "network namespace", "RDMA", "shared memory", "memory of others"),
    *("tshark", "textual", "daft", "debugpy", "mcp", "pyarrow", "pyshark", "pytest", "ray", "pyspark"),
    *("terminal", "temporary files"),
)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """One document of this machine, by names, with a cache that holds nothing; and that cache."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        ran = rpcinspect("doctor", "--format", "json")
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out), cache


def checks(document: dict[str, Any]) -> dict[str, Any]:
    return {check["name"]: check for check in document["checks"]}


def works(document: dict[str, Any]) -> dict[str, Any]:
    return {entry["command"]: entry["works"] for entry in document["commands"]}


def test_each_thing_has_a_line(here: tuple[dict[str, Any], Path]) -> None:
    document, _ = here
    assert [check["name"] for check in document["checks"]] == [*NAMES]
    for check in document["checks"]:
        assert check.keys() == KEYS
        assert check["state"] in ("ok", "missing", "none", "unknown")
        assert check["found"]
        assert check["needed_for"]


def test_the_machine_says_the_same(here: tuple[dict[str, Any], Path]) -> None:
    document, cache = here
    found = checks(document)
    for name in ("textual", "pyarrow", "pyshark", "mcp", "debugpy"):
        assert found[name]["found"] == version(name)
    assert found["torch"]["found"].startswith(f"{version('torch')} in {sys.executable}")
    assert found["torch's RPC"]["state"] == "ok"
    assert (found["tshark"]["state"] == "ok") == (shutil.which("tshark") is not None)
    compilers = [name for name in ("g++", "c++", "clang++") if shutil.which(name)]
    assert (found["agent"]["state"] == "ok") == bool(compilers)
    assert compilers[:1] == [found["agent"]["found"].split()[0]][: len(compilers)]
    assert [*cache.iterdir()] == []  # it has only looked
    assert (found["packet capture"]["state"] == "ok") == may_capture()
    assert works(document)["record --via wire"] == may_capture()
    if shutil.which("unshare"):
        command = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--user"]), "true"]
        made = subprocess.run(command, check=False, capture_output=True).returncode == 0
        assert (found["network namespace"]["state"] == "ok") >= made


def may_capture() -> bool:
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
    except OSError:
        return False
    return True


def test_a_table_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without programs, and with an interpreter that is not there: each is a line."""
    monkeypatch.setenv("PATH", "/nowhere")
    ran = rpcinspect("doctor", "--interpreter", "/no \x1b[31mpython")
    assert (ran.code, ran.err) == (0, "")
    assert visible(ran.out)
    lines = ran.out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("missing  tshark "))
    assert lines[at].endswith("not found (for captures that only Wireshark reads, --reader tshark)")
    assert lines[at + 1].strip().startswith("→ install it (Debian, Ubuntu: apt install tshark")
    assert "doctor" not in lines[at + 1]
    assert any(line.startswith("missing  torch ") and "there is no such program" in line for line in lines)
    said = {line[9:].partition("  ")[0]: line.split()[0] for line in lines[lines.index("") :] if line}
    assert said["decode of other formats"] == "no"
    assert said["replay"] == said["record --via agent"] == "no"
    assert said["decode, findings, diff, export"] == said["export parquet"] == "works"


def test_what_programs_say_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "tshark"
    fake.write_text("#!/bin/sh\nprintf 'TShark \\033[31m::error::x\\n'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    ran = rpcinspect("doctor", "--interpreter", "/nowhere/python")
    assert visible(ran.out)
    assert r"TShark \x1b[31m::error::x, without Lua" in ran.out


def test_a_probe_that_fails_or_hangs_is_a_line() -> None:
    def fails() -> Iterator[MachineFact]:
        yield MachineFact(name="seen", state="ok", found="x", needed_for="y")
        raise RuntimeError("broken")

    def hangs() -> Iterator[MachineFact]:
        time.sleep(60)
        yield from ()

    before = signal.getsignal(signal.SIGALRM)
    assert [(fact.name, fact.state, fact.found) for fact in run_probe("a", fails)] == [
        ("seen", "ok", "x"),
        ("a", "unknown", "RuntimeError: broken"),
    ]
    (fact,) = run_probe("b", hangs, seconds=0.05)
    assert (fact.state, fact.found) == ("unknown", "no answer within 0.05 s")
    assert signal.getsignal(signal.SIGALRM) == before


def test_what_nobody_answered_is_not_known_to_work() -> None:
    ok = {name: MachineFact(name=name, state="ok", found="x", needed_for="y") for name in NAMES}
    assert {state.works for state in states(ok)} == {True}
    late = MachineFact(name="torch's RPC", state="unknown", found="slow", needed_for="y")
    unknown = {state.command for state in states(ok | {"torch's RPC": late}) if state.works is None}
    assert unknown == {"record --via agent", "replay", "replay --device cuda", "replay --debug-port"}
    missing = MachineFact(name="packet capture", state="missing", found="not allowed", needed_for="y")
    said = {state.command: state for state in states(ok | {"packet capture": missing})}
    assert said["decode --live"].how == "by dumpcap"
    assert said["record --via wire"].how == "packet capture: not allowed"
    assert said["record --private-net"].works


def interpreter(folder: Path, script: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_torch_that_takes_long_is_not_waited_for(tmp_path: Path) -> None:
    look = AgentLook(interpreter(tmp_path, 'echo noise; echo \'{"compiler": "g++"}\'; exec sleep 60')).answer(
        0.5
    )
    assert (look.compiler, look.rpc, look.late) == ("g++", False, True)
    assert look.why == "importing torch takes longer than 0.5 s"


def test_torch_that_crashes_is_told(tmp_path: Path) -> None:
    look = AgentLook(interpreter(tmp_path, "echo '{\"rpc\": true}'; kill -SEGV $$")).answer(5)
    assert (look.rpc, look.late, look.why) == (True, False, "importing torch ended with code -11")


def test_programs_that_hang_or_fail_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpcinspect.cli.probes.ASK_S", 0.2)
    assert told_by([interpreter(tmp_path, "echo yes; exec sleep 60")]) == []
    assert told_by([interpreter(tmp_path, "echo yes; exit 3")]) == []
    assert told_by([interpreter(tmp_path, "echo yes")]) == ["yes"]
