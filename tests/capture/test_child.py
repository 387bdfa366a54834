"""Programs that are started for their output and must never outlive us."""

from __future__ import annotations

import os
import sys
import time

import pytest

from rpcinspect.capture.child import ChildTool
from rpcinspect.errors import CaptureError


def python(program: str) -> list[str]:
    """A command."""
    return [sys.executable, "-c", program]


def all_of(child: ChildTool) -> bytes:
    """Its output to the end."""
    pieces = []
    while piece := child.read(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def alive(pid: int) -> bool:
    """Whether there is such a process (one that ended but was not waited for counts)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_output_and_exit_code() -> None:
    child = ChildTool(
        python("import sys; print('out'); print(' wrong \\n\\n', file=sys.stderr); sys.exit(3)")
    )
    assert all_of(child) == b"out\n"
    assert child.result() == 3
    assert child.complaint() == ["wrong"]
    child.close()
    child.close()
    assert child.read(1) == b""
    assert child.complaint() == []


def test_much_on_standard_error_does_not_block_it() -> None:
    child = ChildTool(
        python("import sys; sys.stderr.write('x' * (1 << 21)); sys.stderr.flush(); print('out')")
    )
    assert all_of(child) == b"out\n"
    assert len(child.complaint()[0]) == 1 << 16
    child.close()


def test_it_has_no_standard_input() -> None:
    child = ChildTool(python("import sys; print(len(sys.stdin.read()))"))
    assert all_of(child) == b"0\n"
    child.close()


@pytest.mark.parametrize(
    "stubborn", [pytest.param(False, id="listens"), pytest.param(True, id="ignores signals")]
)
def test_close_ends_it(stubborn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpcinspect.capture.child._PATIENCE_S", 0.3)
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if stubborn else ""
    child = ChildTool(python(f"{ignore}import os, time; print(os.getpid(), flush=True); time.sleep(600)"))
    pid = int(child.read(100))
    assert alive(pid)
    child.close()
    assert not alive(pid)


def test_a_result_is_not_awaited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpcinspect.capture.child._PATIENCE_S", 0.3)
    child = ChildTool(python("import os, time; os.close(1); time.sleep(600)"))
    assert child.read(1) == b""
    started = time.monotonic()
    assert child.result() < 0
    assert time.monotonic() - started < 30
    child.close()


def test_interrupt() -> None:
    program = (
        "import time\ntry:\n print(flush=True)\n time.sleep(600)\nexcept KeyboardInterrupt: print('bye')"
    )
    child = ChildTool(python(program))
    assert child.read(1) == b"\n"
    child.interrupt()
    assert all_of(child) == b"bye\n"
    assert child.result() == 0
    child.interrupt()  # to nobody
    child.close()


@pytest.mark.parametrize("program", ["/no/such/program", "/", "nul\0byte"])
def test_what_can_not_be_run(program: str) -> None:
    with pytest.raises(CaptureError, match="can't be run"):
        ChildTool([program])
