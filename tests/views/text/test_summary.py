"""What stands below the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from rpcinspect.filter.matches import Shown
from rpcinspect.problems import Location, Problem
from rpcinspect.session.model import Finding, Session
from rpcinspect.tcp.clocks import ClockOffset
from rpcinspect.views.text.summary import finding_text, problem_line, show_summary, summary
from tests.views.opened import CAPTURES, file_console, opened, terminal_console


def session_of(*names: str) -> Session:
    with opened(*map(Path, names)) as capture:
        return capture.session


def shown(session: Session, hidden: int = 0) -> list[str]:
    return "\n".join(part.plain for part in summary(session, hidden)).split("\n")


def test_a_summary() -> None:
    size = "pcap, 961 packets, 3.73 s from 2026-11-28 00:29:08 UTC"
    lines = shown(session_of("bwd_boom.pcap.gz"), 16)[1:]
    heads = [line.partition("  ")[0] for line in lines[19:] if line and not line.startswith(" ")]
    assert heads == ["error: error-response", "error: missing-gradient"]
    assert lines[:19] == [
        f"32 messages in {CAPTURES / 'bwd_boom.pcap.gz'} ({size})",
        "16 housekeeping messages hidden; --all shows them",
        "9.07 KB of RPC, 64 bytes of tensors, 9.89 KB of the TCPStore, 4.58 KB of other traffic",
        "1 autograd context, no decoding problems",
        "",
        "worker   id  listens at",
        "worker0  0   127.0.0.1:39039",
        "worker1  1   127.0.0.1:43877",
        "worker2  2   127.0.0.1:41353",
        "",
        "message                        count",
        "PYTHON_CALL                        8",
        "FORWARD_AUTOGRAD_REQ               2",
        "BACKWARD_AUTOGRAD_REQ              2",
        "CLEANUP_AUTOGRAD_CONTEXT_REQ       4",
        "PYTHON_RET                         8",
        "FORWARD_AUTOGRAD_RESP              2",
        "CLEANUP_AUTOGRAD_CONTEXT_RESP      4",
        "EXCEPTION                          2",
    ]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_it_fits_terminals(width: int) -> None:
    console, out = terminal_console(width)
    show_summary(session_of("transport_matrix_uv_only.pcap.gz"), console, hidden=8)
    plain = [line.split("\x1b[0m")[-1].lstrip("\x1b[01;36m") for line in out.getvalue().splitlines()]
    assert max(map(cell_len, plain)) <= width
    assert "\x1b[36minfo: invisible-transport\x1b[0m" in out.getvalue()


def test_it_is_not_wrapped_in_files() -> None:
    console, out = file_console()
    show_summary(session_of("transport_matrix_default.pcap"), console, hidden=0)
    assert "2 of 2 pipes: messages are moved by the transport shm, which a capture of TCP can't hold." in (
        out.getvalue()
    )
    assert max(map(len, out.getvalue().splitlines())) > 80
    assert not any(line != line.rstrip() for line in out.getvalue().splitlines())


def test_findings_name_messages_and_remedy() -> None:
    finding = Finding(
        code="unsafe-pickle",
        severity="error",
        text="os.system\x1b[2J: a process.",
        remedy="Beware.",
        messages=tuple(range(10)),
    )
    assert finding_text(finding).plain == (
        r"error: unsafe-pickle  os.system\x1b[2J: a process. (#0, #1, #2, #3, #4, #5, #6, #7 and 2 more)"
        "\n  Beware."
    )


def test_problems_tell_as_much_of_the_place_as_is_known() -> None:
    session = session_of("basic_chain.pcap")
    one, two = session.captures, (*session.captures, *session.captures)
    whole = Location(capture=0, packet=7, flow="a:1>b:2", offset=30)
    assert (
        problem_line(Problem("tcp", "odd\n", whole), one)
        == r"problem: tcp: odd\n (packet 7, a:1>b:2, offset 30)"
    )
    assert problem_line(Problem("tcp", "odd", Location()), one) == "problem: tcp: odd"
    assert f"({CAPTURES / 'basic_chain.pcap'}, packet 7" in problem_line(Problem("tcp", "odd", whole), two)


def test_many_problems_are_counted() -> None:
    session = session_of("basic_chain.pcap")
    problems = tuple(Problem("tcp", str(n), Location()) for n in range(25))
    session = replace(session, problems=problems)
    lines = shown(session)
    assert lines[-1] == "… and 5 more problems; --format jsonl lists all"
    assert sum(line.startswith("problem: ") for line in lines) == 20


def test_what_clocks_differ_by_is_told_with_what_was_done_about_it() -> None:
    session = session_of("basic_chain.pcap", "bwd_boom.pcap.gz")
    first, second = session.captures
    for clock, size, done in (
        (
            ClockOffset(offset_ns=3_000_000, uncertainty_ns=40_000, connections=6),
            "3 ms ahead of",
            "set right",
        ),
        (ClockOffset(offset_ns=-30_000, uncertainty_ns=40_000, connections=1), "30 µs behind", "left alone"),
    ):
        session = replace(session, captures=(first, replace(second, clock=clock)))
        (line,) = [line for line in shown(session) if "its clock" in line]
        assert f"{size} the first one's (± 40 µs, by {clock.connections} connection" in line
        assert f"its times were {done}" in line
    same = ClockOffset(offset_ns=0, uncertainty_ns=0, connections=3)
    session = replace(session, captures=(first, replace(second, clock=same)))
    assert not any("its clock" in line for line in shown(session))


def test_with_a_filter_only_what_matches_is_counted() -> None:
    session = session_of("basic_chain.pcap")
    rows = bytes(session.source(row) == "worker0" for row in range(len(session.messages)))
    picked = Shown("src == worker0", rows, hints=())
    lines = [part.plain for part in summary(session, 0, picked)]
    header = next(at for at, line in enumerate(lines) if line.split() == ["message", "count"])
    assert sum(int(line.split()[1]) for line in lines[header + 1 :]) == rows.count(1)


def test_where_nothing_matches_hints_stand_below() -> None:
    session = session_of("basic_chain.pcap")
    nothing = Shown("src == x", bytes(len(session.messages)), hints=("workers are worker0, worker1",))
    lines = [part.plain for part in summary(session, 0, nothing)]
    assert lines[lines.index("no messages match src == x") + 1] == "  workers are worker0, worker1"
    assert not any(line.startswith("message ") for line in lines)
