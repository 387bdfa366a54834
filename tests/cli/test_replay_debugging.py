"""Looking into live workers, and holding them, from the command line."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.cli.editor import Editor
from tests.cli.runner import CAPTURES, rpcinspect
from tests.places import recorded
from tests.replayer import nan_job

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_left")

IDENTICAL = "identical: 12 of 12 gradients, 47 of 47 answers; 8 skipped (8 control)"
SQRT = "torch.sqrt"
STEP = "__torch__.torch.distributed.optim.optimizer._script_local_optimizer_step"
SRC = recorded("reports/replay/src")
NESTED = (recorded("reports/replay/nested.pcap"), "--path", SRC, "--main", SRC / "nested_main.py")
"""client calls mid (#26, #30, #34), which calls store for each (#27, …)."""


def dialogue(text: str) -> list[tuple[str, str]]:
    """(typed line, what it was answered with) of what was shown."""
    parts = re.split(r"^\((\w+ [^)]+)\) (.*)$", text, flags=re.MULTILINE)
    return list(zip(parts[2::3], [part.strip() for part in parts[3::3]], strict=True))


def answers(ran: subprocess.CompletedProcess[Any]) -> dict[str, str]:
    """What the typed lines were answered with, each typed once."""
    return dict(dialogue(ran.stderr))


def test_a_function_is_stopped_in_its_first_line() -> None:
    typed = ("p tuple(h.shape), h.requires_grad", "p context_id, message.message", "w", "n", "c")
    ran = nan_job.replay("--stop-at", nan_job.FORWARD, "--quiet-workers", typed=typed)
    assert ran.returncode == 0
    head = "worker2 holds at #102: __mp_main__.forward2 (FORWARD_AUTOGRAD_REQ, from worker0, context 0:2)"
    assert ran.stderr.splitlines()[0] == head
    number = nan_job.line_of("return rref.local_value()(h)")
    assert f"train.py({number})forward2()\n-> return rref.local_value()(h)\n" in ran.stderr
    told = answers(ran)
    assert told["p tuple(h.shape), h.requires_grad"] == "((6, 16), True)"
    assert told["p context_id, message.message"] == "(2, 102)"
    assert [line for line in told["w"].splitlines() if "rpcinspect" in line or "internal" in line] == []
    assert told["n"].startswith("--Return--")
    assert ran.stdout.splitlines()[-1] == IDENTICAL


def test_nan_is_followed_to_the_line_that_makes_it() -> None:
    typed = ("p operation", "p [bool(g.isinf().all()) for g in gradients]", "c", "p gradients[0][0][:2]", "q")
    ran = nan_job.replay("--stop-at", "nonfinite", "--quiet-workers", typed=typed)
    line = nan_job.line_of(SQRT)
    first = ran.stderr.partition("pdb's commands")[0]
    assert first.startswith("worker2 makes Inf in the backward of SqrtBackward0, in #106 (context 0:2); ")
    assert re.search(rf'train\.py", line {line}, in forward\n +out = out \+ torch\.sqrt', first)
    told = answers(ran)
    assert told["p operation"] == "'SqrtBackward0'"
    assert told["p [bool(g.isinf().all()) for g in gradients]"] == "[True]"
    # The next one is what worker0 makes of it: it is played, and sends on what was captured.
    assert told["c"] == "worker1 holds before #109: NaN in BACKWARD_AUTOGRAD_REQ (from worker0, context 0:2)"
    assert told["p gradients[0][0][:2]"] == "tensor([nan, nan])"
    assert ran.returncode == 130
    assert ran.stdout.splitlines()[-1].startswith("interrupted; ")


def test_a_result_that_is_nan_is_stopped_in_the_line_that_makes_it(tmp_path: Path) -> None:
    line = "        out = self.fc(h)\n"
    log = "            scale = torch.log(out[0] - out[0])\n            out = out + 0 * scale\n"
    folder = nan_job.changed(tmp_path, (line, f"{line}        if self.step == 2:\n{log}"))
    typed = ("p bool(scale.isinf().all()), bool(out.isnan().all())", "n", "p context_id", "q")
    ran = nan_job.replay("--stop-at", "nonfinite", "--quiet-workers", typed=typed, folder=folder)
    number = nan_job.line_of("0 * scale", folder)  # an infinity may be a mask's
    assert ran.stderr.startswith(f"worker2 makes NaN in out, train.py:{number} in forward, in #72: ")
    told = answers(ran)
    assert told[typed[0]] == "(True, True)"
    assert told["n"].startswith("> ")  # pdb's own step
    assert told[typed[2]] == "1"


def test_the_first_nan_is_told_while_it_replays() -> None:
    ran = nan_job.replay("--watch", "nonfinite", "--quiet-workers")
    lines = ran.stderr.splitlines()
    assert lines[0].startswith(
        "rpcinspect: nonfinite: worker2 makes Inf in the backward of SqrtBackward0, in #106"
    )
    assert f'train.py", line {nan_job.line_of(SQRT)}, in forward' in ran.stderr
    assert len(lines) == 5  # and nothing of what follows from it
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, IDENTICAL)


