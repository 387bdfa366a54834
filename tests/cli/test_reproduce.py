"""`rpcinspect reproduce`: what is written, what is refused, and that the scripts run alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forks
from tests.cli.runner import CAPTURES, CHAIN, HIDDEN, Ran, rpcinspect
from tests.places import recorded, recordings
from tests.replayer.hostile_captures import APP, SYSTEM, Job, called_with, sings

SECONDS = 240


def export(capture: object, folder: Path, *options: object) -> Ran:
    return rpcinspect("reproduce", capture, "--path", CAPTURES, "-o", folder, *options)


def alone(folder: Path, *command: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script where rpcinspect can't be imported, from another folder."""
    blocked = tmp_path / "blocked"
    (blocked / "rpcinspect").mkdir(parents=True, exist_ok=True)
    (blocked / "rpcinspect/__init__.py").write_text(
        "raise ImportError('rpcinspect is not to be used here')\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    return forks.run(
        [sys.executable, "-W", "ignore", *(command or (str(folder / "reproduce.py"),))],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(blocked), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        timeout=SECONDS,
    )


def verdict(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stdout.splitlines() if not line.startswith("TRUTH ")]
    return lines[-1] if lines else done.stderr


def test_what_is_said(tmp_path: Path) -> None:
    ran = export(CHAIN, tmp_path / "out")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.splitlines() == [
        f"rpcinspect: {tmp_path / 'out' / 'reproduce.py'}: 2 calls; it compares 2 answers and 4 gradients"
    ]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "reproduce.py",
        "tensors.safetensors",
    ]


def test_a_remote_module(tmp_path: Path) -> None:
    """No file has the module of torch's helper for it; and `--import` names one of the user's."""
    job = recorded("reports/job")
    seeds = ("--seed", "worker1=101", "--seed", "worker2=102", "--import", "train")
    options = ("--main", job / "train.py", *seeds, "--context", "0:0")
    ran = rpcinspect("reproduce", recorded("reports/job/plain.pcap"), "-o", tmp_path / "out", *options)
    assert ran.code == 0, ran.err
    done = alone(tmp_path / "out", tmp_path=tmp_path)
    assert (done.returncode, verdict(done)) == (0, "identical: 3 of 3 gradients, 10 of 10 answers"), (
        done.stderr
    )


@pytest.mark.parametrize("path", recordings("torch-suite", like="RemoteModule*"), ids=lambda one: one.name)
def test_remote_modules_of_pytorchs_tests(path: Path, tmp_path: Path) -> None:
    """Scripted ones, whose functions are in a module that torch makes, and one that is sent itself."""
    ran = rpcinspect("reproduce", path, "-o", tmp_path / "out", "--trust-capture")
    assert ran.code == 0, ran.err
    done = alone(tmp_path / "out", tmp_path=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"identical: 0 of 0 gradients, (\d+) of \1 answers", verdict(done)), done.stderr


def test_refused(tmp_path: Path) -> None:
    ran = rpcinspect("reproduce", CHAIN, "-o", tmp_path / "out")
    assert ran.code == 4
    assert "refused: basic_chain.scale: you haven't allowed it (#6)" in ran.err
    assert "To allow this, add: --allow basic_chain:scale" in ran.err
    assert not (tmp_path / "out").exists()
    trusted = rpcinspect("reproduce", CHAIN, "-o", tmp_path / "out", "--trust-capture")
    assert trusted.code == 0
    assert "--trust-capture" in trusted.err


@pytest.mark.parametrize("capture", [HIDDEN, CAPTURES / "transport_matrix_uv_only.pcap.gz"])
def test_nothing_to_export(capture: Path, tmp_path: Path) -> None:
    ran = export(capture, tmp_path / "out")
    assert ran.code == 1
    assert "nothing to reproduce" in ran.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "Missing option '-o' / '--output'"),
        (["-o", "x", "--message", "3", "--context", "0"], "can't be used together"),
        (["-o", "x", "--main", "my-job.py"], "can't import a module of that name"),
        (["-o", "x", "--import", "a-b"], "not the name of a module"),
        (["-o", "x", "--seed", "x"], "not N or NAME=N"),
        (["-o", "x", "--tolerance"], "No such option"),
    ],
)
def test_wrong_usage(options: list[str], said: str) -> None:
    ran = rpcinspect("reproduce", CHAIN, *options)
    assert ran.code == 2
    assert said in ran.err


def test_a_message_that_is_not_there(tmp_path: Path) -> None:
    ran = export(CHAIN, tmp_path / "out", "--message", 999)
    assert ran.code == 2
    assert "no request #999" in ran.err


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    ran = export(CHAIN, tmp_path / "out")
    assert ran.code == 2
    assert "can't be written" in ran.err


def test_require_all(tmp_path: Path) -> None:
    assert export(CHAIN, tmp_path / "out", "--require-all").code == 0
    zoo = export(CAPTURES / "dtype_zoo.pcap.gz", tmp_path / "zoo", "--require-all")
    assert zoo.code == 1
    assert "--require-all: 2 requests skipped" in zoo.err


