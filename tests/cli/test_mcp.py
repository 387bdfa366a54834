"""`rpcinspect mcp`: its options; tests/agents has what it answers."""

from __future__ import annotations

import pytest

from tests.cli.runner import rpcinspect


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-",), "rpcinspect: standard input is the agent's: name the captures\n"),
        (
            ("run.pcap", "--max-chars", "10"),
            "Invalid value for '--max-chars': 10 is not in the range x>=4000.",
        ),
        ((), "Missing argument 'FILE...'"),
    ],
)
def test_what_it_does_not_take(arguments: tuple[str, ...], told: str) -> None:
    ran = rpcinspect("mcp", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
