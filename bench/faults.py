"""`make faults`: whether the tests find the faults of bench/faults.txt, named by the behaviour that breaks.

    python bench/faults.py map                 first: which tests come through which lines (takes an hour)
    python bench/faults.py map --children tests/cli/test_record.py
                                               so, too, for tests that start processes
    python bench/faults.py                     put in each fault, run the tests that come through its line
    python bench/faults.py gate "sign of"      only faults whose names or modules hold one of these texts
    python bench/faults.py --again             also those whose answer is known
    python bench/faults.py --keep              keep the answers in bench/faults_baseline.txt
    python bench/faults.py list                all names, by module

Both steps can be stopped at any time and go on where they were: what they found lies in bench/data/faults. A
fault is tried again when the file of the test that held it has changed, or what tests share; one that
survived, when any test has. It first meets the test that held it before. The end says which faults the
baseline holds and these tests do not.

A fault is `held by TEST` when one of these tests fails with it and passes without it, or comes to no end.
It `SURVIVES` where none does: the tests that come through its line, nearest first, then others of their
files, as long as they take under --seconds. It is `gone` where its text is not in the package any more.

To add a fault, write into bench/faults.txt

    # what breaks, as the user sees it            the name, unique
    tcp/link.py                                   the module, below rpcinspect/
      a line before                               as in a diff, but two places wide: lines that stay,
    - offset = start + 14                         lines that go,
    + offset = start + 12                         and lines that come
    tests: tests/cli/test_record.py               only where no test without child processes holds it

The lines must occur once in the module, at any indentation. Text that has moved to another module is found
there. tests/test_faults.py says which text is no longer there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from bench import faults_map  # noqa: E402
from bench.faults_list import LIST, Fault, broken, faults, found  # noqa: E402
from tests.places import SHARED, WITHOUT_SHARED  # noqa: E402

BASELINE = ROOT / "bench" / "faults_baseline.txt"
DATA = ROOT / "bench" / "data" / "faults"
MEMORY = 12 << 30
"""Bytes of address space of a run: a fault may take away a limit."""
SLACK = 60
"""Seconds that a run of tests may take beside four times what these took for the map."""
FIRST_SECONDS = 4
"""Seconds of tests that meet a fault first: most are held by these."""
OVERHEAD = 0.03
"""Seconds that each test takes beside its own."""
AT_MOST, FILES = 300, 10
"""Tests, and files of them, of one run: more would take too long to be collected."""


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the checkout with what is not committed, and the captures of others beside it."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        tree = Path(folder) / "tree"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
        )
        for name in listed.stdout.decode().split("\0"):
            if name and (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name)
        if not WITHOUT_SHARED:
            (Path(folder) / SHARED.name).symlink_to(SHARED.resolve())
        subprocess.run(
            [sys.executable, "-m", "compileall", "-q", "rpcinspect", "tests"], cwd=tree, check=False
        )
        yield tree


def pytest(
    tree: Path, arguments: list[str], limit: float, children: bool, **environment: str
) -> tuple[list[dict[str, Any]], bool]:
    """Runs tests in a copy: what each did, and whether they came to an end in time."""
    report = tree.parent / "report.jsonl"
    report.write_text("", encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env |= {"PYTHONPATH": str(tree), "FAULTS_REPORT": str(report), "TMPDIR": str(tree.parent), **environment}
    if not children:
        env["WITHOUT_CHILDREN"] = "1"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "bench.faults_pytest"]
    with (tree.parent / "output.txt").open("w") as output:
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=tree,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
        )
        try:
            process.wait(limit)
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()], ended


def make_map(paths: list[str], children: bool) -> None:
    """Runs each file of tests with marks in the package, and keeps what they came through."""
    with copied() as tree:
        marks = tree.parent / "marks"
        blocks = faults_map.mark(tree, marks)
        folder = DATA / "map"
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(blocks)
        if not (folder / "blocks.json").exists() or (folder / "blocks.json").read_text() != text:
            for report in folder.glob("report-*"):
                report.unlink()
            (folder / "blocks.json").write_text(text)
        chosen = [tree / path for path in paths or ["tests"]]
        files = sorted(
            file for path in chosen for file in (path.rglob("test_*.py") if path.is_dir() else [path])
        )
        for file in files:
            name = file.relative_to(tree).as_posix()
            content = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
            kept = (
                folder / f"report-{name.removesuffix('.py').replace('/', '.')}{'-children' * children}.jsonl"
            )
            known = kept.with_suffix(".key")
            if known.exists() and known.read_text() == content and kept.exists():
                continue
            began = time.monotonic()
            said, ended = pytest(tree, [name], 1200, children, FAULTS_PROBES=str(marks))
            kept.write_text("".join(json.dumps(one) + "\n" for one in said if "outcome" in one))
            known.write_text(content)
            passed = sum(one.get("outcome") == "passed" for one in said)
            failed = [one["test"] for one in said if one.get("outcome") == "failed"]
            late = "" if ended else ", stopped after 20 minutes"
            print(f"{name}: {passed} passed, {len(failed)} failed, {time.monotonic() - began:.0f} s{late}")
            for one in failed:
                print(f"  failed: {one}")
            sys.stdout.flush()


class Trial:
    """Faults, one after the other, in a copy of the checkout."""

    def __init__(self, tree: Path, seconds: float) -> None:
        self.tree = tree
        self.seconds = seconds
        self.map = faults_map.read(DATA / "map")
        self.excluded: set[str] = set()
        """Tests that fail without any fault."""
        self.passing: set[str] = set(self.map.tests)
        self.stamp = time.time() + 1000
        """When a module was last changed, in whole seconds as its compiled file has it: other each time."""

    def try_out(self, fault: Fault, before: str | None) -> dict[str, Any]:
        """What became of a fault."""
        place = found(fault, self.tree / "rpcinspect")
        if place is None:
            return {"result": "gone"}
        path, line, indent = place
        stat = path.stat()
        source = path.read_text(encoding="utf-8")
        text, changed = broken(source, fault, line, indent)
        compile(text, str(path), "exec")  # what is no Python any test would find
        module = path.relative_to(self.tree / "rpcinspect").as_posix()
        ran = 0
        for tests, children in self.choices(fault, module, changed, before):
            path.write_text(text, encoding="utf-8")
            self.stamp += 2
            os.utime(path, (self.stamp, self.stamp))
            try:
                by, how = self.failing(tests, children)
            finally:
                path.write_text(source, encoding="utf-8")
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            if by is not None and self.passes(by, children):
                return {"result": "held", "by": by, "how": how}
            ran += len(tests)
        direct, beside = self.map.covering(module, changed)
        return {
            "result": "SURVIVES",
            "ran": ran,
            "covering": len(direct),
            "beside": len(beside),
            "asked": [len(self.map.tests), self.seconds],
        }

    def choices(
        self, fault: Fault, module: str, line: int, before: str | None
    ) -> Iterator[tuple[list[str], bool]]:
        """Tests to run, likeliest first and few at first; whether they may start processes."""
        if before is not None and before in self.map.tests:
            yield [before], self.map.tests[before].children
        if fault.tests:
            yield list(fault.tests), True
        own = own_tests(module)
        if (self.tree / own).exists() and not any(name.startswith(f"{own}::") for name in self.map.tests):
            yield [own], False  # of which the map does not tell yet
        direct, beside = self.map.covering(module, line)
        if self.map.blocks.get(module, {}).get(line) is None:  # of a table or a class no test is known
            direct = self.near(module)
        for tests in (direct, beside):
            chosen: list[str] = []
            seconds, pause = 0.0, FIRST_SECONDS
            for name in sorted(tests, key=lambda name: self.distance(name, module)):
                took = self.map.tests[name].seconds + OVERHEAD
                files = {one.partition("::")[0] for one in (*chosen, name)}
                if chosen and (seconds + took > pause or len(chosen) == AT_MOST or len(files) > FILES):
                    yield chosen, any(self.map.tests[one].children for one in chosen)
                    chosen, pause = [], self.seconds
                if seconds + took > self.seconds:
                    break
                seconds += took
                if name not in self.excluded:
                    chosen.append(name)
            if chosen:
                yield chosen, any(self.map.tests[one].children for one in chosen)

    def near(self, module: str) -> list[str]:
        """The tests of files in the folder of a module's tests, and of those that name the module."""
        dotted = "rpcinspect." + module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        package, _, own = dotted.rpartition(".")
        named = (f"{dotted} import", f"import {dotted}", f"from {package} import {own}")
        files = {
            path.relative_to(self.tree).as_posix()
            for path in (self.tree / "tests").rglob("test_*.py")
            if any(name in path.read_text(encoding="utf-8") for name in named)
            or path.parent == (self.tree / "tests" / module).parent
        }
        return [name for name in self.map.tests if name.partition("::")[0] in files]

    def distance(self, test: str, module: str) -> tuple[int, int, float]:
        """How far a test is from a module: 0 for the file at its place; then by folders, then by time."""
        file = test.partition("::")[0]
        folder, own = Path(file).parent.parts[1:], Path(module).parent.parts
        same = sum(1 for one, other in zip(folder, own, strict=False) if one == other)
        return int(file != own_tests(module)), len(own) - same, self.map.tests[test].seconds

    def failing(self, tests: list[str], children: bool) -> tuple[str | None, str]:
        """The first of some tests that fails, and how; None where all pass."""
        order = self.tree.parent / "order.txt"
        order.write_text("\n".join(tests) + "\n", encoding="utf-8")
        whole = [name for name in tests if "::" not in name]  # a file: all of its tests
        taken = sum(self.map.tests[name].seconds for name in tests if name in self.map.tests)
        limit = SLACK + 4 * taken + 180 * len(whole)
        files = list(dict.fromkeys(name.partition("::")[0] for name in tests))
        files = [name for name in files if (self.tree / name).exists()]
        if not files:
            return None, ""
        more = {} if whole else {"FAULTS_ORDER": str(order)}
        said, ended = pytest(self.tree, ["-x", "--maxfail=1", *files], limit, children, **more)
        for one in said:
            if one.get("outcome") == "failed":
                return one["test"], "fails"
        open_tests = {one["test"] for one in said} - {one["test"] for one in said if "outcome" in one}
        if open_tests:
            return open_tests.pop(), "fails" if ended else "comes to no end"
        output = (self.tree.parent / "output.txt").read_text(errors="replace")
        if not said and "rror" in output:  # the package or its tests can't be imported
            return files[0], "can't be imported"
        return None, ""

    def passes(self, test: str, children: bool) -> bool:
        """Whether a test passes without a fault; asked once for each."""
        if test not in self.passing | self.excluded:
            by, _ = self.failing([test], children)
            (self.passing if by is None else self.excluded).add(test)
        return test in self.passing


