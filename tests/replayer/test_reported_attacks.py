"""Captures that once got code to run in a live worker, or crashed one: each is refused.

Their canaries are files below a folder that is not there; `captures/reports/README.md` says how each works.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.runner import rpcinspect
from tests.places import recorded

CANARIES = Path("/opt/demo/attack/work")

REFUSED: dict[str, tuple[str, bool]] = {
    # what → (a name that is refused for it, whether --path names the folder of the user's files)
    "walk_limit.rpclog.zst": ("torch.distributed.rpc.api._rref_typeof_on_owner", False),
    "py2_names.rpclog": ("subprocess.getoutput", True),
    "inherited_method.rpclog": ("tools.RunDir.touch", True),
    "method_of_other.rpclog": ("tools.RunDir.touch", True),
    "dtype_flags.rpclog": ("numpy.dtype", False),
    "aten_indices.rpclog": ("aten::max_pool2d_with_indices_backward", False),
    "self_item.rpclog": ("torch.distributed.rpc.api._rref_typeof_on_owner", False),
    "called_while_loading.rpclog": ("torch.distributed.rpc.api._rref_typeof_on_owner", False),
    "audit_silent.rpclog": ("copyreg._reconstructor", False),
}


LARGE = "walk_limit.rpclog.zst"


@pytest.mark.parametrize(
    "file", [pytest.param(file, marks=[pytest.mark.slow] * (file == LARGE)) for file in REFUSED]
)
def test_nothing_is_started(file: str) -> None:
    name, with_path = REFUSED[file]
    path = ["--path", recorded("reports/hostile/src")] if with_path else []
    ran = rpcinspect("replay", recorded(f"reports/hostile/{file}"), *path, "--format", "jsonl")
    assert ran.code == 4
    assert ran.objects[-1]["verdict"] == "refused"
    assert name in [use["name"] for use in ran.objects[-1]["refused"]]
    assert not CANARIES.exists()


def test_a_pickle_that_runs_code_when_loaded_is_an_error_of_decode() -> None:
    ran = rpcinspect("decode", recorded("reports/hostile/audit_silent.rpclog"), "--check")
    assert ran.code == 1
    assert "unsafe-pickle" in ran.out
    assert not CANARIES.exists()
