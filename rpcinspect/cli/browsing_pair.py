"""What `rpcinspect browse --diff` does: opens two runs, then runs the app until a key ends it.

In: the options. Out: the exit code; why the runs can't be compared is raised once the screen is gone.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from rpcinspect.browse.pair_app import PairBrowser
from rpcinspect.browse.pair_reading import PairReading
from rpcinspect.browse.terminal import run_in_terminal
from rpcinspect.cli.collector import imports_are_over
from rpcinspect.cli.compare_options import captures_of
from rpcinspect.cli.comparing import chosen_contexts
from rpcinspect.diff.compare import compare_runs
from rpcinspect.diff.model import Comparison
from rpcinspect.pipeline import Decoding, Progress
from rpcinspect.run.run import RunModel

if TYPE_CHECKING:
    from rpcinspect.cli.browse import BrowseCommand


def browse_pair(asked: BrowseCommand) -> int:
    """Shows two runs until a key ends it."""
    imports_are_over()
    rules, ids = asked.rules(), asked.context_ids()
    reading: PairReading | None = None

    def heard(done: int, of: int | None) -> None:
        if reading is not None:
            reading.heard(done, of)

    def compare(a: RunModel, b: RunModel, progress: Progress) -> Comparison:
        contexts = chosen_contexts(rules, ids, a, b)
        return compare_runs(a, b, rules, contexts=contexts, progress=progress)

    options = asked.decoding_options(audit=False, progress=heard)
    with ExitStack() as stack:
        decodings = [stack.enter_context(Decoding(captures_of(file), options)) for file in asked.files]
        reading = PairReading(decodings, compare)
        stack.callback(reading.close)
        code = run_in_terminal(PairBrowser(reading))
        if reading.failure is not None:
            raise reading.failure
        return code
