"""Fuzzing: `python -m tests.fuzz.run --seconds 3600` spends this time on all targets, one after the other.

Each target runs in a process of its own, guided by coverage where atheris is installed (`pip install -e
'.[fuzz]'`), else by chance alone. A fault does not end it: the input and its traceback go to `--out`, one for
each place in our code that raised, and it goes on. At the end the faults are listed; the exit code is 1 if
there are any. `python -m tests.fuzz.run --target jit --input FILE` runs one input again. `gate` is none of
these targets, but the model test of the gate (`tests/fuzz/model/hunt.py`), which needs torch.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.fuzz.bounds import TooMuch, bounded
from tests.fuzz.mutation import MAX_BYTES

GATE = "gate"
GATE_WEIGHT = 16
"""Its part of the time, as a target's: some 100,000 pickles of an hour."""
SLOWER = 6
"""How much slower code is that tells its coverage."""


class Faults:
    """Inputs that broke something, one for each place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[str] = set()
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, data: bytes, fault: BaseException) -> None:
        frames = traceback.extract_tb(fault.__traceback__)
        own = [f for f in frames if "rpcinspect" in f.filename or "/fuzz/" in f.filename]
        ours = own[-1:] if not isinstance(fault, TooMuch) else own[3:6]
        where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(ours))
        name = hashlib.sha256(f"{type(fault).__name__} {where}".encode()).hexdigest()[:12]
        if name in self._known:
            return
        self._known.add(name)
        (self._folder / f"{name}.bin").write_bytes(data)
        text = "".join(traceback.format_exception(fault))
        (self._folder / f"{name}.txt").write_text(
            f"{type(fault).__name__} at {where}\n\n{text}", errors="replace"
        )
        print(f"FAULT {name}: {type(fault).__name__}: {str(fault)[:200]} at {where}", flush=True)


def fuzz(name: str, seconds: float, seed: int, folder: Path, corpus_dir: Path) -> int:
    """One target in this process."""
    try:
        import atheris
    except ImportError:
        return _by_chance(name, seconds, seed, folder)
    with atheris.instrument_imports(include=["rpcinspect"]):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    faults = Faults(folder / name)
    runs = 0

    def one(data: bytes) -> None:
        nonlocal runs
        runs += 1
        try:
            with bounded(target.seconds * SLOWER, target.mib):
                target.run(data)
        except Exception as fault:
            faults.add(data, fault)

    def change(data: bytes, size: int, draw_seed: int) -> bytes:
        draw = random.Random(draw_seed)
        if draw.random() < 0.3:
            return bytes(atheris.Mutate(data, size))
        return target.change(data, draw)[:size]

    begin = time.monotonic()
    arguments = [sys.argv[0], f"-max_total_time={int(seconds)}", f"-seed={seed}", f"-max_len={MAX_BYTES}"]
    arguments += [
        "-rss_limit_mb=2048",
        "-timeout=60",
        "-print_final_stats=1",
        "-verbosity=0",
        "-len_control=0",
    ]
    arguments += [f"-artifact_prefix={folder / name}/", str(corpus_dir)]
    atheris.Setup(arguments, one, custom_mutator=change)
    try:
        atheris.Fuzz()
    finally:
        print(f"{name}: {runs} runs in {time.monotonic() - begin:.0f} s", flush=True)
    return 0


def _by_chance(name: str, seconds: float, seed: int, folder: Path) -> int:
    from tests.fuzz.targets import TARGETS

    target = TARGETS[name]
    faults, draw = Faults(folder / name), random.Random(seed)
    seeds = [s for s in target.seeds() if len(s) <= MAX_BYTES]
    end, runs = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        data = draw.choice(seeds)
        for _ in range(draw.choice((1, 1, 2, 4))):
            data = target.change(data, draw)
        runs += 1
        try:
            with bounded(target.seconds, target.mib):
                target.run(data)
        except Exception as fault:
            faults.add(data, fault)
    print(f"{name}: {runs} runs in {seconds:.0f} s, without atheris", flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", default=[])
    parser.add_argument("--out", type=Path, default=Path("fuzz-out"))
    parser.add_argument("--input", type=Path, help="run this input of --target once")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        return fuzz(asked.child, asked.seconds, asked.seed, asked.out, asked.out / "corpus" / asked.child)
    from tests.fuzz import corpus
    from tests.fuzz.targets import TARGETS

    names = asked.target or [*TARGETS, GATE]
    if asked.input is not None:
        target = TARGETS[names[0]]
        with bounded(target.seconds, target.mib):
            target.run(asked.input.read_bytes())
        print("nothing is wrong")
        return 0
    corpus.write(asked.out / "corpus")
    weights = {**{name: target.weight for name, target in TARGETS.items()}, GATE: GATE_WEIGHT}
    second = asked.seconds / sum(weights[name] for name in names)
    for name in names:
        own = [f"--seconds={second * weights[name]}", f"--seed={asked.seed}"]
        if name == GATE:
            own = ["tests.fuzz.model.hunt", *own, "--pickles=10000000", f"--out={asked.out / GATE}"]
        else:
            own = ["tests.fuzz.run", f"--child={name}", *own, f"--out={asked.out}"]
        log = (asked.out / f"{name}.log").open("ab")
        with log, tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "TMPDIR": folder}
            subprocess.run(
                [sys.executable, "-m", *own],
                check=False, stdout=log, stderr=subprocess.STDOUT, env=environment,
            )  # fmt: skip
    faults = sorted(path for name in names for path in (asked.out / name).glob("*.txt"))
    for path in faults:
        print(f"{path}: {path.read_text(errors='replace').splitlines()[0]}")
    print(f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
