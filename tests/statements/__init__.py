"""What the answers to a run must say for each line of a truth file: a function for each kind of event."""

from __future__ import annotations

from collections.abc import Callable

from tests.statements import autograd, calls, faults, jobs
from tests.statements.told import Statement, Told

COMPARE: dict[str, Callable[[Told, Statement], None]] = {
    "answer": calls.answer,
    "backward": autograd.backward,
    "backward-done": autograd.backward_done,
    "backward-error": autograd.backward_error,
    "call": calls.call,
    "cascade": faults.cascade,
    "case": jobs.case,
    "context": autograd.context,
    "context-exit": autograd.context_exit,
    "control": calls.control,
    "device-maps": jobs.device_maps,
    "died": faults.died,
    "edges": autograd.edges,
    "expect": jobs.expect,
    "fault": faults.fault,
    "fetched": jobs.fetched,
    "finished": jobs.finished,
    "gradients": autograd.gradients,
    "handles-left": jobs.handles_left,
    "hangs": faults.hangs,
    "holds": jobs.holds,
    "left": faults.left,
    "local": autograd.local,
    "none": autograd.none,
    "order": jobs.order,
    "overlap": jobs.overlap,
    "owns": jobs.holds,
    "profile": jobs.profile,
    "raise": faults.raised,
    "ran": calls.ran,
    "refused": jobs.refused,
    "rref-backward": jobs.rref_backward,
    "run": calls.run,
    "shutdown": faults.shutdown,
    "site": jobs.site,
    "step": jobs.step,
    "summation": jobs.summation,
    "trained": faults.trained,
    "visible": jobs.visible,
    "worker": calls.worker,
}
"""By the kind of event."""
