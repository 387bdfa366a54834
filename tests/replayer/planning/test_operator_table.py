"""The table of operators against the rules that made it, and both against the registry of torch."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rpcinspect.replayer.planning.operator_table import PASSES, REFUSED
from rpcinspect.replayer.planning.operators import ATEN, why_refused

FORBIDDEN = re.compile(
    r"^_|backward|_(\.|$)|[._]out$|resize|as_strided|^set|unsafe|from_|save|load|empty|sparse|pack|fbgemm|cudnn|mkldnn|miopen"
    r"|unpool|_with_indices|embedding_bag|^(lstm|gru|rnn)|seed|data|pin|record|warn|grad$|^[a-z]*print|format|__"
)
"""What no name of the table has in it."""
UNNAMED = "not one of the operators that are known only to compute"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, repo: Path) -> ModuleType:
    """bench/operators.py"""
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(repo / "bench"))
    import operators

    return operators


def test_the_table_is_what_the_program_writes(program: ModuleType) -> None:
    """So no name is in it that no group names, and none of the registry is left out by accident."""
    assert program.changes() == []


def test_every_name_is_once_in_the_table() -> None:
    names = [name for group in PASSES.values() for name in group.split()]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert len(names) > 400


def test_no_name_is_of_a_kind_that_checks_nothing() -> None:
    assert [name for group in PASSES.values() for name in group.split() if FORBIDDEN.search(name)] == []


def test_what_is_refused_does_not_pass() -> None:
    passing = {name for group in PASSES.values() for name in group.split()}
    passing |= {name.partition(".")[0] for name in passing}
    refused = {name for names in REFUSED.values() for name in names.split() if "." in name}
    refused |= {name for names in REFUSED.values() for name in names.split() if name not in passing}
    assert passing & refused == set()


def test_each_name_that_a_program_can_send_passes_or_says_why_not(program: ModuleType) -> None:
    """rpc.rpc_sync(to, torch.add) sends an operator for what TorchScript has a builtin for."""
    from torch.jit._builtins import _get_builtin_table

    passing = {name.partition(".")[0] for group in PASSES.values() for name in group.split()}
    unnamed = []
    for builtin in {*_get_builtin_table().values()}:
        base = builtin.removeprefix(ATEN)
        if base not in passing and why_refused(builtin) == UNNAMED:
            unnamed.append(base)
    assert "add" not in unnamed
    assert {"embedding_bag", "fft_fft", "linalg_svdvals"} <= {*unnamed}


@pytest.mark.parametrize(
    "wrong",
    [
        "aten::to.prim_dtype",  # calls its element type a number
        "aten::add.out",
        "aten::add_.Tensor",
        "aten::max.dim",  # answers two values
        "aten::einsum.sublist",  # takes any number of arguments
        "aten::eq.enum",
        "aten::index.list_Tensor",  # of the interpreter
    ],
)
def test_rules_leave_out(program: ModuleType, wrong: str) -> None:
    import torch

    (schema,) = [one for one in torch._C._jit_get_all_schemas() if f"{ATEN}{program.name_of(one)}" == wrong]
    assert not program.is_sound(schema)


def test_names_of_other_releases_stay(program: ModuleType) -> None:
    known = dict(PASSES)
    known["loss"] += " mse_loss.of_another_release"
    made: dict[str, Any] = program.generate(known)
    assert "mse_loss.of_another_release" in made["loss"].split()
