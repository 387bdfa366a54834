"""What has a name and must stay as it is: the namespaces of classes and modules that pickles name."""

from __future__ import annotations

import copyreg
import importlib
from typing import Any

from tests.fuzz.model.jobs import Fault

MODULES = "job canary builtins os copyreg functools torch._utils"
CLASSES = """
    collections.UserDict collections.UserList collections.UserString collections.Counter collections.ChainMap
    collections.OrderedDict fractions.Fraction uuid.UUID pathlib.PosixPath pathlib.PurePath
    ipaddress.IPv4Address torch.Tensor torch.nn.parameter.Parameter torch.nn.modules.module.Module
    torch.optim.sgd.SGD torch.distributed.rpc.internal._InternalRPCPickler
    torch.distributed.rpc.internal.PythonUDF torch.distributed.nn.api.remote_module.RemoteModule
    job.Item job.Net job.Plain job.Pair job.Words job.Color canary.Base canary.Other
"""


class Places:
    """Remembers them as they are when it is made."""

    def __init__(self) -> None:
        self._places: dict[str, Any] = {name: importlib.import_module(name) for name in MODULES.split()}
        for dotted in CLASSES.split():
            module, _, name = dotted.rpartition(".")
            cls = self._places[dotted] = getattr(importlib.import_module(module), name)
            copyreg._slotnames(cls)  # type: ignore[attr-defined] # writes a cache into the class
        self._before = {name: _held(place) for name, place in self._places.items()}

    def changed(self) -> tuple[Fault, ...]:
        """The first of them that is not as it was."""
        for name, place in self._places.items():
            now, before = _held(place), self._before[name]
            if now != before:
                keys = sorted(key for key in {**before, **now} if before.get(key) != now.get(key))
                return (Fault("changed", f"{name}: {' '.join(keys)}"),)
        return ()


def _held(place: Any) -> dict[str, int]:
    return {key: id(part) for key, part in vars(place).items()}
