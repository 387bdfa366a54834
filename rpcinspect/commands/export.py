"""`rpcinspect replay --export DIR`: writes a reproducer, a script that makes captured calls again with
PyTorch alone. Nothing is started, nothing that a capture names is imported or called.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from rpcinspect import exit_codes
from rpcinspect.commands.interrupt import held_back
from rpcinspect.commands.output import say
from rpcinspect.commands.replay_request import Request
from rpcinspect.export.reproducer.reproduced import Reproduction
from rpcinspect.export.reproducer.reproduction import ReproductionOptions, reproduction
from rpcinspect.export.reproducer.script import (
    SCRIPT,
    TENSORS,
    TEST,
    Reproducer,
    Wanted,
    reproducer,
    unwritable,
)
from rpcinspect.export.safetensors import write_safetensors
from rpcinspect.fields.phrases import counted, path_label
from rpcinspect.files.output import OutputFolder
from rpcinspect.files.place import writing
from rpcinspect.replayer.planning.model import missing_allowances
from rpcinspect.replayer.workers.seeds import read_seeds
from rpcinspect.run.run import Run
from rpcinspect.views.replay.plan_table import allow_line

TIMEOUT_S = 60.0


def export(request: Request, opened: Run) -> int:
    """Selects, writes; returns the exit code."""
    assert request.export is not None
    wanted = _wanted(request, request.export)
    options = ReproductionOptions(
        message=request.message,
        context=request.plan_options().context,
        roles=request.plan_options().roles,
        live=request.plan_options().live,
        trust=request.trust,
    )
    gate = request.gate(request.sources())
    made = reproduction(opened.session, opened.messages, options, gate, unwritable(wanted))
    if made.refused:
        trusted = replace(options, trust=True)  # to tell at once also what depends on a refused message
        whole = reproduction(opened.session, opened.messages, trusted, gate, unwritable(wanted))
        return _refused(made, missing_allowances(whole.globals))
    if not made.calls:
        say("nothing to export: no worker sent anything of its own that could be made again")
        for skipped in made.skipped[:MAX_SHOWN]:
            say(f"#{skipped.call.index} is left out: {skipped.code}: {skipped.text}")
        return exit_codes.DIFFERENT
    if request.trust and any(not use.allowed for use in made.globals):
        say("--trust-capture: the script runs what this capture names, whatever it is")
    written = reproducer(made, wanted, opened.bytes)
    _write(request.export, written, test=request.pytest)
    _tell(request.export, made, written)
    lost = [s for s in made.skipped if s.code != "control"]
    if request.require_all and lost:
        say(f"--require-all: {counted(len(lost), 'request')} skipped")
        return exit_codes.DIFFERENT
    return exit_codes.OK


def _wanted(request: Request, folder: Path) -> Wanted:
    paths = [path.parent if path.is_file() else path for path in request.paths]
    paths += [request.main.parent] if request.main is not None else []
    folders = [os.path.relpath(path, folder).replace(os.sep, "/") for path in paths]
    return Wanted(
        captures=tuple(path_label(os.path.basename(path)) for path in request.files),
        folders=tuple(dict.fromkeys(["", *(f for f in folders if f != ".")])),
        main=None if request.main is None else request.main.stem,
        modules=request.imports,
        threads=request.threads,
        seeds=read_seeds(request.seeds),
        timeout_s=request.timeout_s or TIMEOUT_S,
    )


def _refused(made: Reproduction, missing: Sequence[str]) -> int:
    for use in made.refused:
        shown = ", ".join(f"#{index}" for index in use.messages[:MAX_SHOWN])
        say(f"refused: {use.name}: {use.reason} ({shown})")
    say(allow_line(missing))
    say("nothing was written: the script would import and call what nobody allowed")
    return exit_codes.REFUSED


def _write(folder: Path, written: Reproducer, *, test: bool) -> None:
    output = OutputFolder(folder, private=True)
    try:
        with writing(folder):
            with io.BufferedWriter(output.new(TENSORS)) as file:
                write_safetensors(file, written.tensors.entries, written.tensors.metadata())
            for name, text in ((SCRIPT, written.script), *([(TEST, written.test)] if test else [])):
                with io.BufferedWriter(output.new(name)) as file:
                    file.write(text.encode("ascii"))
        with held_back():
            output.put(mark=SCRIPT)
    finally:
        output.drop()


def _tell(folder: Path, made: Reproduction, written: Reproducer) -> None:
    """On stderr, as everything for people."""
    compared = f"{counted(written.answers, 'answer')} and {counted(written.gradients, 'gradient')}"
    say(f"{folder / SCRIPT}: {counted(len(made.calls), 'call')}; it compares {compared}")
    if made.left_out:
        say(f"{counted(made.left_out, 'request')} left out, which it does not depend on")
    for index, why in written.skipped[:MAX_SHOWN]:
        say(f"#{index} is not in it: {why}")
    if len(written.skipped) > MAX_SHOWN:
        say(f"and {len(written.skipped) - MAX_SHOWN} more, see the top of the script")


MAX_SHOWN = 10