def test_torchs_anomaly_mode() -> None:
    ran = nan_job.replay("--anomaly")
    assert "worker2 | " in ran.stderr
    assert "Error detected in AbsBackward0. Traceback of forward call that caused the error:" in ran.stderr
    assert (
        f'worker2 |   File "{nan_job.JOB}/train.py", line {nan_job.line_of(SQRT)}, in forward' in ran.stderr
    )
    assert (
        "now: Error on Node 2: Function 'AbsBackward0' returned nan values in its 0th output." in ran.stdout
    )
    assert ran.returncode == 1


def test_gradients_by_parameter_before_their_context_is_cleaned_up() -> None:
    ran = nan_job.replay("--gradients", "--format", "jsonl", "--quiet-workers")
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert lines[-1]["verdict"] == "identical"
    shown = [line for line in lines if line["kind"] == "gradients"]
    assert [(one["worker"], one["context_id"]) for one in shown] == [
        (worker, context) for worker in ("worker1", "worker2") for context in range(4)
    ]
    first = {
        row["name"]: row["sha256"] for one in shown if one["context_id"] == 0 for row in one["gradients"]
    }
    expected = nan_job.gradients_of_first_step()
    assert first == {name: hashlib.sha256(data).hexdigest() for name, data in expected.items()}
    table = nan_job.replay("--gradients", "--quiet-workers").stdout
    assert "worker2 has 2 gradients in context 0:2\n  Stage2.fc.weight [4,16] float32: nan nan" in table


HOOKS = """
import sys

def shown(message):
    main = sys.modules["__main__"].Stage1.__name__
    shapes = [tuple(tensor.shape) for tensor in message.tensors]
    print("hook", message.message, message.type, message.function, message.context_id, shapes, main)

def wrong(message):
    raise KeyError("mine")

def ends(message):
    raise SystemExit(3)
"""


def test_hooks_get_each_message(tmp_path: Path) -> None:
    (tmp_path / "hooks_of_user.py").write_text(HOOKS, encoding="utf-8")
    hooks = [word for name in ("shown", "wrong", "ends") for word in ("--hook", f"hooks_of_user:{name}")]
    ran = nan_job.replay("--path", tmp_path, *hooks)
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, IDENTICAL)
    got = [line.partition("hook ")[2] for line in ran.stderr.splitlines() if " | hook " in line]
    assert "102 FORWARD_AUTOGRAD_REQ __mp_main__.forward2 2 [(6, 16)] Stage1" in got
    assert "92 FORWARD_AUTOGRAD_REQ __mp_main__.Stage1.forward 2 [(6, 8)] Stage1" in got
    assert "106 BACKWARD_AUTOGRAD_REQ None 2 [(6, 4)] Stage1" in got
    assert "120 CLEANUP_AUTOGRAD_CONTEXT_REQ None 2 [] Stage1" in got
    assert len(got) == 47  # all that worker0 sends
    for worker in ("worker1", "worker2"):
        assert ran.stderr.count(f"rpcinspect: {worker}: --hook hooks_of_user:wrong failed at #") == 1
    assert ran.stderr.count("KeyError: 'mine'") == ran.stderr.count("SystemExit: 3") == 2


def test_breakpoints_of_the_user(tmp_path: Path) -> None:
    line = "        out = self.fc(h)\n"
    folder = nan_job.changed(tmp_path, (line, f"{line}        if self.step == 2: breakpoint()\n"))
    ran = nan_job.replay("--quiet-workers", typed=("p self.step, context_id", "c"), folder=folder)
    assert ran.stderr.startswith("worker2 holds at breakpoint(), train.py:")
    assert answers(ran)["p self.step, context_id"] == "(2, 1)"
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, IDENTICAL)


