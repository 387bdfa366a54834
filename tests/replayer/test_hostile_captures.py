"""Captures that an attacker hands out: refused, or without harm. With `--trust-capture` it is a live worker
that runs them, never this process.

Every canary is a file that the attack writes; that it sings where everything is trusted shows that it can.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.rpc.tensor import TensorMeta, to_tensor_table
from tests.cli.runner import CAPTURES, CHAIN, Ran, rpcinspect
from tests.forks import forks, python
from tests.replayer.hostile_captures import APP, SYSTEM, Job, called_with, sings
from tests.replayer.left_behind import descendants
from tests.replayer.talks import udf

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_left")

TRUSTED = "live workers run everything that this capture names"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A folder with the user's module."""
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "app.py").write_text(APP, encoding="utf-8")
    return folder


def refused_names(ran: Ran) -> list[str]:
    return [use["name"] for use in ran.objects[-1]["refused"]]


@pytest.mark.parametrize("where", ["request", "answer"])
@pytest.mark.parametrize("way", SYSTEM)
def test_code_in_a_pickle_is_refused(way: str, where: str, app: Path, tmp_path: Path) -> None:
    """Even if the user allows everything in his own module."""
    canary = tmp_path / "canary"
    evil = sings(way, canary)
    if where == "request":
        path = Job().call(called_with(evil)).write(tmp_path)
    else:
        path = Job().call(udf("app.ask"), back=b"\x80\x04" + evil + b".").write(tmp_path)
    before = descendants(os.getpid())
    ran = rpcinspect("replay", path, "--path", app, "--allow", "app", "--format", "jsonl")
    assert ran.code == 4
    assert ran.objects[-1]["verdict"] == "refused"
    assert refused_names(ran)
    assert descendants(os.getpid()) == before
    assert not canary.exists()


def test_with_trust_it_is_a_live_worker_that_runs_it(app: Path, tmp_path: Path) -> None:
    job, canaries = Job(), {way: tmp_path / f"canary {n}" for n, way in enumerate(SYSTEM)}
    for way, canary in canaries.items():
        job.call(called_with(sings(way, Path(f"'{canary}'"))))
    last = tmp_path / "answer"
    job.call(udf("app.ask"), back=b"\x80\x04" + sings("by its name", last) + b".")
    path = job.write(tmp_path)
    ran = rpcinspect("replay", path, "--path", app, "--trust-capture", "--format", "jsonl")
    assert TRUSTED in ran.err
    assert (ran.code, ran.objects[-1]["verdict"], ran.objects[-1]["trusted"]) == (0, "identical", True)
    singers = {int(canary.read_text()) for canary in (*canaries.values(), last)}
    assert len(singers) == 1
    assert os.getpid() not in singers


WATCHED = """
import os, sys

def watch(event, arguments):
    if event in ("pickle.find_class", "os.system"):
        os.write(2, f"{event} {arguments}".encode())
        os._exit(99)

sys.addaudithook(watch)
sys.argv[0] = "rpcinspect"
from rpcinspect.cli import main
try:
    main()
finally:
    if "torch" in sys.modules:
        os._exit(98)
"""


def test_this_process_loads_no_pickle(app: Path, tmp_path: Path) -> None:
    """Neither of the capture nor of a live worker, whatever is trusted."""
    canary = tmp_path / "canary"
    back = b"\x80\x04" + sings("by its name", tmp_path / "answer") + b"."
    evil = Job().call(called_with(sings("by its name", canary))).call(udf("app.ask"), back=back)
    forks()
    for arguments in (
        [evil.write(tmp_path), "--path", app, "--trust-capture"],
        [CHAIN, "--path", CAPTURES, "--gradients", "--record", tmp_path / "again.pcap"],
    ):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
        with python("-c", WATCHED, "replay", *arguments, cwd=CAPTURES.parent, **pipes) as process:
            out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert out.splitlines()[-1].startswith("identical")
    assert canary.exists()


# --- what must not end a live worker ------------------------------------------------------------------------


def table(**changes: Any) -> bytes:
    """Of four floats in storage 0, but for the changes."""
    fields: dict[str, Any] = {
        "dtype": "float32",
        "sizes": (4,),
        "strides": (1,),
        "storage": 0,
        "storage_numel": 4,
    }
    return to_tensor_table([TensorMeta(**(fields | changes))])


@pytest.mark.parametrize(
    ("channel", "device"), [("cuda_basic", "cpu"), ("cuda_basic", "cuda:0"), ("basic", "cuda:7")]
)
def test_devices_that_nobody_has(channel: str, device: str, app: Path, tmp_path: Path) -> None:
    """A descriptor that names a GPU would end a live worker without one."""
    job = Job(channel).call(udf("app.f"), table=table(device=device), tensors=(bytes(16),))
    path = job.call(udf("app.f")).write(tmp_path)
    named = [p for m in rpcinspect("decode", path, "--format", "jsonl").objects for p in m.get("tensors", ())]
    assert {tensor["target_device"] for tensor in named} == {"cuda:0" if channel == "cuda_basic" else "cpu"}
    ran = rpcinspect("replay", path, "--path", app)
    assert ran.code == 0, ran.out
    assert "identical: no gradients, 2 of 2 answers" in ran.out


ABSURD = {
    "a storage of 4 TiB": table(storage_numel=1 << 40),
    "a tensor that reaches beyond its storage": table(sizes=(1 << 40,)),
    "an offset beyond its storage": table(storage_offset=1 << 50),
    "more elements than any job has": table(sizes=(1 << 40, 1 << 40), strides=(0, 0)),
    "a storage that is not there": table(storage=9),
    "integers that require grad": table(dtype="int32", requires_grad=True),
    "no device": table(device="xpu; rm -rf /"),
    "no table": b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.",
    "an unfinished table": table()[:-3],
}


def test_absurd_tensors_are_not_sent(app: Path, tmp_path: Path) -> None:
    """Each would end the live worker; the last call shows that it lives."""
    job = Job()
    for tensors in ABSURD.values():
        job.call(udf("app.f"), table=tensors, tensors=(bytes(16),))
    path = job.call(udf("app.f")).write(tmp_path)
    ran = rpcinspect("replay", path, "--path", app, "--format", "jsonl")
    sent = [line for line in ran.objects if line["kind"] == "step" and line["action"] == "send"]
    made = ran.objects[-1]
    assert ran.code == 1
    assert made["failures"] == []
    assert sent[-1]["result"] == "identical"
    assert all(line["result"] == "failed" and line["text"].startswith("not sent: ") for line in sent[:-1])
    assert made["failed"] == len(sent) - 1
    assert len(sent) + made["not_replayed"].get("missing-bytes", 0) == len(ABSURD) + 1
