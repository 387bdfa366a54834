"""`replay --matrix`, and `replay` with several numbers of threads: a replay for each combination, one table.

In: the options of `replay`. Out: the table or JSON Lines, and the worst exit code. Where the gate refuses a
name, nothing is run and no environment is made.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rpcinspect import exit_codes
from rpcinspect.cli.arguments import names
from rpcinspect.cli.output import open_console, say, write_json
from rpcinspect.cli.replaying import carried_out, carry_out_and_write, exit_code, planned
from rpcinspect.replayer.matrix import CombinationResult, Environment, run_matrix
from rpcinspect.replayer.workers.environments import REQUIREMENT, made

if TYPE_CHECKING:
    from rpcinspect.cli.replay import ReplayCommand

THIS = "this Python"


def replayed_in_each(command: ReplayCommand) -> int:
    """Replays in each environment with each number of threads; returns the exit code."""
    environments = [environment(word) for word in names(command.matrix)] or [this_one(command)]
    with planned(command) as (plan, run, options):
        if plan.refused:
            return carry_out_and_write(command, plan, run, options)
        carry_out = partial(carried_out, plan, run)
        results = list(run_matrix(environments, command.thread_counts(), options, carry_out))
    _write(command, results)
    codes = [
        exit_codes.DIFFERENT if one.report is None else exit_code(one.report, require_all=command.require_all)
        for one in results
    ]
    return max(codes, default=exit_codes.DIFFERENT)


def environment(word: str) -> Environment:
    """Reads `torch==X`, the path of a Python, or NAME=PATH."""
    if REQUIREMENT.fullmatch(word):
        return Environment(name=word, make=partial(made, word, say))
    name, equals, path = word.partition("=")
    return Environment(name=name, make=partial(str, path if equals else name))


def this_one(command: ReplayCommand) -> Environment:
    """The Python that workers run in without `--matrix`."""
    program = command.interpreter or sys.executable
    return Environment(name=command.interpreter or THIS, make=partial(str, program))


def _write(command: ReplayCommand, results: Sequence[CombinationResult]) -> None:
    from rpcinspect.views.replay.matrix import matrix_lines, show_matrix

    output: Path | None = command.output
    if command.format == "jsonl":
        write_json([matrix_lines(results)], output)
    else:
        with open_console(output) as console:
            show_matrix(results, console)
