"""Objects that live workers make from functions and from each other; and what is put into them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
objects = pytest.importorskip("rpcinspect.replayer.workers.objects")


@pytest.fixture(autouse=True)
def makers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of functions that make objects, and no object yet."""
    text = """
class Layer:
    def __init__(self, size=3, *, name="one"):
        self.size, self.name = size, name
def optional(size=4):
    return size
def of_others(objects):
    return objects["0:1"].size + 1
def keyword(*, size):
    return size
def broken():
    return 1 // 0
"""
    (tmp_path / "maker_functions.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    objects.objects.clear()
    sys.modules.pop("maker_functions", None)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("maker_functions:optional", 4),
        ("maker_functions:optional(7)", 7),
        ("maker_functions:optional([1, {'a': None}])", [1, {"a": None}]),
        ("maker_functions:keyword(size=-2.5)", -2.5),
        ("maker_functions:of_others", 9),
        ("0:1.size", 8),
        ("0:1.inner.weight", "w"),
    ],
)
def test_what_a_source_stands_for(source: str, expected: object) -> None:
    objects.objects["0:1"] = SimpleNamespace(size=8, inner=SimpleNamespace(weight="w"))
    assert objects.made_by(source) == expected


def test_arguments_are_values_only() -> None:
    with pytest.raises(ValueError, match="malformed node"):
        objects.made_by("maker_functions:optional(__import__('os').getpid())")


def test_an_object_is_kept_until_it_is_taken() -> None:
    assert objects.make("0:2", "maker_functions:Layer(5, name='two')", "PyObject") == (None, None)
    assert (objects.take("0:2").size, objects.take("0:2").name) == (5, "two")


def test_an_error_is_told_and_its_traceback_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert objects.make("0:2", "maker_functions:broken", "PyObject") == (
        "ZeroDivisionError: integer division or modulo by zero",
        None,
    )
    told = capsys.readouterr().err
    assert "in broken" in told
    assert "objects.py" not in told


def test_values_that_fit() -> None:
    layer = torch.nn.Linear(2, 3)
    other = torch.nn.Linear(2, 3)
    objects.fill(layer, other.state_dict())
    assert torch.equal(layer.weight, other.weight)
    objects.fill(layer.weight, torch.full((3, 2), 4.0))
    assert layer.weight.detach().tolist() == [[4.0] * 2] * 3
    assert layer.weight.requires_grad


@pytest.mark.parametrize(
    ("target", "values", "told"),
    [
        (lambda: torch.zeros(2), lambda: torch.zeros(3), r"Tensor\[3\] of \S+ does not fit into Tensor\[2\]"),
        (
            lambda: torch.zeros(2),
            lambda: torch.zeros(2).double(),
            r"float64 does not fit into .* of torch.float32",
        ),
        (lambda: torch.zeros(2), lambda: {"a": 1}, r"dict does not fit into Tensor\[2\]"),
        (list, dict, "list has no load_state_dict"),
    ],
)
def test_values_that_do_not_fit(target: Any, values: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        objects.fill(target(), values())


@pytest.mark.parametrize("content", [b"junk", b""])
def test_a_file_that_torch_does_not_read(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_bytes(content)
    told, _ = objects.load_file([], str(tmp_path / "weights.pt"))
    assert told.startswith("torch.load can't read it with weights_only=True: ")
    assert "\n" not in told
    assert "\x1b" not in told


@pytest.mark.parametrize("type_text", ["__torch__.named_by_capture.C", "__torch__.maker_functions.Missing"])
def test_the_type_that_a_capture_names_imports_nothing(
    type_text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its module would run: only what the user's function has imported counts."""
    (tmp_path / "named_by_capture.py").write_text("class C: ...")
    error, taker = objects.make("0:2", "maker_functions:optional", type_text)
    assert error == (
        f"ValueError: no module that was imported for you defines {type_text}, its type in the capture"
    )
    assert (taker, "named_by_capture" in sys.modules) == (None, False)


def test_only_parameters_take_captured_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    layer, computed = torch.nn.Linear(2, 3), torch.ones(2, requires_grad=True) * 2
    for target in (layer, computed, torch.zeros(2), [1]):
        monkeypatch.setattr(objects, "value_of", lambda rref, target=target: target)
        assert objects.load_value([0, 1, 7], torch.zeros(2)) == (None, None)
        assert "RRef 1:7 is not a parameter: its value stays" in capsys.readouterr().err
    assert computed.tolist() == [2.0, 2.0]