def test_functions_of_the_jobs_script(tmp_path: Path) -> None:
    """They were pickled as `__mp_main__.leaf`; the script imports them from the file."""
    options = ("--main", recorded("torch/scripts/nested.py"), "-o", tmp_path / "out")
    assert rpcinspect("reproduce", recorded("torch/nested.pcap"), *options).code == 0
    script = (tmp_path / "out/reproduce.py").read_text()
    assert re.search(r"^from nested import (\w+, )*mid", script, re.MULTILINE)
    assert "__mp_main__" not in script
    without = rpcinspect("reproduce", recorded("torch/nested.pcap"), "-o", tmp_path / "no", "--trust-capture")
    assert "--main FILE tells which it is" in without.err


# --- the scripts run alone ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rref_relay.pcap.gz", "identical: 1 of 1 gradients, 12 of 12 answers"),
        ("pairs/base.pcap.gz", "identical: 12 of 12 gradients, 29 of 29 answers"),
        ("ctx_crowd.pcap.gz", "identical: 10 of 10 gradients, 16 of 16 answers"),
        ("dtype_zoo.pcap.gz", "identical: 0 of 0 gradients, 43 of 43 answers"),
        ("bwd_boom.pcap.gz", "identical: 1 of 1 gradients, 1 of 1 answers"),
        ("ps_race_lock.pcap.gz", "identical: 12 of 12 gradients, 54 of 54 answers"),
    ],
)
def test_alone_it_says_identical(name: str, said: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert export(CAPTURES / name, tmp_path / "out").code == 0
    done = alone(tmp_path / "out", tmp_path=tmp_path)
    assert (verdict(done), done.returncode) == (said, 0), done.stdout + done.stderr


@pytest.mark.slow
def test_an_error_that_comes_again(tmp_path: Path) -> None:
    """The job raises where its own program says so by a variable of the module, which no message tells. What
    lies beside the script comes first."""
    pytest.importorskip("torch")
    assert export(CAPTURES / "pairs/error.pcap.gz", tmp_path / "out").code == 0
    job = (CAPTURES / "training.py").read_text(encoding="utf-8")
    (tmp_path / "out/training.py").write_text(
        job.replace('_switch = ""', '_switch = "error"'), encoding="utf-8"
    )
    done = alone(tmp_path / "out", tmp_path=tmp_path)
    said = "identical: 12 of 12 gradients, 29 of 29 answers"
    assert (verdict(done), done.returncode) == (said, 0), done.stdout + done.stderr


def tampered(folder: Path, entry: str) -> None:
    """The last bit of a tensor's first byte is another."""
    path = folder / "tensors.safetensors"
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    data[start + json.loads(data[8:start])[entry]["data_offsets"][0]] ^= 1
    path.write_bytes(data)


@pytest.mark.slow
def test_a_bit_that_is_another_is_told(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert export(CHAIN, tmp_path / "out").code == 0
    tampered(tmp_path / "out", "7.0")
    tampered(tmp_path / "out", "15.0")
    done = alone(tmp_path / "out", tmp_path=tmp_path)
    said = "different: 1 of 4 gradients, 1 of 2 answers do not match"
    assert (verdict(done), done.returncode) == (said, 1), done.stdout + done.stderr
    for message in (6, 15):
        assert re.search(rf"message {message}: .*: 1 of 12 elements, first element 0: ", done.stdout), (
            done.stdout
        )


@pytest.mark.slow
def test_a_function_that_fails_now(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert export(CHAIN, tmp_path / "out").code == 0
    (tmp_path / "out/basic_chain.py").write_text("def scale(x, weight, gain):\n    raise KeyError('gone')\n")
    done = alone(tmp_path / "out", tmp_path=tmp_path)
    assert done.returncode == 1
    assert verdict(done) == "failed: 4 of 4 gradients, 2 of 2 answers do not match"
    assert "KeyError" in done.stdout


@pytest.mark.slow
def test_as_a_test_of_pytest(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert export(CHAIN, tmp_path / "out", "--pytest").code == 0
    tampered(tmp_path / "out", "7.0")
    test = str(tmp_path / "out/test_reproduce.py")
    done = alone(tmp_path / "out", "-m", "pytest", "-q", "-p", "no:cacheprovider", test, tmp_path=tmp_path)
    assert "1 failed, 6 passed" in done.stdout, done.stdout + done.stderr
    assert "test_answer[6]" in done.stdout


@pytest.mark.slow
def test_one_message_alone(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ran = export(CAPTURES / "pairs/base.pcap.gz", tmp_path / "out", "--message", 66)
    assert ran.code == 0
    assert "left out, which it does not depend on" in ran.err
    done = alone(tmp_path / "out", tmp_path=tmp_path)
    assert verdict(done).startswith("identical: "), done.stdout + done.stderr


@pytest.mark.parametrize("way", SYSTEM)
def test_code_in_a_pickle_is_refused_or_at_least_not_run_by_us(way: str, tmp_path: Path) -> None:
    canary, source = tmp_path / "canary", tmp_path / "src"
    source.mkdir()
    (source / "app.py").write_text(APP, encoding="utf-8")
    path = Job().call(called_with(sings(way, canary))).write(tmp_path)
    options = ("--path", source, "--allow", "app", "-o", tmp_path / "out")
    ran = rpcinspect("reproduce", path, *options)
    assert ran.code == 4
    assert not (tmp_path / "out").exists()
    trusted = rpcinspect("reproduce", path, *options, "--trust-capture")
    assert trusted.code in (0, 1)
    if trusted.code == 0:
        compile((tmp_path / "out/reproduce.py").read_text(), "reproduce.py", "exec")
    assert not canary.exists()
