"""The numbers that scripts rely on, and the situations that lead to them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rpcinspect import exit_codes
from tests.forks import ran

CAPTURES = Path(__file__).resolve().parent.parent / "captures"
GOOD = str(CAPTURES / "basic_chain.pcap")
NOTHING_TO_DECODE = str(CAPTURES / "transport_matrix_default.pcap")


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and standard error of one run."""
    done = ran(*arguments, stdout=subprocess.DEVNULL, text=True)
    return done.returncode, done.stderr


def test_the_numbers() -> None:
    numbers = {name: number for name, number in vars(exit_codes).items() if name.isupper()}
    assert numbers == {
        "OK": 0,
        "DIFFERENT": 1,
        "USAGE": 2,
        "UNREADABLE": 3,
        "REFUSED": 4,
        "FAULT": 70,
        "INTERRUPTED": 130,
    }


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(("decode", GOOD), 0, id="decoded"),
        pytest.param(("decode", GOOD, "--check", "--strict"), 0, id="nothing wrong"),
        pytest.param(("decode", NOTHING_TO_DECODE), 0, id="nothing to decode"),
        pytest.param(("decode", NOTHING_TO_DECODE, "--check"), 1, id="a finding of severity error"),
        pytest.param(("decode",), 2, id="no file"),
        pytest.param(("decode", GOOD, "--no-such-option"), 2, id="unknown option"),
        pytest.param(("decode", GOOD, "--message", "1000000"), 2, id="no such message"),
        pytest.param(("decode", "-", "-"), 2, id="standard input twice"),
        pytest.param(("decode", __file__), 3, id="no capture"),
        pytest.param(("decode", GOOD + ".absent"), 3, id="no file there"),
        pytest.param(("decode", str(CAPTURES)), 3, id="a folder"),
    ],
)
def test_situations(arguments: tuple[str, ...], code: int) -> None:
    assert run(*arguments)[0] == code


@pytest.mark.parametrize(
    "target", [__file__, GOOD + ".absent", str(CAPTURES)], ids=["text", "absent", "folder"]
)
def test_no_capture_is_one_line(target: str) -> None:
    _, text = run("decode", target)
    assert len(text.splitlines()) == 1
    assert text.startswith("rpcinspect: ")


def test_damage_is_fatal_only_with_strict(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes((CAPTURES / "basic_chain.pcap").read_bytes()[:45_001])
    assert run("decode", str(cut))[0] == exit_codes.OK
    assert run("decode", str(cut), "--strict")[0] == exit_codes.UNREADABLE
