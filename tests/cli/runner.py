"""Runs the command line in this process, which saves half a second over a process of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from rpcinspect.cli import app

CAPTURES = Path(__file__).resolve().parent.parent.parent / "captures"
CHAIN = CAPTURES / "basic_chain.pcap"
"""24 messages of two workers, 8 of them the agents' own; worker0 calls, differentiates, cleans up."""
HIDDEN = CAPTURES / "transport_matrix_default.pcap"
"""Messages that went through shared memory."""


@dataclass(frozen=True)
class Ran:
    """What a run came to."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Standard output as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]


def rpcinspect(*arguments: object, stdin: bytes = b"") -> Ran:
    """One run; fails on any exception that a user would see as a traceback."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Ran(done.exit_code, done.stdout, done.stderr)


def decode(*arguments: object, stdin: bytes = b"") -> Ran:
    """One run of `rpcinspect decode`."""
    return rpcinspect("decode", *arguments, stdin=stdin)


def ask(question: Sequence[str], path: object, *arguments: object, stdin: bytes = b"") -> Ran:
    """One run of a command with its own options, such as `graph --context 0:0`."""
    return rpcinspect(question[0], path, *question[1:], *arguments, stdin=stdin)


def visible(text: str) -> bool:
    """Whether a terminal shows every character of it and obeys none; line breaks are ours."""
    return all(character == "\n" or character.isprintable() for character in text)
