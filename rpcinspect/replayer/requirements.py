"""What live workers must have before anything is sent to them: what messages name, and GPUs.

In: a plan with its captured calls, and the process that live workers are forked from. Out: what it is to
import; an error where something is not there that the captured workers had.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from rpcinspect.errors import DeviceError, ReplayError
from rpcinspect.pickles.semantic import SCRIPT_PREFIX
from rpcinspect.replayer.planning.devices import DevicePlacement, Devices
from rpcinspect.replayer.planning.model import Plan, some_of
from rpcinspect.replayer.workers.workers import WorkerOptions, Workers
from rpcinspect.rpc.questions import failed
from rpcinspect.run.exchanges import Exchange

OPTIMIZERS = ("torch.distributed.optim.", "torch.optim.")
LOADED_BY_OPTIMIZERS = "torch._dynamo.disable"
"""The first optimizer of a process imports its module, for seconds, while somebody waits for the answer."""


def with_modules(options: WorkerOptions, plan: Plan) -> WorkerOptions:
    """Lets the modules of everything that the plan brings to live workers be imported before they are forked:
    once, and not while a call is waited for."""
    names = [use.name.removeprefix(SCRIPT_PREFIX) for use in plan.globals if use.allowed or plan.trusted]
    if any(name.startswith(OPTIMIZERS) for name in names):
        names.append(LOADED_BY_OPTIMIZERS)
    return replace(options, names=(*options.names, *names))


def check_names(plan: Plan, calls: Mapping[int, Exchange], workers: Workers) -> tuple[str, ...]:
    """Raises `ReplayError` where live workers can't find what a request calls or an answer holds, though the
    captured ones found it. Returns what of torch itself they name and the release of live workers lacks."""
    steps = [step for session in plan.sessions for step in session.steps]
    messages = {step.answer for step in steps if step.action == "answer" and step.answer is not None}
    for step in steps:
        answer = calls[step.message].response if step.message in calls else None
        if step.action == "send" and (answer is None or not failed(answer)):
            messages.add(step.message)
    missing: list[str] = []
    lacking: list[str] = []
    for use in plan.globals:
        name = use.name.removeprefix(SCRIPT_PREFIX)
        needed = some_of([f"#{index}" for index in sorted(messages.intersection(use.messages))])
        if not needed or name not in workers.missing:
            continue
        if name.partition(".")[0] == "torch":
            release = f"torch {workers.torch_version}"
            lacking.append(
                f"{release} lacks {name}, needed by {needed}; --interpreter PY replays with another"
            )
        else:
            missing.append(f"{name} ({needed}): {workers.missing[name]}")
    if missing:
        raise ReplayError("\n".join(["live workers can't find what the capture names:", *missing]))
    return tuple(lacking)


def check_gpus(devices: Devices, calls: Mapping[int, Exchange], workers: Workers) -> None:
    """Raises `DeviceError` unless torch has every GPU that something is to be on."""
    placement = DevicePlacement.of(devices, calls.values())
    needed = max([int(name.partition(":")[2]) for name in placement.used if name != "cpu"], default=0)
    found = workers.gpus()
    gpus = found.get("gpus")
    count = len(gpus) if isinstance(gpus, list) else 0
    if not count:
        why = "finds no GPU" if found.get("cuda") else "is built without CUDA"
        raise DeviceError(f"--device cuda: PyTorch {workers.torch_version} {why}")
    if needed >= count:
        raise DeviceError(
            f"cuda:{needed}: there are {count} GPUs; --map cuda:{needed}=cuda:0 moves its tensors"
        )
