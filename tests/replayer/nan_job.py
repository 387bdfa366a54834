"""The pipeline of three workers in captures/reports/job, whose gradients become NaN in its third step, and
what torch says of it by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import forks
from tests.places import recorded

JOB = recorded("reports/job")
CAPTURE = recorded("reports/job/nan.pcap")
SEEDS = ("--seed", "worker1=101", "--seed", "worker2=102")
"""As the job seeds its workers."""
ALLOWED = tuple(recorded("reports/job/allow.txt").read_text(encoding="utf-8").split())
FORWARD, BACKWARD = 102, 106
"""Messages of the third step: the call of Stage2, and the gradient for its answer."""


def options(folder: Path = JOB) -> tuple[str, ...]:
    """The options of a replay of it, with the sources in a folder."""
    return (*("--path", str(folder), "--main", str(folder / "train.py")), *SEEDS, *ALLOWED)


def replay(
    *arguments: object, typed: Sequence[str] = (), folder: Path = JOB, capture: Path = CAPTURE
) -> subprocess.CompletedProcess[Any]:
    """Replays it with these lines as standard input."""
    given = "".join(f"{line}\n" for line in typed)
    return forks.ran(
        *("replay", capture, *options(folder), *arguments),
        given=given,
        timeout=100,
        stdin=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def changed(folder: Path, *changes: tuple[str, str]) -> Path:
    """Writes the sources to a folder with other lines; returns it."""
    text = (JOB / "train.py").read_text(encoding="utf-8")
    for before, after in changes:
        assert text.count(before) == 1
        text = text.replace(before, after)
    (folder / "train.py").write_text(text, encoding="utf-8")
    return folder


def line_of(text: str, folder: Path = JOB) -> int:
    """The number of the one line of the job that holds a text."""
    lines = (folder / "train.py").read_text(encoding="utf-8").splitlines()
    (number,) = [at for at, line in enumerate(lines, 1) if text in line]
    return number


def gradients_of_first_step() -> dict[str, bytes]:
    """What torch computes in one process, by the names of parameters."""
    ran = forks.run([sys.executable, "-c", FIRST_STEP, str(JOB)], timeout=60, check=True)
    return {name: bytes.fromhex(data) for name, data in json.loads(ran.stdout).items()}


FIRST_STEP = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch, train
torch.set_num_threads(1)
torch.manual_seed(101)
one = train.Stage1("nan")
torch.manual_seed(102)
two = train.Stage2("nan")
torch.manual_seed(7)
x, y = torch.randn(6, 8), torch.randn(6, 4)
((two(one(x)) - y) ** 2).mean().backward()
print(json.dumps({
    f"{type(stage).__name__}.{name}": bytes(parameter.grad.flatten().view(torch.uint8).tolist()).hex()
    for stage in (one, two) for name, parameter in stage.named_parameters()
}))
"""
