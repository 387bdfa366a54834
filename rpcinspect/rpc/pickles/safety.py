"""What loading a pickle would import and call beyond plain data: the findings `unsafe-pickle` of a pickle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rpcinspect.rpc.pickles.python import PythonPickle


@dataclass(frozen=True, slots=True)
class Suspicion:
    severity: Literal["error", "warning"]
    name: str
    reason: str


def audit(pickle: PythonPickle) -> list[Suspicion]:
    """Suspicions in order of appearance; the function of a PythonUDF itself is never one."""
    raise NotImplementedError