@pytest.mark.parametrize("line", ["breakpoint()", "import pdb; pdb.set_trace()"])
def test_a_breakpoint_at_the_import(tmp_path: Path, line: str) -> None:
    first = "import argparse, os, sys, time\n"
    folder = nan_job.changed(tmp_path, (first, f"{first}{line}\n"))
    ran = nan_job.replay(folder=folder)
    number = nan_job.line_of(line, folder)
    why = f"breakpoint() in train.py:{number} is for functions that messages call, not for the import"
    assert ran.stdout.splitlines() == [f"importing train: {why}", "failed: nothing was replayed"]
    assert (ran.returncode, ran.stderr) == (1, "")


def test_a_debugger_that_is_taken_at_the_import(tmp_path: Path) -> None:
    first, line = "import argparse, os, sys, time\n", "        out = self.fc(h)\n"
    called = f"{line}        if self.step == 2: set_trace()\n"
    folder = nan_job.changed(tmp_path, (first, f"{first}from pdb import set_trace\n"), (line, called))
    ran = nan_job.replay("--quiet-workers", typed=("p self.step", "c"), folder=folder)
    assert ran.stderr.startswith(
        f"worker2 holds at breakpoint(), train.py:{nan_job.line_of('2: set_trace', folder)}\n"
    )
    assert answers(ran)["p self.step"] == "2"
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, IDENTICAL)


def test_an_exception_is_looked_at_where_it_was_raised(tmp_path: Path) -> None:
    line = "        out = self.fc(h)\n"
    folder = nan_job.changed(
        tmp_path, (line, f"{line}        if self.step == 4: raise ValueError(self.step)\n")
    )
    typed = ("p self.step", "up", "p error", "c")
    ran = nan_job.replay("--stop-at", "error", "--quiet-workers", typed=typed, folder=folder)
    assert ran.stderr.startswith("worker2 holds at #132: ValueError in __mp_main__.forward2 (")
    told = answers(ran)
    assert told["p self.step"] == "4"
    assert told["p error"] == "ValueError(4)"
    assert ran.returncode == 1
    assert "now: ValueError(4)" in ran.stdout or "now: ValueError: 4" in ran.stdout


def test_an_exception_in_a_backward_pass_is_looked_at_where_it_was_raised() -> None:
    """And is answered as without a debugger, by both workers that it passes through."""
    typed = ("p bool((grad == grad).all())", "p str(error)", "c")
    arguments = (recorded("bwd_boom.pcap"), "--path", CAPTURES, "--stop-at", "error")
    ran = replay(*arguments, typed=typed)
    assert ran.stderr.startswith("worker1 holds in the backward of BoomBackward: ValueError\n")
    told = answers(ran)
    assert told[typed[0]] == "True"
    assert told[typed[1]] == "'gradient exploded on purpose'"
    assert (ran.returncode, ran.stderr.count(" holds ")) == (0, 1)
    ran = replay(*arguments, "--live", "worker1", typed=("p message.sender", "c"))
    head = "worker1 holds in the backward of BoomBackward: ValueError, after #17: BACKWARD_AUTOGRAD_REQ (from"
    assert ran.stderr.startswith(head)
    assert (answers(ran)["p message.sender"], ran.returncode) == ("'worker2'", 0)


def test_steps_lead_to_the_next_message() -> None:
    """Out of a function, and from what has none."""
    typed = ("n", "n", "s", "nm", "p message.message", "c")
    ran = nan_job.replay("--stop-at", 42, "--quiet-workers", typed=typed)
    said = dialogue(ran.stderr)
    assert [answer.splitlines()[0] for _, answer in said[:4]] == [
        "--Return--",
        "worker2 holds before #46: BACKWARD_AUTOGRAD_REQ (from worker0, context 0:0)",
        "worker1 holds before #50: BACKWARD_AUTOGRAD_REQ (from worker0, context 0:0)",
        f"worker1 holds before #52: {STEP} (FORWARD_AUTOGRAD_REQ, from worker0, context 0:0)",
    ]
    assert said[4] == ("p message.message", "52")
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, IDENTICAL)


def test_breakpoints_that_are_set_at_a_stop_hold_later() -> None:
    number = nan_job.line_of("out = self.fc(h)")
    typed = (f"b {nan_job.JOB}/train.py:{number}", "c", "p self.step", "cl 1", "c")
    ran = nan_job.replay("--stop-at", 42, "--quiet-workers", typed=typed)
    told = dialogue(ran.stderr)
    assert told[2] == ("p self.step", "1")
    longer = (*typed[:3], "c", "p self.step + 10", "cl 1", "c")
    ran = nan_job.replay("--stop-at", 42, "--quiet-workers", typed=longer)
    assert dialogue(ran.stderr)[4] == ("p self.step + 10", "12")
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, IDENTICAL)


