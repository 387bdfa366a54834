"""Views say what the commands say, of all of a run and of what a filter leaves."""

from __future__ import annotations

import pytest

from rpcinspect.browse.filter_run import FilterRun
from rpcinspect.browse.views import BY_NAME, answer_lines
from rpcinspect.filter.grammar import parse
from rpcinspect.filter.selection import Filter
from tests.browsing import read_whole
from tests.cli.runner import rpcinspect
from tests.places import recorded

COMMANDS = {
    "contexts": ("contexts",),
    "latency": ("latency", "--all"),
    "rrefs": ("rrefs", "--all"),
    "devices": ("devices",),
    "findings": ("findings",),
    "workers": ("disconnects",),
}
"""By the view that ends with what the command prints."""
FILTERS = ("", "src == worker1", "latency > 1ms", "index < 10", "call ~ nosuch")


@pytest.mark.parametrize("name", ["basic_chain.pcap", "rref_relay.pcap", "logs/killed.pcap"])
def test_they_are_the_tables_of_the_commands(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    path = recorded(name)
    with read_whole(path) as reading:
        run = reading.run
        assert run is not None
        for text in FILTERS:
            part, shown = run, None
            if text:
                matching = FilterRun(reading, Filter(parse(text), text), of_calls=False)
                matching.start()
                matching.wait(60)
                shown = matching.shown
                assert shown is not None
                part = run.narrowed(shown.rows, shown.touched)
            for view, (command, *options) in COMMANDS.items():
                lines = answer_lines(BY_NAME[view], part, shown)
                said = [lines.line(at, 2000).text.split() for at in range(len(lines))]
                printed = rpcinspect(command, path, *options, *(["-f", text] if text else [])).out
                expected = [line.split() for line in printed.splitlines()]
                assert said[-len(expected) :] == expected, (view, text)
