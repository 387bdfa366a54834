"""What a program can do with runs: compare two of them, and replay one against live workers.

In: runs, or paths of captures. Out: a `Comparison`, or a `Report`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import structs

from rpcinspect.capture.reader import PathName
from rpcinspect.diff.compare import check_messages, compare_runs
from rpcinspect.diff.model import Comparison
from rpcinspect.equality.rules import Rules
from rpcinspect.errors import ReplayError
from rpcinspect.library.run import Run, open
from rpcinspect.replayer.options import ReplayOptions
from rpcinspect.replayer.planning.allowances import Allowance
from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.planning.plan import PlanOptions
from rpcinspect.replayer.planning.plan import plan as make_plan
from rpcinspect.replayer.planning.sources import Sources
from rpcinspect.replayer.playing.report import Report, report
from rpcinspect.replayer.replayer import replay as carry_out

BY_DEFAULT = Rules()


def compare(
    a: Run | PathName | Sequence[PathName], b: Run | PathName | Sequence[PathName], rules: Rules = BY_DEFAULT
) -> Comparison:
    """The diff of two runs, each open, a capture or several of them: which message of one is which of the
    other, where they part first, and why. Raises `CaptureError` for what is no capture, and where neither
    run has a message."""
    with ExitStack() as stack:
        runs = [one if isinstance(one, Run) else stack.enter_context(open(one)) for one in (a, b)]
        models = [run.model for run in runs]
        check_messages(*models)
        return compare_runs(models[0], models[1], rules)


def replay(
    run: Run | PathName | Sequence[PathName],
    *,
    plan: PlanOptions = PlanOptions(),  # noqa: B008
    path: Sequence[PathName] = (),
    main: PathName | None = None,
    allow: Sequence[str] = (),
    options: ReplayOptions = ReplayOptions(),  # noqa: B008
) -> Report:
    """Sends the captured messages to live workers again and compares what comes back, bit for bit.

    `path`: folders and files of the job's sources, whose functions and classes may be used; `main`: the
    script that ran; `allow`: further names, as `--allow` has them. Nothing is started where the capture names
    anything else: the report's `verdict` is then "refused", and `missing` has what to allow. Raises
    `ReplayError` where no worker can be started, `PlanError` for a worker or context that is not captured.
    """
    with ExitStack() as stack:
        its = run if isinstance(run, Run) else stack.enter_context(open(run))
        sources = Sources(None if main is None else Path(main), tuple(map(Path, path)))
        allowed = {one: Allowance.parse(one) for one in allow}
        for one, read in allowed.items():
            if read is None:
                raise ReplayError(f"{one}: not MODULE, MODULE:NAME, MODULE:CLASS.METHOD or aten::NAME")
        gate = ExecutionPolicy([one for one in allowed.values() if one is not None], sources)
        made = make_plan(its.model, plan, gate)
        workers = structs.replace(
            options.workers,
            path=(
                *options.workers.path,
                *(str(one.parent if one.is_file() else one) for one in map(Path, path)),
            ),
            files=tuple(sources.files().items()),
            main=None if main is None else os.fspath(main),
        )
        return report(carry_out(its.model, made, structs.replace(options, workers=workers)))
