"""The lines that GitHub's runner takes as commands, by its own rules (actions/runner, ActionCommand.cs)."""

from __future__ import annotations

import re
from typing import NamedTuple

REGISTERED = frozenset(
    {"stop-commands", "set-env", "set-output", "save-state", "add-mask", "add-path", "add-matcher"}
    | {"remove-matcher", "debug", "warning", "error", "notice", "group", "endgroup", "echo"}
)


class Command(NamedTuple):
    """A command that the runner would obey."""

    name: str
    properties: dict[str, str]
    data: str


def commands(log: str) -> list[Command]:
    """What a log makes the runner do; it ends lines at carriage returns, too."""
    return [
        found for line in re.split(r"\r\n|\r|\n", log) if (found := _second(line) or _first(line)) is not None
    ]


def _second(line: str) -> Command | None:
    """`::name key=value,key=value::data`, behind any spaces."""
    line = line.lstrip()
    end = line.find("::", 2)
    return None if not line.startswith("::") or end < 0 else _made(line[2:end], line[end + 2 :], ",")


def _first(line: str) -> Command | None:
    """`##[name key=value;key=value]data`, anywhere; an older form that is still obeyed."""
    start = line.find("##[")
    end = line.find("]", start)
    return None if start < 0 or end < 0 else _made(line[start + 3 : end], line[end + 1 :], ";")


def _made(head: str, data: str, separator: str) -> Command | None:
    name, _, rest = head.partition(" ")
    if name.lower() not in REGISTERED:
        return None
    pairs = (pair.split("=", 1) for pair in rest.split(separator) if pair)
    return Command(
        name, {key: _plain(value) for key, value in (p for p in pairs if len(p) == 2)}, _data(data)
    )


def _data(text: str) -> str:
    return text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")


def _plain(text: str) -> str:
    for escaped, meant in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(escaped, meant)
    return text
