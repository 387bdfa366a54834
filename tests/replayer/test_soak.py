"""Replays that go on for long, and replays whose workers are killed. Only where they are asked for:

    python bench/make.py small --iterations 10000 --name soak
    RPCINSPECT_SOAK=bench/data/soak.pcap pytest -m slow tests/replayer/test_soak.py

The first looks at every process of a replay while it runs: memory, file handles and threads must not grow.
The second kills live workers at random moments, each time another.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.replayer.left_behind import descendants

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = ROOT / "captures"
SOAK = os.environ.get("RPCINSPECT_SOAK")
KILLS = int(os.environ.get("RPCINSPECT_SOAK_KILLS", "40"))
SECONDS = 3600.0
ENDS_WITHIN = 60.0
"""Of the loss of a worker; a busy machine's."""
KIB_PER_MESSAGE = 6
"""Of the replaying process, which keeps every message and what came of it."""
GROWTH_MIB = 40
"""Of a live worker from the first quarter on: PyTorch itself keeps some of each context."""

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left")]


def replay(*arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rpcinspect", "replay", *map(str, arguments), "--format", "jsonl"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def sample(pid: int) -> tuple[int, int, int] | None:
    """(KiB resident, file handles, threads) of a process; None once it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        handles = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines())
    if "VmRSS" not in fields:
        return None
    return int(fields["VmRSS"].split()[0]), handles, int(fields["Threads"])


def lines_of(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_ten_thousand_contexts() -> None:
    if SOAK is None:
        pytest.skip("RPCINSPECT_SOAK names no capture, see the top of this file")
    output = Path(os.environ.get("TMPDIR", "/tmp")) / f"soak-{os.getpid()}.jsonl"
    process = replay(SOAK, "--path", ROOT / "bench", "--path", CAPTURES, "-o", output)
    seen: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    end = time.monotonic() + SECONDS
    try:
        while process.poll() is None:
            assert time.monotonic() < end, "it did not come to its end"
            for pid in (process.pid, *descendants(process.pid)):
                found = sample(pid)
                if found is not None:
                    seen[pid].append(found)
            time.sleep(1)
        _, err = process.communicate()
        told = lines_of(output.read_bytes())
    finally:
        process.kill()
        process.wait()
        output.unlink(missing_ok=True)
    report = told[-1]
    assert process.returncode == 0, (report, err[-2000:])
    steps = [line for line in told if line["kind"] == "step"]
    contexts = {step["message"] for step in steps if step["type"] == "FORWARD_AUTOGRAD_REQ"}
    sent = f"{report['sent']:,} sent, {report['wall_s']:.0f} s, {report['verdict']}"
    print(f"\n{len(contexts):,} contexts, {sent}")
    for pid, samples in seen.items():
        if len(samples) < 8:
            continue
        quarter = len(samples) // 4
        early, late = samples[quarter : 2 * quarter], samples[-quarter:]
        rss, handles, threads = ([max(one[i] for one in part) for part in (early, late)] for i in range(3))
        print(f"{pid}: {rss[0] >> 10} → {rss[1] >> 10} MiB, {handles} handles, {threads} threads")
        assert handles[1] <= handles[0] + 2
        assert threads[1] <= threads[0] + 2
        room = KIB_PER_MESSAGE * len(told) if pid == process.pid else GROWTH_MIB << 10
        assert rss[1] <= rss[0] + room
    assert len(contexts) >= 10_000


@pytest.mark.skipif(SOAK is None, reason="RPCINSPECT_SOAK is not set")
def test_workers_killed_at_random_moments() -> None:
    """It is told, everything is closed, and the exit code says so, soon."""
    draw = random.Random(1)
    outcomes: dict[str, int] = defaultdict(int)
    slowest = 0.0
    for number in range(KILLS):
        name = draw.choice(("basic_chain.pcap", "ps_race.pcap.gz", "rref_relay.pcap.gz", "ctx_crowd.pcap.gz"))
        process = replay(CAPTURES / name, "--path", CAPTURES, "--repeat", 3)
        time.sleep(draw.uniform(0.5, 8.0))
        children = list(descendants(process.pid))
        victim = draw.choice(children) if children else None
        if victim is not None:
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                victim = None
        began = time.monotonic()
        try:
            out, err = process.communicate(timeout=ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            pytest.fail(f"{number}: {name}: it went on for {ENDS_WITHIN} s after process {victim} was killed")
        slowest = max(slowest, time.monotonic() - began)
        assert b"Traceback (most recent call last)" not in err, err.decode()[-3000:]
        report = lines_of(out)[-1]
        assert report["kind"] == "report"
        assert process.returncode in (0, 1), err.decode()[-2000:]
        assert (process.returncode == 0) == (report["verdict"] in ("identical", "tolerance"))
        outcomes[report["verdict"] if victim is not None else "nobody to kill"] += 1
    print(f"\n{KILLS} kills: {dict(outcomes)}, the slowest end {slowest:.1f} s after it")
    assert outcomes["failed"]
