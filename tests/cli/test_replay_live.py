"""`rpcinspect replay` with live workers: what is written, exit codes, and that nothing is left behind."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests import forks
from tests.cli.runner import CAPTURES, CHAIN, HIDDEN, Ran, rpcinspect, visible
from tests.forks import command
from tests.replayer.left_behind import descendants, temporary_folders
from tests.views.replay.test_replay_json import check_contract

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_left")

BASIC = CAPTURES / "transport_matrix_uv_basic.pcap.gz"
"""worker0 sends four requests and a cleanup; one gradient in each direction."""

SCALE = "def scale(x, weight, gain=1.0):\n    "


def replay(*arguments: object, stdin: bytes = b"") -> Ran:
    return rpcinspect("replay", *arguments, stdin=stdin)


def job(folder: Path, body: str) -> Path:
    """A module for the bundled chain whose function does something else than when it was captured."""
    (folder / "basic_chain.py").write_text(f"import os, time\nimport torch\n{SCALE}{body}\n")
    return folder


def test_everything_identical() -> None:
    ran = replay(BASIC, "--path", CAPTURES, "--require-all")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "session 1 of 1: worker0 played, worker1 live"
    assert lines[-1] == "identical: 2 of 2 gradients, 5 of 5 answers; 4 skipped (4 control)"
    assert visible(ran.out)


@pytest.mark.parametrize(("arguments", "code"), [((BASIC,), 4), ((CAPTURES / "basic_chain.py",), 3)])
def test_what_is_not_replayed_leaves_nothing(arguments: tuple[Path], code: int) -> None:
    """The parent of live workers had begun meanwhile."""
    assert replay(*arguments).code == code


def test_by_torchs_own_agent() -> None:
    ran = replay(BASIC, "--path", CAPTURES, "--engine", "agent", "--format", "jsonl")
    assert ran.code == 0
    check_contract(ran.objects)
    report = ran.objects[-1]
    assert (report["verdict"], report["engine"], report["device"]) == ("identical", "agent", "cpu")
    assert report["gradients"]["identical"] == report["gradients"]["expected"] == 2
    skipped = [line["reason"] for line in ran.objects if line["kind"] == "step" and line["action"] == "skip"]
    assert all(reason.startswith(("control: ", "unsupported: torch's agent answers")) for reason in skipped)


def test_a_gpu_that_torch_does_not_have() -> None:
    if not without_gpu():
        pytest.skip("there is a GPU")
    ran = replay(BASIC, "--path", CAPTURES, "--device", "cuda")
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert "--device cuda: PyTorch" in line


def without_gpu() -> bool:
    asked = "import torch; raise SystemExit(torch.cuda.is_available())"
    return forks.run([sys.executable, "-c", asked], timeout=120).returncode == 0


def test_a_helper_that_this_release_of_torch_lacks(tmp_path: Path) -> None:
    """Told before anything is sent; the rest is replayed."""
    capture = tmp_path / "other.pcap"
    data = gzip.decompress((CAPTURES / "pairs" / "base.pcap.gz").read_bytes())
    capture.write_bytes(data.replace(b"_new_script_local_optimizer", b"_new_future_local_optimizer"))
    options = ("--path", CAPTURES, "--trust-capture", "--quiet-workers", "--format", "jsonl")
    ran = replay(capture, *options)
    name = "torch.distributed.optim.optimizer._new_future_local_optimizer"
    told = [line for line in ran.err.splitlines() if name in line]
    assert len(told) == 1
    assert f" lacks {name}, needed by #9; --interpreter PY replays with another" in told[0]
    report = ran.objects[-1]
    assert told[0].removeprefix("rpcinspect: ") in report["notes"]
    (step,) = (line for line in ran.objects if line.get("message") == 9 and line["kind"] == "step")
    assert step["result"] == "different"
    assert report["gradients"]["identical"] >= 6


def test_json_lines(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    options = ("--allow", "transport_matrix", "--import", "transport_matrix", "--path", CAPTURES)
    ran = replay("-", "--format", "jsonl", "-o", out, *options, stdin=BASIC.read_bytes())
    assert (ran.code, ran.out) == (0, "")
    objects = Ran(0, out.read_text(), "").objects
    check_contract(objects)
    assert objects[-1]["verdict"] == "identical"
    assert objects[-1]["gradients"]["identical"] == objects[-1]["gradients"]["expected"] == 2
    assert [line["captured"] for line in objects if line["kind"] == "inbound"] == [13, 18]


def test_a_function_that_does_something_else(tmp_path: Path) -> None:
    path = job(tmp_path, "return torch.clamp(x * weight, -1, 1) * gain * 1.001")
    ran = replay(CHAIN, "--path", path, "--format", "jsonl")
    assert ran.code == 1
    check_contract(ran.objects)
    made = ran.objects[-1]
    assert made["verdict"] == "different"
    assert made["gradients"]["different"] >= 1
    (answer,) = (line for line in ran.objects if line.get("message") == 6)
    assert answer["result"] == "different"
    assert answer["difference"]["path"].startswith("tensors[0].elements[")
    assert answer["difference"]["captured"] != answer["difference"]["live"]
    near = replay(CHAIN, "--path", path, "--rtol", "0.5")
    assert near.code == 0
    assert near.out.splitlines()[-1].startswith("within the tolerance: ")


def test_refused(nothing_left: None) -> None:
    before = descendants(os.getpid())
    ran = replay(CHAIN, "--format", "jsonl")
    assert descendants(os.getpid()) == before
    assert ran.code == 4
    check_contract(ran.objects)
    assert ran.objects[-1]["verdict"] == "refused"
    table = replay(CHAIN)
    assert table.code == 4
    assert "REFUSED  basic_chain.scale" in table.out


@pytest.mark.parametrize("path", [HIDDEN, CAPTURES / "transport_matrix_uv_only.pcap.gz"])
def test_nothing_to_replay(path: Path) -> None:
    ran = replay(path, "--trust-capture")
    assert ran.code == 1
    assert ran.out.splitlines()[-1].startswith("nothing to replay: ")


def test_what_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "basic_chain.py").write_text("def scale(): ...\nraise OSError('no disk')")
    ran = replay(CHAIN, "--path", tmp_path, "--import", "basic_chain", "--format", "jsonl")
    assert ran.code == 1
    check_contract(ran.objects)
    made = ran.objects[-1]
    assert made["verdict"] == "failed"
    assert "no disk" in made["failures"][0]["text"]
    assert "no disk" in ran.err


def test_repetitions_a_seed_and_a_recording(tmp_path: Path) -> None:
    again = tmp_path / "again.pcap"
    options = ("--repeat", "2", "--seed", "7", "--threads", "2", "--record", again, "--gradients")
    ran = replay(BASIC, "--path", CAPTURES, *options)
    assert ran.code == 0
    assert "worker1 has no gradients in context 0:0" in ran.out
    assert f"recorded in {again}. " in ran.out
    assert rpcinspect("decode", again, "--strict", "--format", "jsonl").objects[-1]["messages"] >= 28
    assert ran.out.splitlines()[-1].startswith("identical (2 of 2 runs as captured): 2 of 2 gradients")


# --- as processes of their own ------------------------------------------------------------------------------


def start(*arguments: object) -> subprocess.Popen[str]:
    """As from a shell; the tests' own signal handlers don't reach it."""
    return command(
        *("replay", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=Path(__file__).resolve().parent.parent.parent,
    )


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("os._exit(3)", "the live worker worker1 ended with code 3; the last message sent to it is #6"),
        ("os.kill(os.getpid(), 9)", "the live worker worker1 was ended by SIGKILL; "),
        ("os.kill(os.getppid(), 9); time.sleep(5)", " is gone: its parent process was ended by SIGKILL"),
    ],
    ids=["the worker", "the worker, killed", "the parent of all, of which the socket breaks"],
)
def test_a_worker_that_ends_does_not_end_us(end: str, told: str, tmp_path: Path) -> None:
    path = job(tmp_path, f"print('about to go', flush=True); {end}")
    with start(CHAIN, "--path", path, "--timeout", "20") as running:
        out, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (1, "worker1 | about to go\n")
    assert not temporary_folders(tempfile.gettempdir(), running.pid)
    assert ("about to go" in out) or "kill" in end
    (line,) = (line for line in out.splitlines() if line.startswith("session 1 ended early: "))
    assert told in line
    assert out.splitlines()[-1].startswith(
        "failed: 4 of 4 gradients, 5 of 5 answers and 1 of 1 request don't match"
    )


def test_control_c(tmp_path: Path) -> None:
    began = tmp_path / "began"
    path = job(tmp_path, f"open({str(began)!r}, 'w').close(); time.sleep(60)")
    before = descendants(forks.forks().pid)
    with start(CHAIN, "--path", path) as running:
        end = time.monotonic() + 40
        while not began.exists() and time.monotonic() < end:
            time.sleep(0.05)
        workers = descendants(running.pid) | descendants(forks.forks().pid) - before
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)
    assert running.returncode == 130, err
    assert workers
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    assert not temporary_folders(tempfile.gettempdir(), running.pid)
    assert out.splitlines()[-1].startswith("interrupted; nothing was compared")


def test_head_has_seen_enough() -> None:
    command = f"{sys.executable} -m rpcinspect replay {BASIC} --path {CAPTURES} --all | head -n 1"
    done = subprocess.run(
        command,
        shell=True,
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        cwd=CAPTURES.parent,
    )
    assert done.stdout == "session 1 of 1: worker0 played, worker1 live\n"
    assert done.stderr == ""
