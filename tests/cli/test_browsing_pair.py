"""`rpcinspect browse --diff`: its options, what keeps it from starting, and what it shows on a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browse.terminals import Terminal
from tests.builders import pcap_file
from tests.cli.runner import CHAIN, rpcinspect
from tests.places import CAPTURES

PAIRS = CAPTURES / "pairs"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--diff", CHAIN],
            "name a second run to compare with, or two contexts of this one: --context ID --context ID",
        ),
        (
            ["--diff", CHAIN, CHAIN, CHAIN],
            "two runs can be compared: give A and B; several captures of one run as A1,A2",
        ),
        (["--diff", "--live", "lo", CHAIN, CHAIN], "--diff compares two captures: no --live with it"),
        (["--rtol", "1", CHAIN], "--rtol is for --diff"),
        (["--context", "0:1", CHAIN], "--context is for --diff"),
        (["--strict", CHAIN], "--strict is for --diff"),
    ],
    ids=lambda one: " ".join(map(str, one[:2])) if isinstance(one, list) else "",
)
def test_mistakes(arguments: list[object], says: str) -> None:
    ran = rpcinspect("browse", *arguments)
    assert (ran.code, ran.out, ran.err) == (2, "", f"rpcinspect: {says}\n")


def screen(*arguments: object) -> Terminal:
    """A real `rpcinspect browse --diff` on a terminal of its own."""
    return Terminal("browse", "--diff", *arguments, columns=120, rows=30)


def test_it_shows_where_two_runs_part() -> None:
    with screen(PAIRS / "base.pcap.gz", PAIRS / "dropout_seed.pcap.gz") as shown:
        shown.until("first difference: #77, worker1 → worker0")
        shown.until("likely not-deterministic")
        shown.press("q")
        assert shown.ended() == 0


def test_rules_and_names_are_those_of_diff() -> None:
    """`renamed` is told to be the same once its worker is."""
    with screen(PAIRS / "base.pcap.gz", PAIRS / "renamed.pcap.gz", "--rename", "worker2=worker_ps") as shown:
        shown.until("the same: 182 messages of both runs")
        shown.press("\x03")
        assert shown.ended() == 130


def test_two_contexts_of_one_capture() -> None:
    with screen(PAIRS / "base.pcap.gz", "--context", "0:0", "--context", "0:1") as shown:
        shown.until("base.pcap.gz context 0:0")
        shown.until("base.pcap.gz context 0:1")
        shown.press("q")
        assert shown.ended() == 0


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--rename", "worker7=x"], 2, "rpcinspect: --rename worker7=x: A has no worker worker7"),
        (["--context", "0:77"], 2, "rpcinspect: --context 0:77: there is no such context"),
        (["--ignore", "nothing"], 2, "rpcinspect: --ignore nothing: these can be ignored: "),
    ],
)
def test_what_only_the_captures_show_to_be_wrong(options: list[str], code: int, says: str) -> None:
    with screen(PAIRS / "base.pcap.gz", PAIRS / "again.pcap.gz", *options) as shown:
        assert shown.ended() == code
        assert shown.text.count(says) == 1


def test_captures_that_cannot_be_compared(tmp_path: Path) -> None:
    none = tmp_path / "none.pcap"
    none.write_bytes(pcap_file([]))
    for files, says in (
        ((none, none), "rpcinspect: no RPC messages: there is nothing to compare"),
        ((CHAIN, tmp_path / "absent"), "absent: No such file or directory"),
    ):
        with screen(*files) as shown:
            assert shown.ended() == 3
            assert says in shown.text
