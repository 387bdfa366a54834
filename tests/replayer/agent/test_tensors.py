"""Tensors in the process that has torch: what a table says is what torch has, to the bit, and back."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.replayer.agent.values import rows_of, table_of
from rpcinspect.rpc.tensor import read_tensor_table
from tests import forks
from tests.replayer.captured import captured
from tests.truth import capture_of

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[3]

THROUGH = """
import json, sys
from rpcinspect.replayer.agent.tensors import build, tell
out = []
for rows, storages in json.load(sys.stdin):
    tensors = build(rows, [bytes.fromhex(data) for data in storages])
    rows, storages = tell(tensors)
    out.append([rows, [data.hex() for data in storages]])
print(json.dumps(out))
"""


def in_process(code: str, text: str = "") -> str:
    """What a program prints."""
    return forks.run([sys.executable, "-B", "-c", code], text=text, timeout=120, cwd=ROOT, check=True).stdout


def through_torch(messages: list[tuple[bytes, tuple[bytes, ...]]]) -> list[tuple[bytes, list[bytes]]]:
    """Tables and storages, made into tensors of torch and told again, by a process of its own."""
    what = [
        [rows_of(table, lambda device: "cpu"), [data.hex() for data in storages]]
        for table, storages in messages
    ]
    found: list[Any] = json.loads(in_process(THROUGH, json.dumps(what)))
    return [(table_of(rows), [bytes.fromhex(data) for data in storages]) for rows, storages in found]


@pytest.mark.parametrize("name", ["dtype_zoo", "views_alias"])
def test_every_tensor_of_a_job_comes_through_torch(name: str) -> None:
    with captured(str(capture_of(name))) as messages:
        sent = [(one.message.tensor_table, one.tensors) for one in messages if one.tensors]
    assert len(sent) > 10
    for (table, storages), (back, live) in zip(sent, through_torch(sent), strict=True):
        there, here = read_tensor_table(table), read_tensor_table(back)
        # requires_grad is the autograd function's doing, not that of the tensors
        assert [plain(meta) for meta in here] == [plain(meta) for meta in there]
        used = {meta.storage for meta in there if meta.storage is not None}
        assert [live[number] for number in sorted(used)] == [storages[number] for number in sorted(used)]


def plain(meta: Any) -> tuple[object, ...]:
    shape = (meta.dtype, meta.sizes, meta.strides, meta.storage_offset, meta.layout, meta.storage)
    return (*shape, meta.conj, meta.neg, meta.quantizer, meta.parts, meta.part_of)


def test_values_of_operators() -> None:
    code = """
import json, torch
import rpcinspect.replayer.agent.tensors as a
tensors = []
value = [torch.ones(1), (1, True, None, "x"), {"k": [2.5, float("inf")]}, torch.device("cpu")]
told = json.loads(json.dumps(a.tell_value(value, tensors)))
back = a.value(told, tensors, {})
print(json.dumps([back[0] is value[0], back[1:] == value[1:], [type(x).__name__ for x in back[1]]]))
"""
    assert json.loads(in_process(code)) == [True, True, ["int", "bool", "NoneType", "str"]]


pytest.importorskip("torch")

IDS = """
import json
from rpcinspect.replayer.agent.tensors import ids_of
guid = "GloballyUniqueId(created_on={}, local_id={})"
shown = f"UserRRef(RRefId = {guid.format(1, 20)}, ForkId = {guid.format(1, 21)})"
try:
    ids_of("OwnerRRef(GloballyUniqueId(created_on=0, local_id=1))")
    wrong = False
except RuntimeError:
    wrong = True
print(json.dumps([ids_of(shown), wrong]))
"""


def test_ids_as_torch_shows_them() -> None:
    assert json.loads(in_process(IDS)) == [[[1, 20], [1, 21]], True]
