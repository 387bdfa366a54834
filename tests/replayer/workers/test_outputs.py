"""What processes write, through real pipes: nothing of it is waited for, little of it is shown."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from rpcinspect.replayer.workers.outputs import (
    MAX_BYTES,
    MAX_LINE_BYTES,
    MAX_LINES,
    TAIL_BYTES,
    Outputs,
    ProcessOutput,
)

pytestmark = pytest.mark.usefixtures("nothing_left")

Line = tuple[str, str]


def shown(*written: tuple[str, bytes]) -> list[Line]:
    """The lines that come of these outputs, one after the other."""
    found: list[Line] = []
    with Outputs(lambda name, line: found.append((name, line))) as outputs:
        for name, data in written:
            output = outputs.new(name)
            os.write(output.writer, data)
            output.release()
    return found


def run(output: ProcessOutput, code: str) -> None:
    """A process whose standard output and errors are this one."""
    subprocess.run([sys.executable, "-c", code], stdout=output.writer, stderr=output.writer, check=True)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"one\ntwo\n\nlast", ["one", "two", "", "last"]),
        (b"\xff\xfe caf\xc3\xa9\n", ["\ufffd\ufffd caf\u00e9"]),
        (b"\x1b[2J\n", ["\x1b[2J"]),  # who shows it escapes it
        (b" 10%\r 50%\r100%\r\n\rwindows\r\n", ["100%", "windows"]),
        (b"a" * 5000 + b"\nb\n", ["a" * MAX_LINE_BYTES + "\u2026", "b"]),
    ],
)
def test_lines(data: bytes, lines: list[str]) -> None:
    assert shown(("w", data)) == [("w", line) for line in lines]


def test_a_line_that_comes_in_parts() -> None:
    found: list[Line] = []
    with Outputs(lambda name, line: found.append((name, line))) as outputs:
        output = outputs.new("w")
        for part in (b"be", b"gun", b" and ended\n", b"x" * 3000, b"x" * 3000, b"\nnext\n"):
            os.write(output.writer, part)
            output.tail()
        output.release()
    assert found == [("w", "begun and ended"), ("w", "x" * MAX_LINE_BYTES + "\u2026"), ("w", "next")]


def test_so_many_lines_of_a_name_over_all_its_processes() -> None:
    half = b"".join(b"%d\n" % number for number in range(MAX_LINES // 2))
    found = shown(("w", half), ("v", b"other\n"), ("w", half + half))
    assert [line for name, line in found if name == "v"] == ["other"]
    its = [line for name, line in found if name == "w"]
    assert len(its) == MAX_LINES + 1
    assert its[-1] == f"\u2026 {MAX_LINES // 2} more lines not shown ({len(half):,} bytes)"


def test_so_many_bytes_of_a_name() -> None:
    found = shown(("w", (b"y" * 1000 + b"\n") * 62 + b"y" * 4000))
    assert sum(len(line) for _, line in found) <= MAX_BYTES
    found = shown(("w", (b"y" * 1000 + b"\n") * 64), ("w", (b"y" * 1000 + b"\n") * 10))
    assert found[-1][1] == "\u2026 9 more lines not shown (9,009 bytes)"


def test_a_hundred_megabytes_hold_up_nobody() -> None:
    found: list[Line] = []
    with Outputs(lambda name, line: found.append((name, line))) as outputs:
        output = outputs.new("w")
        run(output, "import os\nfor _ in range(100): os.write(1, b'z' * 99 + b'\\n' + b'z' * 999900)")
        run(output, "print('the end')")
        tail = output.tail()
        output.release()
    assert tail.endswith("zthe end\n")
    assert len(tail) == TAIL_BYTES
    assert len(found) < MAX_LINES
    assert found[-1][1].startswith("\u2026 ")


def test_who_is_shown_lines_may_stop_to_look() -> None:
    """A pager: it takes a line, and no more until somebody presses a key."""
    key, found = threading.Event(), list[Line]()

    def show(name: str, line: str) -> None:
        key.wait(20)
        found.append((name, line))

    with Outputs(show) as outputs:
        output = outputs.new("w")
        start = time.monotonic()
        run(output, "for number in range(100000): print(number)")
        assert output.tail().endswith("99999\n")
        assert time.monotonic() - start < 15
        assert found == []
        output.release()
        key.set()
    assert found[0] == ("w", "0")
    assert len(found) == MAX_LINES + 1


def test_who_is_shown_lines_may_be_gone() -> None:
    def show(name: str, line: str) -> None:
        raise BrokenPipeError

    with Outputs(show) as outputs:
        output = outputs.new("w")
        run(output, "print('x\\n' * 100000)")
        output.release()


def test_nothing_is_shown_after_a_worker_is_muted() -> None:
    found: list[Line] = []
    with Outputs(lambda name, line: found.append((name, line))) as outputs:
        output = outputs.new("w")
        os.write(output.writer, b"before, without its end")
        output.mute()
        os.write(output.writer, b"after\n")
        output.release()
        output.release()
        assert output.tail() == "before, without its endafter\n"
    assert found == [("w", "before, without its end")]


def test_an_output_that_somebody_keeps_open() -> None:
    """A process that a worker has started, and that outlives it."""
    with Outputs() as outputs:
        output = outputs.new("w")
        code = "import subprocess\nsubprocess.Popen(['sleep', '3'])\nprint('gone')"
        run(output, code)
        start = time.monotonic()
        assert output.tail() == "gone\n"
        output.release()
    assert time.monotonic() - start < 2
    time.sleep(3 - (time.monotonic() - start))
