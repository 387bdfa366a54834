"""How workers of real jobs ended, as a recording has it: what ending.py makes them do is the truth."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcinspect.run.run import RunModel, open_run
from tests.cli.runner import rpcinspect
from tests.recorder.agents import need_agent
from tests.recorder.recording import Ran, environment, need_own_network, record
from tests.replayer.programs import free_port

pytestmark = pytest.mark.slow

JOB = str(Path(__file__).with_name("ending.py"))
PYTHON = (sys.executable, "-W", "ignore")
QUICK = environment(OMP_NUM_THREADS="1", TP_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo")


@pytest.fixture(scope="module", autouse=True)
def _agent() -> None:
    pytest.importorskip("torch")
    need_agent()


def recorded(folder: Path, *command: str) -> tuple[Ran, RunModel]:
    done = record("-o", "x.rpclog", "--", *command, folder=folder, env=QUICK)
    run = open_run(str(folder / "x.rpclog"))
    assert [problem.reason for problem in run.session.problems] == []
    for worker in run.workers:
        assert worker.ended is not None
        assert worker.ended.pid is not None
        assert not Path(f"/proc/{worker.ended.pid}").exists(), "nobody is left"
    return done, run


def ends(run: RunModel) -> dict[str | None, str]:
    return {worker.name: str(worker.ended) for worker in run.workers}


def unanswered(run: RunModel) -> dict[str, tuple[str, str]]:
    """Text and remedy of these findings, by who did not answer."""
    found = [finding for finding in run.findings if finding.code == "unanswered-request"]
    return {finding.workers[1]: (finding.text, finding.remedy or "") for finding in found}


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Ran, RunModel]]:
    """A recording of workers that end in every way, and where its log lies."""
    folder = tmp_path_factory.mktemp("forked")
    done, run = recorded(folder, *PYTHON, JOB, "fork", "ends,killed,raises,exits,leaves,ends")
    assert done.code == 0, done.err
    with run:
        yield folder / "x.rpclog", done, run


def test_children_of_the_commands_process(forked: tuple[Path, Ran, RunModel]) -> None:
    _, done, run = forked
    assert ends(run) == {
        "worker0": "exit status 0",
        "worker1": "killed by SIGKILL",
        "worker2": "exit status 1 (ValueError)",
        "worker3": "exit status 3",
        "worker4": "exit status 4",
        "worker5": "exit status 0",
    }
    found = unanswered(run)
    assert set(found) == {"worker1", "worker4"} == {line.partition(":")[0] for line in done.out.splitlines()}
    assert "; worker1 was killed by SIGKILL " in found["worker1"][0]
    assert found["worker1"][1].startswith("Find out who sent SIGKILL: the kernel for lack of memory")
    assert "; worker4 ended by itself with exit status 4 " in found["worker4"][0]
    assert found["worker4"][1] == "Read what worker4 itself wrote: it ended by itself."
    told = {line.split()[0]: line for line in done.told if line.startswith("  worker")}
    assert told["worker1"].endswith(", killed by SIGKILL")
    assert told["worker2"].endswith(", exit status 1 (ValueError)")
    assert "status" not in told["worker0"]
    assert [w.name for w in run.closings.ended][:2] == ["worker1", "worker4"]


def test_a_redacted_log_keeps_how_they_ended(forked: tuple[Path, Ran, RunModel], tmp_path: Path) -> None:
    log, _, run = forked
    assert rpcinspect("export", "rpclog", log, "-o", tmp_path / "y.rpclog").code == 0
    with open_run(str(tmp_path / "y.rpclog")) as again:
        assert [w.ended for w in again.workers] == [w.ended for w in run.workers]
    assert rpcinspect("export", "rpclog", log, "-o", tmp_path / "z.rpclog", "--redact").code == 0
    with open_run(str(tmp_path / "z.rpclog")) as other:
        assert [str(w.ended) for w in other.workers] == [
            *("exit status 0", "killed by SIGKILL", "exit status 1"),
            *("exit status 3", "exit status 4", "exit status 0"),
        ]
    data = (tmp_path / "z.rpclog").read_bytes()
    assert b"ValueError" not in data
    assert b'"pid"' not in data


def test_children_that_torch_spawns(tmp_path: Path) -> None:
    """Once one has failed, torch ends the others by SIGTERM."""
    done, run = recorded(tmp_path, *PYTHON, JOB, "spawn", "waits,raises")
    assert done.code == 1
    assert "ValueError: on purpose" in done.err
    assert ends(run) == {"worker0": "killed by SIGTERM", "worker1": "exit status 1 (ValueError)"}


def test_workers_of_torchrun(tmp_path: Path) -> None:
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()))
    done, run = recorded(tmp_path, *PYTHON, *torchrun, JOB, "all", "waits,killed")
    assert done.code == 1
    assert ends(run) == {
        "worker0": "killed by SIGTERM",
        "worker1": "killed by SIGKILL",
    }
    assert next(w.name for w in run.closings.ended) == "worker1"


def test_orphans(tmp_path: Path) -> None:
    """The shell that started worker0 is gone when it ends; the command waits until nobody has its id."""
    port = str(free_port())
    python = f'"$@" {JOB} one'
    script = f"({python} 0 {port} ends,exits & echo $! >first)\n{python} 1 {port} ends,exits; code=$?\n"
    script += "while kill -0 $(cat first) 2>/dev/null; do sleep 0.05; done; exit $code"
    done, run = recorded(tmp_path, "sh", "-c", script, "sh", *PYTHON)
    assert done.code == 3
    assert ends(run) == {"worker0": "exit status 0", "worker1": "exit status 3"}


def test_the_commands_own_process_and_one_that_still_runs(tmp_path: Path) -> None:
    port = str(free_port())
    python = f'"$@" {JOB} one'
    script = f"{python} 1 {port} ends,waits >/dev/null 2>&1 & exec {python} 0 {port} raises,waits"
    done = record("-o", "x.rpclog", "--", "sh", "-c", script, "sh", *PYTHON, folder=tmp_path, env=QUICK)
    with open_run(str(tmp_path / "x.rpclog")) as run:
        assert done.code == 1
        assert ends(run) == {"worker0": "exit status 1 (ValueError)", "worker1": "still running"}
        (waits,) = [worker.ended for worker in run.workers if worker.name == "worker1"]
        assert waits is not None
        assert waits.pid is not None
        assert any(line.startswith("WARNING: worker1 ") and "still runs" in line for line in done.told)
    os.kill(waits.pid, 9)


def test_the_last_lines_say_it_of_the_wire_too(tmp_path: Path) -> None:
    """A pcap has no place for it."""
    need_own_network()
    wire = ("-o", "x.pcap", "--private-net", "--")
    done = record(*wire, *PYTHON, JOB, "fork", "ends,killed,exits", folder=tmp_path, env=QUICK)
    told = {line.split()[0]: line for line in done.told if line.startswith("  worker")}
    assert told["worker1"].endswith(", killed by SIGKILL")
    assert told["worker2"].endswith(", exit status 3")
    with open_run(str(tmp_path / "x.pcap")) as run:
        assert [worker.ended for worker in run.workers] == [None, None, None]
