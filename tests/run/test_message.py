"""Messages and tensors as a program asks for them, against torch and against what `decode` shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rpcinspect.errors import DecodeError
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.run.message import NUMPY
from rpcinspect.run.run import open_run
from tests.decoded import decode
from tests.places import recorded


def test_messages_say_what_decode_shows(repo: Path) -> None:
    path = repo / "captures" / "basic_chain.pcap"
    with open_run(str(path)) as run:
        for line in decode(path).messages:
            message = run.message(line["index"])
            assert (message.sender, message.receiver, message.type) == (
                line["src"],
                line["dst"],
                line["type"],
            )
            assert (message.time_ns, message.end_time_ns) == (line["time_ns"], line["end_time_ns"])
            assert message.is_request == line["request"]
            other = line["answered_by"] if line["request"] else line["answers"]
            assert (None if message.partner is None else message.partner.index) == other
            assert [tensor.sha256 for tensor in message.tensors] == [t["sha256"] for t in line["tensors"]]


def test_arrays_have_the_elements_that_torch_has(repo: Path) -> None:
    """The hash of the line is over the elements that the workers printed, see tests/test_workloads.py."""
    path = repo / "captures" / "dtype_zoo.pcap.gz"
    seen = set()
    with open_run(str(path)) as run:
        for line in decode(path).messages:
            for tensor, told in zip(run.message(line["index"]).tensors, line["tensors"], strict=True):
                if told["layout"] != "strided" or not tensor.complete:
                    continue
                if tensor.dtype not in NUMPY:
                    with pytest.raises(DecodeError, match="numpy"):
                        tensor.numpy()
                    assert tensor.values() is not None
                    continue
                array = tensor.numpy()
                seen.add(tensor.dtype)
                assert list(array.shape) == told["shape"]
                assert array.tobytes() == tensor.tobytes()
                if DTYPES[tensor.dtype].kind != "quantized":
                    made = torch.from_numpy(array.copy())
                    assert str(made.dtype) == f"torch.{tensor.dtype}"
                    assert made.numpy().tobytes() == array.tobytes()
    assert len(seen) > 8


def test_statistics_are_torchs() -> None:
    with open_run(str(recorded("reports/job/nan.pcap"))) as run:
        checked = nans = 0
        for index in range(len(run)):
            for tensor in run.message(index).tensors:
                if tensor.dtype != "float32" or not tensor.complete or 0 in tensor.shape:
                    continue
                found, made = tensor.statistics(), torch.from_numpy(tensor.numpy().copy())
                assert (found.count, found.nan) == (made.numel(), int(made.isnan().sum()))
                assert found.zero == int((made == 0).sum())
                nans += found.nan
                if made.isfinite().all():
                    checked += 1
                    assert found.minimum == made.min().item()
                    assert found.maximum == made.max().item()
                    assert found.norm == pytest.approx(made.double().norm().item(), rel=1e-12)
                    assert found.mean == pytest.approx(made.double().mean().item(), rel=1e-9, abs=1e-12)
    assert checked > 10
    assert nans > 0


def test_bytes_that_are_not_there_are_an_error(repo: Path) -> None:
    path = recorded("torch/snap300.pcap")
    with open_run(str(path)) as run:
        cut = [
            t for i in range(len(run)) for t in run.message(i).tensors if not t.complete and t.missing_bytes
        ]
        assert cut
        for tensor in cut:
            assert tensor.sha256 is None
            with pytest.raises(DecodeError, match="not captured"):
                tensor.numpy()


def test_what_numpy_calls_them() -> None:
    for name, code in NUMPY.items():
        assert np.dtype(code).itemsize == DTYPES[name].item_bytes