def test_calls_between_live_workers() -> None:
    typed = ("p k", "c", "p k + 10", "c", "c")
    ran = replay(*NESTED, "--role", "client", "--stop-at", "lookup", typed=typed)
    assert ran.stderr.startswith("store holds at #27: __mp_main__.lookup (PYTHON_CALL, from mid)\n")
    assert (answers(ran)["p k"], answers(ran)["p k + 10"]) == ("4", "15")
    assert ran.returncode == 0
    assert ran.stderr.count(" holds at ") == 3


def test_the_next_message_may_be_one_between_live_workers() -> None:
    ran = replay(*NESTED, "--role", "client", "--stop-at", "26", typed=("nm", "p k", "c"))
    assert answers(ran)["nm"].startswith("store holds at #27: __mp_main__.lookup (PYTHON_CALL, from mid)\n")
    assert answers(ran)["p k"] == "4"
    assert ran.returncode == 0


def test_what_a_held_worker_asks_for_is_answered() -> None:
    """mid is stepped over its call to store, which is played."""
    ran = replay(*NESTED, "--live", "mid", "--stop-at", 26, typed=("n", "c"))
    assert answers(ran)["n"].startswith("--Return--\n")
    assert "tensor([5., 5., 5.])" in answers(ran)["n"]
    assert ran.returncode == 0


def test_a_function_that_no_live_worker_is_called_for() -> None:
    wrong = rpcinspect("replay", *NESTED, "--live", "mid", "--stop-at", "lookup")
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err == "rpcinspect: --stop-at lookup: #10 goes to store, which is played\n"


def test_input_that_cannot_be_read(tmp_path: Path) -> None:
    with (tmp_path / "written").open("wb") as file:
        ran = forks.ran("replay", *NESTED, "--stop-at", "26", stdin=file, text=True, encoding="utf-8")
    assert ran.returncode == 130
    assert "Traceback" not in ran.stderr
    assert ran.stderr.endswith("the input has ended\n")


def test_a_message_that_never_comes() -> None:
    ran = replay(*NESTED, "--stop-at", "35", typed=())
    assert ran.returncode == 130  # 35 is the answer to 34, at which it stops
    wrong = rpcinspect("replay", *NESTED, "--live", "mid", "--stop-at", "27")
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err == "rpcinspect: --stop-at 27: #27 goes to store, which is played; mid sends it for #26\n"


@pytest.mark.parametrize("message", [nan_job.FORWARD, nan_job.BACKWARD])
def test_time_stands_still_meanwhile(message: int) -> None:
    """Nothing may take more than a second, and the user takes three."""
    arguments = ("replay", nan_job.CAPTURE, *nan_job.options(), "--quiet-workers", "--timeout", 1)
    with forks.command(
        *(*arguments, "--stop-at", message),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        assert f"#{message}" in process.stderr.readline()
        time.sleep(3)
        process.stdin.write("c\n")
        process.stdin.flush()
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out.splitlines()[-1]) == (0, IDENTICAL)
    took = re.search(r"the messages took ([\d.]+) (m?s)", out)
    assert took is not None
    assert took[2] == "ms" or float(took[1]) < 3


class AtTerminal:
    """A replay whose standard input, output and errors are a terminal of its own."""

    def __init__(self, *arguments: object) -> None:
        self._own, theirs = pty.openpty()
        self.seen = ""
        files = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        self.process = forks.command("replay", *arguments, **files, start_new_session=True)
        os.close(theirs)

    def until(self, text: str, seconds: float = 60.0) -> str:
        """Waits for a text; returns what came before it since the last one."""
        end = time.monotonic() + seconds
        while text not in self.seen and time.monotonic() < end:
            if select.select([self._own], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self._own, 1 << 16).decode("utf-8", "replace")
                except OSError:  # the other side has ended
                    break
        before, found, self.seen = self.seen.partition(text)
        assert found, f"{text!r} did not come: {before[-2000:]}"
        return before

    def type(self, text: str) -> None:
        os.write(self._own, text.encode())

    def close(self) -> int:
        """Waits for the end; returns the exit code."""
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()
            os.close(self._own)


