"""The composite action: its steps are run as a runner runs them, with what its inputs may hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from rpcinspect import __version__
from tests.github_runner import commands
from tests.junit import cases_of
from tests.places import ROOT

FOLDER = ROOT / ".github" / "actions" / "rpcinspect"
ACTION: dict[str, Any] = yaml.safe_load((FOLDER / "action.yml").read_text(encoding="utf-8"))
INSTALL, RUN = ACTION["runs"]["steps"]
CAPTURES = ROOT / "captures"
EXPRESSION = re.compile(r"\$\{\{ ([a-z_.-]+) \}\}")


class Runner:
    """What GitHub's runner does with a composite action, in a folder."""

    def __init__(self, folder: Path, **inputs: str) -> None:
        self.folder = folder
        given = {name: entry.get("default", "") for name, entry in ACTION["inputs"].items()} | inputs
        self.known = {f"inputs.{name}": value for name, value in given.items()}
        self.known["github.action_path"] = str(FOLDER)
        self.environment: dict[str, str] = {}

    def step(self, step: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        """Runs a step and keeps its outputs."""
        script, output = self.folder / "step.sh", self.folder / "output"
        script.write_text(step["run"])
        output.write_text("")
        own = {
            name: EXPRESSION.sub(lambda found: self.known[found[1]], str(value))
            for name, value in step["env"].items()
        }
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
            check=False,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            cwd=self.folder,
            env={
                "PATH": programs,
                "HOME": str(self.folder),
                "PYTHONPATH": str(ROOT),
                "LC_ALL": "C.UTF-8",
                "GITHUB_ACTIONS": "true",
                "GITHUB_OUTPUT": str(output),
                "RUNNER_TEMP": str(self.folder),
                **self.environment,
                **own,
            },
        )
        for line in output.read_text().splitlines():
            name, _, value = line.partition("=")
            self.known[f"steps.{step['id']}.outputs.{name}"] = value
        return done


def ran(folder: Path, **inputs: str) -> tuple[Runner, subprocess.CompletedProcess[str]]:
    """Both steps, with the rpcinspect of this checkout."""
    runner = Runner(folder, package="none", **inputs)
    done = runner.step(INSTALL)
    assert (done.returncode, done.stderr) == (0, "")
    return runner, runner.step(RUN)


def test_inputs_are_no_part_of_a_script() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
    used = set(EXPRESSION.findall((FOLDER / "action.yml").read_text()))
    assert {name for name in used if name.startswith("inputs.")} == {
        f"inputs.{name}" for name in ACTION["inputs"]
    }


def test_findings_fail_the_step_and_leave_a_report(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for name in ("a run.pcap.gz", "-o.pcap.gz"):  # the second is no option
        (tmp_path / "runs" / name).symlink_to(CAPTURES / "bwd_boom.pcap.gz")
    runner, done = ran(tmp_path, captures="runs/a *.gz\n")
    assert done.returncode == 1, done.stderr
    assert runner.known["steps.run.outputs.exit-code"] == "1"
    assert [command.name for command in commands(done.stderr)] == ["error"] * 2
    assert cases_of((tmp_path / "rpcinspect.xml").read_bytes())["error-response"].outcome == "failure"
    assert ran(tmp_path, captures="runs/-*")[1].returncode == 1
    (tmp_path / "runs" / "x\n::error::forged\n").symlink_to(CAPTURES / "bwd_boom.pcap.gz")  # one file
    _, done = ran(tmp_path, captures="runs/x*\nnone*")
    assert done.returncode == 3
    assert [command.data for command in commands(done.stderr)] == ["none*: No such file or directory"]
    assert ran(tmp_path, captures="runs/x*")[1].returncode == 1


def test_diff_takes_two_runs_and_options(tmp_path: Path) -> None:
    pair = [str(CAPTURES / "pairs" / name) for name in ("base.pcap.gz", "dropout_seed.pcap.gz")]
    inputs = {
        "command": "diff",
        "captures": "\n".join(pair),
        "options": "--ignore=latency,device\n\n--format\njsonl",
    }
    _, done = ran(tmp_path, junit="diff.xml", **inputs)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith('{"kind":"difference"')
    assert cases_of((tmp_path / "diff.xml").read_bytes())["verdict"].outcome == "failure"


@pytest.mark.parametrize("name", ["$(touch pwned)'; touch pwned; '`touch pwned`", "--output=pwned"])
def test_inputs_are_words_and_never_code(name: str, tmp_path: Path) -> None:
    for inputs in ({"junit": name}, {"options": name}, {"command": name}):
        _, done = ran(tmp_path, captures=f"{name}\n{name}*", **inputs)
        assert done.returncode in (2, 3)
        assert not (tmp_path / "pwned").exists()


@pytest.mark.slow
def test_a_package_is_installed_into_an_environment_of_its_own(tmp_path: Path) -> None:
    """A wheel of this checkout, whose dependencies come from where the tests have them."""
    wheel = tmp_path / f"rpcinspect-{__version__}-py3-none-any.whl"
    info = f"rpcinspect-{__version__}.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        for path in sorted((ROOT / "rpcinspect").rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                file.write(path, path.relative_to(ROOT))
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: rpcinspect\nVersion: {__version__}\n"
        )
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(
            f"{info}/entry_points.txt", "[console_scripts]\nrpcinspect = rpcinspect.__main__:main\n"
        )
        file.writestr(f"{info}/RECORD", "")
    runner = Runner(
        tmp_path, package=str(wheel), python=sys.executable, captures=str(CAPTURES / "basic_chain.pcap")
    )
    dependencies = str(Path(pytest.__file__).parent.parent)
    runner.environment = {"PIP_NO_INDEX": "1", "PIP_NO_COMPILE": "1", "PYTHONPATH": dependencies}
    done = runner.step(INSTALL)
    assert done.returncode == 0, done.stderr
    assert runner.known["steps.install.outputs.program"] == str(
        tmp_path / "rpcinspect" / "bin" / "rpcinspect"
    )
    assert (tmp_path / "rpcinspect" / "bin" / "rpcinspect").exists()
    done = runner.step(RUN)
    assert (done.returncode, done.stdout) == (0, "no findings\n"), done.stderr
