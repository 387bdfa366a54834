"""What is asked before messages are exported, and what is told while they are.

In: the app, a capture, and what may be exported of it. Out: windows, files, and lines of what came of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.browse.lines import ListLine
from rpcinspect.browse.list_app import ListApp
from rpcinspect.browse.screens import Chooser, PasteScreen, TextPrompt
from rpcinspect.fields.phrases import printable
from rpcinspect.unexpected import fault

if TYPE_CHECKING:
    from rpcinspect.browse.export_forms import ExportForm
    from rpcinspect.browse.export_job import ExportJob
    from rpcinspect.browse.export_scopes import ExportedPart, ExportScope

NOT_YET = "messages can be exported once the whole capture was read"
PASTE = "command lines that do the same, to copy"
NO_FILE = "CAPTURE.pcap"
"""Stands in command lines for what can't be read again."""


class ExportFlow:
    """From the key to the file."""

    def __init__(
        self,
        app: ListApp,
        reading: GrowingRun,
        notes: Mapping[int, str],
        scopes: Callable[[], list[ExportScope]],
    ) -> None:
        """`notes`: by rows; `scopes`: asked once the capture was read."""
        self._app = app
        self._reading = reading
        self._notes = notes
        self._scopes = scopes
        self._job: ExportJob | None = None

    def follow(self) -> str:
        """Returns how far the writing is, empty where nothing is written; tells what came of it."""
        job = self._job
        if job is None:
            return ""
        if job.over:
            self._job = None
            self._say(job.why or f"wrote {job.told}", bad=bool(job.why))
        return printable(job.words)

    def stop(self) -> None:
        """Gives up what is being written."""
        if self._job is not None:
            self._job.stop()

    def ask(self) -> None:
        """Asks which messages are meant, then as what."""
        if self._job is not None:
            self._choose(
                f"{self._job.words}", ("go on", "give it up"), lambda at: self.stop() if at else None
            )
        elif self._reading.run is None:
            self._say(NOT_YET)
        else:
            scopes = self._scopes()
            labels = [one.label for one in scopes]
            self._choose("export which messages?", labels, lambda at: self._ask_form(scopes[at]))

    def _ask_form(self, scope: ExportScope) -> None:
        from rpcinspect.browse.export_forms import FORMS

        def chosen(at: int) -> None:
            if at < len(FORMS):
                self._ask_name(scope, FORMS[at], f"{self._stem(scope)}{FORMS[at].suffix}")
            else:
                self._work_out(scope)

        self._choose(f"{scope.label}: as what?", [*(one.about for one in FORMS), PASTE], chosen)

    def _stem(self, scope: ExportScope) -> str:
        """Returns how a file is called, without its suffix."""
        name = Path(self._reading.paths[0]).name
        for suffix in (".gz", ".zst", ".pcap", ".pcapng", ".rpclog"):
            name = name.removesuffix(suffix)
        stem = printable(name) if name.strip("-") else "capture"
        return f"{stem}-{scope.word}" if scope.word else f"{stem}-all"

    def _ask_name(self, scope: ExportScope, form: ExportForm, name: str) -> None:
        def answered(text: str) -> None:
            if text.strip():
                self._check(scope, form, text.strip())

        where = "folder" if form.name == "safetensors" else "file"
        title = f"name of the {where} ({form.about}; {scope.label})"
        self._app.ask(TextPrompt(title, name), answered)

    def _check(self, scope: ExportScope, form: ExportForm, name: str) -> None:
        """Never writes over something unasked, over the capture never at all."""
        path = Path(name).expanduser()
        if any(_is_same(path, one) for one in self._reading.paths):
            self._say(f"{path}: is the capture that is shown: choose another name", bad=True)
            self._ask_name(scope, form, name)
        elif _is_there(path):
            what = "replace what is there" if form.name == "safetensors" else "write over it"

            def chosen(at: int) -> None:
                if at:
                    self._start(scope, form, path)
                else:
                    self._ask_name(scope, form, name)

            self._choose(f"{printable(str(path))} is there already", ("choose another name", what), chosen)
        else:
            self._start(scope, form, path)

    def _start(self, scope: ExportScope, form: ExportForm, path: Path) -> None:
        from rpcinspect.browse.export_job import ExportJob

        self._job = ExportJob(self._reading, scope, form, path, dict(self._notes))
        self._job.start()

    def _work_out(self, scope: ExportScope) -> None:
        """Finds the filter for a command line, which may take a look at every message."""
        from rpcinspect.browse.export_scopes import part_of_scope

        def find() -> None:
            try:
                part = part_of_scope(scope, self._reading)
            except Exception as error:
                self._app.call_from_thread(self._say, fault(error), bad=True)
            else:
                self._app.call_from_thread(self._show_commands, scope, part)

        self._app.run_worker(find, thread=True, exclusive=True, group="command lines", exit_on_error=False)

    def _show_commands(self, scope: ExportScope, part: ExportedPart) -> None:
        from rpcinspect.browse.export_forms import paste_lines

        if part.text is None:
            self._say("no filter of a command picks exactly these: write them to a file instead", bad=True)
            return
        decoding = self._reading.decoding
        again = all(reader.twice for reader in decoding.readers)
        captures = self._reading.paths if again else [NO_FILE]
        number = scope.numbers[0] if len(scope.numbers) == 1 else None
        lines = paste_lines(captures, decoding.options, number, part.text, self._stem(scope))
        title = "enter copies, where the terminal can (OSC 52)"
        if not again:
            title += f"; write all messages to a file first: {NO_FILE} stands for it"
        self._app.ask(PasteScreen(title, lines), lambda at: self._copy(lines[at].text))

    def _copy(self, text: str) -> None:
        self._app.copy_to_clipboard(text)
        self._say(f"given to the terminal to copy: {text}")

    def _choose(self, title: str, labels: Sequence[str], chosen: Callable[[int], None]) -> None:
        lines = [ListLine(printable(one)) for one in labels]
        self._app.ask(Chooser(printable(title), lines), chosen)

    def _say(self, text: str, *, bad: bool = False) -> None:
        self._app.say(text, "error" if bad else "information", 10)


def _is_same(path: Path, capture: str) -> bool:
    try:
        return os.path.samefile(path, capture)
    except (OSError, ValueError):
        return False


def _is_there(path: Path) -> bool:
    """Returns whether something would be replaced: an empty folder is nothing."""
    try:
        return any(path.iterdir()) if path.is_dir() else path.exists() or path.is_symlink()
    except (OSError, ValueError):
        return False  # who opens it tells it better