def test_at_a_terminal() -> None:
    at = AtTerminal(nan_job.CAPTURE, *nan_job.options(), "--stop-at", "nonfinite")
    try:
        assert SQRT in at.until("(worker2 #106) ")
        at.type("p operation\n")
        assert "'SqrtBackward0'" in at.until("(worker2 #106) ")
        at.type("c\n")
        at.until("(worker1 #109) ")
        at.type("\x04")
        at.until("interrupted; ")
    finally:
        assert at.close() == 130


def test_ctrl_c_ends_it() -> None:
    at = AtTerminal(nan_job.CAPTURE, *nan_job.options(), "--stop-at", nan_job.FORWARD)
    try:
        at.until("(worker2 #102) ")
        os.kill(at.process.pid, signal.SIGINT)
        at.until("interrupted; ")
    finally:
        assert at.close() == 130


def test_an_editor() -> None:
    if importlib.util.find_spec("debugpy") is None:
        pytest.skip("debugpy is not installed")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    arguments = ("replay", nan_job.CAPTURE, *nan_job.options(), "--quiet-workers")
    with forks.command(
        *(*arguments, "--stop-at", nan_job.FORWARD, "--debug-port", port),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            with Editor(port + 1, 150) as editor:  # that of the second live worker
                thread = editor.event("stopped")["threadId"]
                editor.ask("stepIn", threadId=thread)
                assert editor.event("stopped")["reason"] == "step"
                frame = editor.ask("stackTrace", threadId=thread)["stackFrames"][0]
                scope = editor.ask("scopes", frameId=frame["id"])["scopes"][0]
                known = editor.ask("variables", variablesReference=scope["variablesReference"])["variables"]
                editor.ask("continue", threadId=thread)
                out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert "pdb's commands" not in err
    assert (frame["name"], frame["line"]) == ("forward2", nan_job.line_of("return rref.local_value()(h)"))
    assert {"h", "rref"} <= {one["name"] for one in known}
    assert f"worker2 waits for an editor to attach to 127.0.0.1:{port + 1}" in err
    assert (process.returncode, out.splitlines()[-1]) == (0, IDENTICAL)


def test_a_port_that_is_taken() -> None:
    if importlib.util.find_spec("debugpy") is None:
        pytest.skip("debugpy is not installed")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ran = replay(*NESTED, "--live", "mid", "--stop-at", "26", "--debug-port", port, typed=())
    why = f"--debug-port: mid can't wait for an editor at port {port}: Address already in use"
    assert f"session 1 ended early: the live worker mid could not start: {why}" in ran.stdout.splitlines()
    assert ran.returncode == 1


@pytest.mark.parametrize(
    ("hook", "told"),
    [
        ("nosuch:f", "ModuleNotFoundError: No module named 'nosuch'"),
        ("train:nosuch", "AttributeError: module 'train' has no attribute 'nosuch'"),
        (
            "train:__name__",
            "could not start: --hook train:__name__: __name__ is no function, but of type str",
        ),
    ],
)
def test_a_hook_that_is_not_there(hook: str, told: str) -> None:
    ran = nan_job.replay("--hook", hook, "--quiet-workers")
    assert ran.returncode == 1
    assert told in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("failed: ")


BASIC = (CAPTURES / "transport_matrix_uv_basic.pcap.gz", "--path", CAPTURES)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--stop-at", "999"), "--stop-at 999: the capture has no message #999 between workers"),
        (("--stop-at", "forwrad"), "--stop-at forwrad: not a message, error, nonfinite or a function"),
        (("--stop-at", "6", "--engine", "agent"), "--stop-at needs the wire engine"),
        (("--watch", "nonfinite", "--engine", "agent"), "--watch needs the wire engine"),
        (("--stop-at", "6", "--repeat", "2"), "--stop-at and --repeat can't be used together"),
        (("--debug-port", "5678"), "--debug-port needs --stop-at"),
        (("--hook", "nocolon"), "--hook nocolon: not MODULE:FUNCTION"),
        (
            ("--show-gradients",),
            "--show-gradients is an option of another name now: rpcinspect replay FILE… --gradients",
        ),
    ],
)
def test_wrong_usage(options: tuple[str, ...], told: str) -> None:
    ran = rpcinspect("replay", *BASIC, *options)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err


def replay(*arguments: object, typed: tuple[str, ...]) -> subprocess.CompletedProcess[Any]:
    given = "".join(f"{line}\n" for line in typed)
    return forks.ran(
        "replay",
        *arguments,
        "--quiet-workers",
        given=given,
        stdin=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
