"""Every field against the lines of jsonl, on real captures; sizes against what torch says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rpcinspect.fields.field import several
from rpcinspect.fields.kinds import FLAG
from rpcinspect.fields.message import MessageValues, Reader
from rpcinspect.fields.session import AtTheEnd
from rpcinspect.fields.table import BY_NAME, FIELDS
from rpcinspect.run.run import RunModel
from tests.decoded import decode
from tests.filter.from_json import FROM_JSON, values
from tests.places import recorded
from tests.truth import CAPTURES

BUNDLED = sorted(path.name for path in CAPTURES.glob("*.pcap*"))
ERRORS = (
    "DistOptimizerTest.test_dist_optim_exception.pcap.gz",
    "DistAutogradTest.test_backward_accumulate_grads.pcap.gz",
)
DAMAGED = ("torch/snap300.pcap", "torch/stress_lossy.pcap")


def asked(*paths: Path) -> list[dict[str, list[Any]]]:
    """Of every message, what each field gives."""
    with RunModel.open([str(path) for path in paths]) as opened:
        reader, known = Reader(opened.bytes), AtTheEnd(opened.session)
        found = []
        for record in opened.messages:
            message = MessageValues(record, reader)
            known.at([record.row])
            found.append(
                {
                    field.name: list(several(field.column(known)[0]) if field.late else field.values(message))
                    for field in FIELDS
                }
            )
        return found


def assert_as_in_json(path: Path) -> None:
    told = asked(path)
    expected = values(path)
    assert len(told) == len(expected)
    for index, (got, want) in enumerate(zip(told, expected, strict=True)):
        for name in FROM_JSON:
            if name in ("worker", "finding"):
                got[name].sort()
            assert got[name] == want[name], (index, name)


@pytest.mark.parametrize("name", BUNDLED)
def test_fields_are_what_jsonl_says(name: str) -> None:
    assert_as_in_json(CAPTURES / name)


@pytest.mark.parametrize("name", DAMAGED)
def test_fields_of_damaged_messages_are_what_jsonl_says(name: str) -> None:
    assert_as_in_json(recorded(name))


def test_every_field_is_of_some_real_message() -> None:
    """Flags are true of some and false of others."""
    seen: dict[str, set[Any]] = {field.name: set() for field in FIELDS}
    paths = [*(CAPTURES / name for name in BUNDLED), *(recorded(name) for name in DAMAGED)]
    paths += [recorded("torch/nested.pcap"), *(recorded(f"torch-suite/{name}") for name in ERRORS)]
    for path in paths:
        for message in asked(path):
            for name, its in message.items():
                seen[name].update(its)
    assert {name for name, its in seen.items() if not its} == set()
    flags = {name: its for name, its in seen.items() if BY_NAME[name].kind is FLAG}
    assert {name for name, its in flags.items() if its != {True, False}} == set()


def test_sizes_of_tensors_are_torchs() -> None:
    checked = 0
    for name in ("dtype_zoo.pcap.gz", "views_alias.pcap.gz"):
        messages = decode(CAPTURES / name).messages
        for got, message in zip(asked(CAPTURES / name), messages, strict=True):
            dense = [t for t in message["tensors"] if t["layout"] == "strided"]
            sizes = []
            for tensor in dense:
                dtype = getattr(torch, tensor["dtype"])
                sizes.append(torch.Size(tensor["shape"]).numel() * dtype.itemsize)
            assert got["tensor.nbytes"] == sizes
            checked += len(sizes)
    assert checked > 40


def test_sizes_of_messages_make_up_what_the_summary_counts() -> None:
    path = CAPTURES / "basic_chain.pcap"
    summary, messages = decode(path).summary, asked(path)
    total = sum(message["nbytes"][0] for message in messages)
    handshakes = summary["bytes"]["rpc"] + summary["bytes"]["tensors"] - total
    assert 0 < handshakes < 2000
