"""Recordings that are kept beside tests, and what a new recording of a test is held against.

In: the place of the kept recording, a new log, what counts as a difference, what may be written. Out: what
came of it, the kept recording written anew where that was asked for, and in short where the two runs part.
Nothing here knows of pytest.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.diff.compare import check_messages, compare_runs
from rpcinspect.equality.rules import Rules
from rpcinspect.export.save import shorten_log
from rpcinspect.files.output import open_whole
from rpcinspect.files.place import writing
from rpcinspect.run.run import RunModel
from rpcinspect.views.diff.table import summary_lines

RecordMode: TypeAlias = Literal["none", "once", "new_episodes", "all", "rewrite"]
KeptTensors: TypeAlias = Literal["none", "small", "all"]

SMALL_BYTES = 4096
"""Of a storage whose bytes `small` keeps; `record --tensors small` has the same."""
MOST_BYTES: dict[KeptTensors, int | None] = {"none": 0, "small": SMALL_BYTES, "all": None}


class Golden(Struct, frozen=True, kw_only=True):
    """A recording that is kept, and what may become of it."""

    path: Path
    name: str
    """What the recording is called where people read of it."""
    mode: RecordMode = "none"
    update: bool = False
    """Whether what differs, or is not there, is written."""
    rules: Rules = Rules()
    tensors: KeptTensors = "small"

    @property
    def lacking(self) -> bool:
        """Whether nothing is kept and nothing may be: then no run can be held against it."""
        return self.mode == "none" and not self.update and not self.path.exists()

    def begin(self) -> None:
        """Removes the kept recording where it is to be made anew, whatever comes of the run."""
        if self.mode == "rewrite":
            with writing(self.path):
                self.path.unlink(missing_ok=True)

    def settle(self, new: Path) -> Settled:
        """Holds a new log against the kept one, and writes what may be written. Raises `CaptureError` where
        one of them is no log or holds no messages, `OutputError` where the kept one can't be written."""
        most = MOST_BYTES[self.tensors]
        if most is not None:
            shorten_log(new, new, most)
        if self.mode in ("all", "rewrite") or not self.path.exists():
            return self._put(new, "recorded")
        lines = self._differences(new, self.rules)
        if not lines:
            return Settled(what="same")
        if self.mode == "new_episodes":
            rules = replace(self.rules, ignore=self.rules.ignore | {"extra"})
            if not self._differences(new, rules):
                return self._put(new, "extended")
        return self._put(new, "updated") if self.update else Settled(what="different", lines=lines)

    def diff_options(self) -> list[str]:
        """Returns the options with which `rpcinspect diff` compares by the same rules."""
        its = self.rules
        words = [f"--ignore={','.join(sorted(its.ignore))}"] if its.ignore else []
        words += ["--tolerance"] if its.by_dtype else []
        words += [f"--rtol={its.rtol}"] if its.rtol is not None else []
        return words + ([f"--atol={its.atol}"] if its.atol is not None else [])

    def _differences(self, new: Path, rules: Rules) -> tuple[str, ...]:
        """Returns what `rpcinspect diff` says, the verdict first; nothing where the runs are the same."""
        with ExitStack() as stack:
            runs = [stack.enter_context(RunModel.open([str(one)])) for one in (self.path, new)]
            check_messages(*runs)
            comparison = compare_runs(runs[0], runs[1], rules)
            if comparison.same:
                return ()
            sides = {"a": (comparison.a, self.name), "b": (comparison.b, "this run")}
            named = {label: replace(side, paths=(name,)) for label, (side, name) in sides.items()}
            shown = summary_lines(replace(comparison, **named), (runs[0], runs[1]), show_all=True)
            a, b, verdict, *rest = [line for line, _ in shown]
            return verdict, a, b, *rest

    def _put(self, new: Path, what: Literal["recorded", "extended", "updated"]) -> Settled:
        with RunModel.open([str(new)]) as run:
            check_messages(run, run)
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("rb") as source, open_whole(self.path, private=True) as target:
            shutil.copyfileobj(source, target)
        return Settled(what=what)


class Settled(Struct, frozen=True, kw_only=True):
    """What came of a new recording."""

    what: Literal["same", "recorded", "extended", "updated", "different"]
    lines: tuple[str, ...] = ()
    """Where the two runs part, as `rpcinspect diff` says it; a is the kept one."""
