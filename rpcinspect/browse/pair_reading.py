"""Two runs that are read and compared while the screen already says how far that is.

In: decodings that have begun, and how the two runs are compared. Out: both runs with the comparison of
`diff`. All of it takes place in a thread of its own.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rpcinspect.diff.model import Comparison, Found
from rpcinspect.fields.phrases import captures_title
from rpcinspect.pipeline import Decoding, Progress
from rpcinspect.run.run import RunModel
from rpcinspect.views.diff.rows import RowKind, kind_of

CompareRuns: TypeAlias = Callable[[RunModel, RunModel, Progress], Comparison]
JOIN_S = 10.0
SIDES = "ab"


class ComparedRuns(Struct, frozen=True, dict=True):
    """Both runs and what comparing them came to; places are those of the comparison's messages."""

    runs: tuple[RunModel, RunModel]
    comparison: Comparison

    @cached_property
    def found(self) -> Mapping[int, Sequence[Found]]:
        """Returns the differences by their place."""
        found: dict[int, list[Found]] = defaultdict(list)
        for one in self.comparison.found:
            found[one.message].append(one)
        return dict(found)

    @cached_property
    def different(self) -> NDArray[np.int64]:
        """Returns the places at which something differs that counts, in order."""
        return np.array(sorted({one.message for one in self.comparison.found if one.counts}), np.int64)

    @cached_property
    def first(self) -> int | None:
        """Returns the place at which the runs part first."""
        first = self.comparison.first
        return None if first is None else self.comparison.found[first.found].message

    def kind(self, place: int) -> RowKind | None:
        """Returns what the differences of a message make of it; None where nothing differs."""
        its = self.found.get(place)
        return None if its is None else kind_of(its)

    @cached_property
    def housekeeping(self) -> NDArray[np.bool_]:
        """Returns of each place whether all that is there is housekeeping of the agents."""
        keeping = np.ones(len(self.comparison.messages), bool)
        for run, side in zip(self.runs, SIDES, strict=True):
            its = np.frombuffer(run.housekeeping, np.uint8)[run.session.order]
            for place, message in enumerate(self.comparison.messages):
                index = getattr(message, side)
                if index is not None and not its[index]:
                    keeping[place] = False
        return keeping


class _GivenUp(Exception):
    """Nobody waits for the comparison any more."""


class PairReading:
    """Two captures on the way to a comparison."""

    def __init__(self, decodings: Sequence[Decoding], compare: CompareRuns) -> None:
        """`decodings`: of a and b, or the one that both runs are in."""
        self.decodings = decodings
        self.compared: ComparedRuns | None = None
        """Everything, once it is known."""
        self.failure: Exception | None = None
        """Why there is no comparison."""
        self._compare = compare
        self._doing = ""
        self._progress: tuple[int, int | None] = (0, None)
        self._stop = False
        self._thread = threading.Thread(target=self._read, name="rpcinspect reading", daemon=True)

    def heard(self, done: int, of: int | None) -> None:
        """Takes notice of how far the reading is, or the comparing."""
        if self._stop:
            raise _GivenUp
        self._progress = done, of

    @property
    def state_words(self) -> str:
        """Returns what goes on, and how far it is; empty once all is known."""
        done, of = self._progress
        return f"{self._doing}: {100 * done // of} %" if self._doing and of else self._doing

    @property
    def names(self) -> tuple[str, str]:
        """Returns what the two runs are called."""
        titles = [captures_title([reader.path for reader in one.readers]) for one in self.decodings]
        return titles[0], titles[-1]

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits until all is known."""
        self._thread.join(timeout_s)

    def close(self) -> None:
        """Ends the reading and closes the captures."""
        self._stop = True
        for decoding in self.decodings:
            decoding.stop()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)
        for decoding in self.decodings:
            decoding.close()

    def _read(self) -> None:
        try:
            runs = [
                self._run(decoding, name) for decoding, name in zip(self.decodings, self.names, strict=False)
            ]
            self._doing, self._progress = "comparing", (0, None)
            both = runs[0], runs[-1]
            compared = ComparedRuns(both, self._compare(*both, self.heard))
            compared.found, compared.different, compared.housekeeping  # noqa: B018  (here, where no key waits)
            self._doing = ""
            self.compared = compared
        except _GivenUp:
            self._doing = ""
        except Exception as error:
            self._doing = ""
            self.failure = error

    def _run(self, decoding: Decoding, name: str) -> RunModel:
        self._doing, self._progress = f"reading {name}", (0, None)
        return RunModel.of(decoding, list(decoding.records()))
