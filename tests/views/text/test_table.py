"""The table on terminals of every width and in files."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rpcinspect.fields.phrases import end_label
from rpcinspect.views.text.table import Layout, MessageRow, MessageTable, failed, line_width, pad, write_line
from tests.views.opened import Opened, file_console, opened, terminal_console

ROW = MessageRow(
    7,
    1.5,
    "worker1",
    "worker0",
    "FORWARD_AUTOGRAD_RESP",
    6,
    3_830_000,
    "PYTHON_RET  = tensor#0[3,4] float32 grad",
)
ENDS = len("worker1 → worker0")


def table(capture: Opened, width: int | None, *, show_all: bool = False) -> list[str]:
    console, out = file_console() if width is None else terminal_console(width)
    with tempfile.TemporaryFile() as spool:
        view = MessageTable(spool, show_all=show_all)
        for record in capture.records:
            view.feed([record])
        view.show(capture.session, console)
    return out.getvalue().splitlines()


HEAD = "     7     1.500000  worker1 → worker0  FORWARD_AUTOGRAD_RESP"
TEXT = "PYTHON_RET  = tensor#0[3,4] float32 grad"


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (None, [f"{HEAD}          #6 3.83 ms  {TEXT}"]),
        (120, [f"{HEAD}          #6 3.83 ms  PYTHON_RET  = tensor#0[3,4] float32…"]),
        (100, [f"{HEAD}  #6 3.83 ms  PYTHON_RET  = tensor#0[3…"]),
        (80, [f"{HEAD}  #6 3.83 ms", f"    {TEXT}"]),
        (40, ["7 1.500000 worker1 → worker0", "    FORWARD_AUTOGRAD_RESP #6 3.83 ms  P…"]),
        (12, ["7 1.500000…", "    FORWARD…"]),
        (1, ["…", "…"]),
    ],
)
def test_layouts(width: int | None, lines: list[str]) -> None:
    assert Layout(width=width, ends_width=ENDS).line(ROW).split("\n") == lines


@given(
    width=st.integers(1, 300),
    text=st.text(st.sampled_from("aé日\u0301 →"), max_size=200),
    name=st.text(st.sampled_from("w日\u0301"), max_size=60),
)
def test_no_line_is_wider_than_the_terminal(width: int, text: str, name: str) -> None:
    row = MessageRow(1, 0.25, name, "b", "RREF_ACK", None, None, text)
    layout = Layout(width=width, ends_width=10)
    for line in (*layout.line(row).split("\n"), *layout.header().split("\n")):
        assert cell_len(line) <= width


def test_wide_and_combining_characters_keep_columns_in_line() -> None:
    assert [cell_len(pad(name, 8)) for name in ("ab", "日本", "e\u0301", "")] == [8, 8, 8, 8]
    assert pad("too long", 3) == "too long"


def test_long_and_hostile_names() -> None:
    assert end_label("w" * 100) == "w" * 39 + "…"
    assert end_label("a\x1b[2J\u202e") == r"a\x1b[2J\u202e"


def test_rows_of_a_capture() -> None:
    with opened("bwd_boom.pcap.gz") as capture:
        lines = table(capture, None)
        everything = table(capture, None, show_all=True)
        rows = {int(line.split()[0]): line for line in lines[1:]}
        keeping = capture.session.messages.housekeeping()
        shown = [i for i, row in enumerate(capture.session.order) if not keeping[row]]
    assert list(rows) == shown
    assert len(everything) == 1 + 32
    assert set(lines) < set(everything)
    assert rows[9].split()[1:5] == ["0.039794", "worker2", "→", "worker1"]
    assert "  #9 2.54 ms  PYTHON_RET  = tensor#0[3] float32 grad" in rows[10]
    assert "  ✗ Error on Node 1: gradient exploded on purpose" in rows[18]


def test_latency_runs_from_the_first_byte_of_the_request_to_the_last_of_the_answer() -> None:
    with opened("basic_chain.pcap") as capture:
        request, answer = capture.messages[6].tp, capture.messages[7].tp
        assert (answer.last_ns - request.first_ns) // 1000 == 2179
        assert "#6 2.18 ms" in table(capture, None)[2]


@pytest.mark.parametrize("name", ["basic_chain.pcap", "bwd_boom.pcap.gz", "views_alias.pcap.gz"])
@pytest.mark.parametrize("show_all", [False, True])
def test_files_get_the_lines_that_terminals_get_uncut(name: str, show_all: bool) -> None:
    """They are laid out in another way, which is faster."""
    with opened(Path(name)) as capture:
        in_file, wide = table(capture, None, show_all=show_all), table(capture, 5000, show_all=show_all)
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in wide]
    assert len(in_file) > 3
    assert in_file == plain


def test_errors_are_red_and_housekeeping_dim() -> None:
    with opened("bwd_boom.pcap.gz") as capture:
        lines = table(capture, 200, show_all=True)
        assert [failed(capture.messages[i]) for i in (17, 18, 19)] == [False, True, True]
    assert lines[1].startswith("\x1b[2m")
    assert lines[19].startswith("\x1b[31m")
    assert "\x1b" not in lines[9]
    with opened("bwd_boom.pcap.gz") as capture:
        assert not any("\x1b" in line for line in table(capture, None, show_all=True))


def test_nothing_to_show_has_no_header() -> None:
    with opened("transport_matrix_default.pcap") as capture:
        assert table(capture, None) == []


def test_lines_are_cut_on_terminals_only() -> None:
    assert line_width(terminal_console(77)[0]) == 77
    assert line_width(file_console()[0]) is None


def test_markup_in_captured_text_means_nothing() -> None:
    for console, out in (terminal_console(80), file_console()):
        write_line(console, "[red]x[/red] :smile:", "red")
        write_line(console, "[bold]y")
        assert "[red]x[/red] :smile:" in out.getvalue()
        assert "[bold]y\n" in out.getvalue()
