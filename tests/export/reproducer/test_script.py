"""The text of a reproducer: Python that a person would write, nothing captured that could run by itself."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rpcinspect.export.reproducer.python_names import RESERVED
from rpcinspect.export.reproducer.reproduction import ReproductionOptions, reproduction
from rpcinspect.export.reproducer.script import Reproducer, Wanted, reproducer, unwritable
from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.workers.seeds import Seeds
from rpcinspect.run.run import RunModel
from tests.truth import CAPTURES

NAMES = (
    *("basic_chain.pcap", "param_detach.pcap", "rref_relay.pcap.gz", "ctx_crowd.pcap.gz", "bwd_boom.pcap.gz"),
    *("ps_race_lock.pcap.gz", "profiled_legacy.pcap", "dtype_zoo.pcap.gz", "views_alias.pcap.gz"),
    *("pairs/error.pcap.gz", "pairs/error_nested.pcap.gz", "faults/unused_result.pcap.gz", "reinit.pcap.gz"),
)


@cache
def written(name: str, **options: Any) -> Reproducer:
    """Of a bundled capture, with everything allowed."""
    wanted = Wanted(captures=(name,), folders=("", "../src"))
    with RunModel.open([str(CAPTURES / name)]) as opened:
        chosen = ReproductionOptions(trust=True, **options)
        made = reproduction(opened.session, opened.messages, chosen, ExecutionPolicy(), unwritable(wanted))
        return reproducer(made, wanted, opened.bytes)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_python_that_tools_have_nothing_against(name: str, tmp_path: Path) -> None:
    made = written(name)
    for file, text in (("reproduce.py", made.script), ("test_reproduce.py", made.test)):
        assert text.isascii()
        compile(text, file, "exec")
        (tmp_path / file).write_text(text)
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--isolated", "--no-cache", "."],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_it_needs_pytorch_and_the_users_modules_only(name: str) -> None:
    modules = set()
    for node in ast.walk(ast.parse(written(name).script)):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add((node.module or "").partition(".")[0])
    job = Path(name).name.partition(".")[0]
    job = {"ps_race_lock": "ps_race", "unused_result": "faults"}.get(job, job)
    job = "training" if name.startswith("pairs/") else job
    assert modules - set(sys.stdlib_module_names) == {"torch", job}


def test_the_excerpt_in_the_docs_is_real() -> None:
    page = (CAPTURES.parent / "docs/replay.md").read_text(encoding="utf-8")
    (excerpt,) = re.findall(r"^```python\n(def worker0\(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert excerpt in written("basic_chain.pcap").script


def test_only_one_message() -> None:
    made, whole = written("pairs/base.pcap.gz", message=66), written("pairs/base.pcap.gz")
    assert 0 < made.answers < whole.answers
    assert "ANSWERS = (8, 9, 66)" in made.script or "66" in made.script
    assert len(made.script) < len(whole.script)


@pytest.mark.parametrize("name", ["basic_chain.pcap", "ps_race_lock.pcap.gz", "ctx_crowd.pcap.gz"])
def test_the_same_capture_gives_the_same_bytes(name: str) -> None:
    again = written.__wrapped__(name)
    assert again.script == written(name).script
    assert again.tensors.entries == written(name).tensors.entries
    assert again.tensors.metadata() == written(name).tensors.metadata()


def test_seeds(tmp_path: Path) -> None:
    wanted = Wanted(captures=("x",), folders=("",), seeds=Seeds(everybody=7, own={"worker1": 8}))
    with RunModel.open([str(CAPTURES / "basic_chain.pcap")]) as opened:
        options = ReproductionOptions(trust=True)
        made = reproduction(opened.session, opened.messages, options, ExecutionPolicy(), unwritable(wanted))
        lines = reproducer(made, wanted, opened.bytes).script.splitlines()
    assert 'SEEDS = {"worker1": 8}' in lines
    assert "    seed = SEEDS.get(name, 7)" in lines
    assert "import random" in lines
    assert not any("seed" in line for line in written("basic_chain.pcap").script.splitlines())


def test_what_is_left_out_is_said_at_the_top() -> None:
    made = written("dtype_zoo.pcap.gz")
    assert [why for _, why in made.skipped] == [
        "unsupported: a tensor of bits8",
        "unsupported: a tensor of bits16",
    ]
    head = made.script.partition("import ")[0]
    assert "Not in it:" in head
    assert "a tensor of bits16" in head


def test_hostile_names_of_workers() -> None:
    evil = 'w"""\n\\\r\u2028\u202e\'; import os # {{ x }} \udc80'
    wanted = Wanted(captures=("x",), folders=("",))
    with RunModel.open([str(CAPTURES / "basic_chain.pcap")]) as opened:
        options = ReproductionOptions(trust=True)
        made = reproduction(opened.session, opened.messages, options, ExecutionPolicy(), unwritable(wanted))
        for call in (*made.calls.values(), *(g.call for g in (*made.sent.values(), *made.back.values()))):
            call.caller, call.callee = (evil + name for name in (call.caller, call.callee))
        made.workers = {
            job: tuple(replace(worker, name=evil + (worker.name or "")) for worker in its)
            for job, its in made.workers.items()
        }
        script = reproducer(made, wanted, opened.bytes).script
    assert script.isascii()
    tree = ast.parse(script)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    assert [alias.name for node in imports for alias in node.names].count("os") == 1
    (called,) = (
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "rpc.rpc_sync"
        and isinstance(node.args[0], ast.Constant)
        and "scale" in ast.unparse(node)
    )
    assert called == evil + "worker1"
    groups = next(node for node in tree.body if ast.unparse(node).startswith("GROUPS"))
    assert isinstance(groups, ast.Assign)
    assert [list(group) for group in _keys(groups.value)] == [[evil + "worker0", evil + "worker1"]]


def _keys(node: ast.expr) -> list[list[str]]:
    assert isinstance(node, ast.List)
    return [[ast.literal_eval(key) for key in one.keys] for one in node.elts if isinstance(one, ast.Dict)]


def test_every_name_of_the_script_is_reserved() -> None:
    """Names that the user's modules must not take."""
    tree = ast.parse(written("ps_race_lock.pcap.gz").script + written("ctx_crowd.pcap.gz").script)
    defined = {
        node.name
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("worker")
    }
    assert defined <= RESERVED