def own_tests(module: str) -> str:
    """The file of tests at the place of a module."""
    path = Path(module)
    return f"tests/{path.with_name(f'test_{path.name}')}"


def results() -> dict[str, dict[str, Any]]:
    """What is known of each fault, by its key: the last answer counts."""
    path = DATA / "results.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {said["key"]: said for said in map(json.loads, lines)}


def tests_now(by: str | None) -> str:
    """Other for each change of the file of a test, or of what tests share; None: of any test."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if by is None or not path.name.startswith("test_") or by.startswith(f"{name}::"):
            digest.update(name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def run(chosen: list[Fault], again: bool, seconds: float) -> None:
    """Tries each fault that has no answer for these tests."""
    known = results()
    held = {name: by for name, by in baseline().items() if by}
    DATA.mkdir(parents=True, exist_ok=True)
    with copied() as tree:
        trial = Trial(tree, seconds)
        if not trial.map.tests:
            sys.exit("which tests come through which line is not known: first `python bench/faults.py map`")
        for fault in sorted(chosen, key=lambda fault: fault.key in known):  # what is not known first
            said = known.get(fault.key, {})
            asked = [len(trial.map.tests), seconds]
            same = said.get("tests") == tests_now(said.get("by"))
            if same and said.get("asked", asked) == asked and not again:
                continue
            began = time.monotonic()
            before = said.get("by") or held.get(fault.name)
            said = trial.try_out(fault, before)
            said |= {"key": fault.key, "name": fault.name, "tests": tests_now(said.get("by"))}
            said["seconds"] = round(time.monotonic() - began, 1)
            with (DATA / "results.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(said) + "\n")
            print(f"{answer(said)} [{said['seconds']} s]: {fault.name}", flush=True)


def answer(said: dict[str, Any]) -> str:
    """What became of a fault, in words."""
    if said["result"] == "held":
        return f"held by {said['by']}" + (f" ({said['how']})" if said["how"] != "fails" else "")
    if said["result"] == "SURVIVES":
        through = f"{said['covering']} come through its line, {said['beside']} are beside these"
        return f"SURVIVES {said['ran']} tests ({through})"
    return "gone"


def baseline() -> dict[str, str]:
    """The name of each fault in the baseline → the test that held it, "" where none did."""
    if not BASELINE.exists():
        return {}
    lines = BASELINE.read_text(encoding="utf-8").splitlines()
    return {name: by for name, _, by in (line.partition(" | ") for line in lines)}


def tell(chosen: list[Fault], keep: bool) -> int:
    """Prints what is known; 1 where a fault survives that the baseline holds, or is gone."""
    known, before = results(), baseline()
    told = {fault.name: known[fault.key] for fault in chosen if fault.key in known}
    for result in ("SURVIVES", "gone"):
        names = [name for name, said in told.items() if said["result"] == result]
        print(f"\n{result}: {len(names)}" + "".join(f"\n  {name}" for name in names))
    held = [name for name, said in told.items() if said["result"] == "held"]
    lost = [name for name, said in told.items() if said["result"] != "held" and before.get(name)]
    print(f"\nheld: {len(held)} of {len(chosen)}; no answer yet: {len(chosen) - len(told)}")
    if before:
        print(f"held in the baseline, and lost: {len(lost)}")
        for name in lost:
            print(f"  {name}, by {before[name]}")
    if keep:
        lines = [f"{name} | {said.get('by', '')}\n" for name, said in told.items()]
        BASELINE.write_text("".join(lines), encoding="utf-8")
    return int(bool(lost))


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("words", nargs="*", help="map, list, or texts in names or modules of faults")
    options.add_argument("--children", action="store_true", help="map: let the tests start processes")
    options.add_argument("--again", action="store_true", help="also faults whose answer is known")
    options.add_argument("--keep", action="store_true", help="keep the answers as the baseline")
    options.add_argument(
        "--seconds", type=float, default=40, metavar="S", help="tests of S seconds for each fault (40)"
    )
    chosen = options.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # nothing is left behind
    if chosen.words[:1] == ["map"]:
        make_map(chosen.words[1:], chosen.children)
        return 0
    every = faults(LIST.read_text(encoding="utf-8"))
    if chosen.words[:1] == ["list"]:
        for fault in sorted(every, key=lambda fault: fault.module):
            print(f"{fault.module}: {fault.name}")
        return 0
    words = chosen.words or [""]
    some = [one for one in every if any(word in one.name or word in one.module for word in words)]
    run(some, chosen.again, chosen.seconds)
    return tell(some, chosen.keep)


if __name__ == "__main__":
    sys.exit(main())
