"""Rules: what is tolerated, what is ignored, who is renamed."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from rpcinspect.equality.rules import IGNORABLE, INFORMATION, TORCH_TOLERANCES, Rules, Tolerance
from rpcinspect.rpc.dtypes import DTYPES
from tests.equality.codes import CODES
from tests.equality.mirrors import mirrored_rules


def test_bits_count_unless_a_tolerance_is_given() -> None:
    assert all(Rules().tolerance(dtype) is None for dtype in DTYPES)
    assert all(Rules(rtol=0.0, atol=0.0).tolerance(dtype) is None for dtype in DTYPES)
    assert Rules(rtol=0.5, atol=0.0).tolerance("float32") == (0.5, 0.0)
    assert Rules(rtol=0.5).tolerance("float32") == (0.5, 1e-5)
    assert Rules(atol=0.5).tolerance("bfloat16") == (1.6e-2, 0.5)
    assert Rules(by_dtype=True).tolerance("float64") == (1e-7, 1e-7)
    assert Rules(atol=0.5).tolerance("float8_e5m2") == (0.0, 0.5)


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint8", "quint8", "bits8"])
def test_no_tolerance_is_for_what_is_exact(dtype: str) -> None:
    assert Rules(rtol=1.0, atol=1.0, by_dtype=True).tolerance(dtype) is None


def test_the_table_is_torch_s() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch = pytest.importorskip("torch")
    comparison = pytest.importorskip("torch.testing._comparison")
    for dtype, (rtol, atol) in comparison._DTYPE_PRECISIONS.items():
        name = str(dtype).removeprefix("torch.")
        if not name.startswith("q"):
            assert TORCH_TOLERANCES[name] == Tolerance(rtol, atol)
            assert hasattr(torch, name)
    assert len(TORCH_TOLERANCES) <= len(comparison._DTYPE_PRECISIONS)


def test_what_is_ignored_has_codes_of_the_contract() -> None:
    assert {code for some in IGNORABLE.values() for code in some} | INFORMATION <= CODES
    rules = Rules(ignore=frozenset({"device", "latency"}))
    assert [code for code in sorted(CODES) if rules.ignores(code)] == ["device", "device-map", "latency"]


def test_form_and_order_count_if_asked_for() -> None:
    assert [code for code in sorted(CODES) if not Rules().counts(code)] == ["form", "latency", "reordered"]
    assert [code for code in sorted(CODES) if not Rules(strict=True).counts(code)] == ["latency"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ignore": frozenset({"values"})}, "'values' can't be ignored"),
        ({"rtol": -1.0}, "rtol must be"),
        ({"atol": float("nan")}, "atol must be"),
        ({"renames": {"a": "x", "b": "x"}}, "the same name"),
    ],
)
def test_what_can_t_be_a_rule(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Rules(**fields)


def test_workers_are_renamed_as_whole_words() -> None:
    rules = Rules(renames={"w1": "trainer", "w11": "server"})
    assert rules.worker_name("w1") == "trainer"
    assert rules.renamed_text("w1, w11 and w111, not xw1: w1/cpu") == (
        "trainer, server and w111, not xw1: trainer/cpu"
    )
    assert mirrored_rules(rules).renamed_text("trainer") == "w1"
    assert hash(rules) == hash(Rules())


def test_the_other_way_round_calls_that_one_run_has_alone_are_the_other_s() -> None:
    rules = Rules(ignore=frozenset({"missing", "error"}), renames={"a": "b"})
    assert mirrored_rules(rules) == Rules(ignore=frozenset({"extra", "error"}), renames={"b": "a"})
    assert mirrored_rules(mirrored_rules(rules)) == rules
    assert not rules.ignores("missing")  # an answer may be missing to a call that both have
