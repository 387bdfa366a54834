"""Tensor tables as torch itself writes them, and the storages that belong to them."""

from __future__ import annotations

import io
import warnings
import zipfile
from typing import Any

import pytest


def import_torch() -> Any:
    """torch, or the test is skipped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("torch", reason="torch is not installed")


def torch_table(tensors: list[Any]) -> tuple[bytes, list[bytes]]:
    """(tensor table, storages) of a list of tensors, by the pickler that rpc uses too."""
    torch = import_torch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive = zipfile.ZipFile(io.BytesIO(torch._C._pickle_save(tensors)))
    names = archive.namelist()
    (table,) = (name for name in names if name.endswith("/data.pkl"))
    folder = table.removesuffix("data.pkl") + "data/"
    storages = {
        int(name.removeprefix(folder)): archive.read(name) for name in names if name.startswith(folder)
    }
    return archive.read(table), [storages[i] for i in range(len(storages))]


def raw_bytes(tensor: Any) -> bytes:
    """The logical elements of a strided tensor, row-major, lazy bits resolved; by torch."""
    torch = import_torch()
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if plain.numel() == 0:
        return b""
    return bytes(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
