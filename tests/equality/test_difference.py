"""Differences as JSON, mirrored, and what they make of two messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.equality.difference import Difference, Elements, to_json, verdict
from rpcinspect.equality.rules import Rules
from rpcinspect.pickles.tree import Global, PickleCall
from tests.equality.builders import tree
from tests.equality.mirrors import mirrored

VALUE = Difference(code="value", path="tensors[0].elements[1]")
NEAR = Difference(code="ulp", path="tensors[0].elements[1]", tolerated=True)
FORM = Difference(code="form", path="tensors[0].stride")
DEVICE = Difference(code="device-map", path="envelopes[0].device_map")


@pytest.mark.parametrize(
    ("found", "rules", "expected"),
    [
        ([], Rules(), "identical"),
        ([FORM], Rules(), "identical"),
        ([FORM], Rules(strict=True), "different"),
        ([NEAR], Rules(), "tolerance"),
        ([NEAR, FORM], Rules(), "tolerance"),
        ([NEAR, VALUE], Rules(), "different"),
        ([DEVICE], Rules(), "different"),
        ([DEVICE], Rules(ignore=frozenset({"device"})), "identical"),
        ([Difference(code="latency", path="")], Rules(strict=True), "identical"),
    ],
)
def test_verdict(found: list[Difference], rules: Rules, expected: str) -> None:
    assert verdict(found, rules) == expected


def test_json_has_the_contract_s_fields_and_what_applies() -> None:
    assert VALUE.as_json() == {
        "code": "value",
        "path": "tensors[0].elements[1]",
        "a_value": None,
        "b_value": None,
    }
    elements = Elements(
        numel=2,
        differing=1,
        beyond=1,
        kinds=(("value", 1),),
        first=1,
        worst=1,
        max_abs=float("inf"),
        max_rel=None,
        max_ulp=None,
    )
    full = Difference(
        code="value",
        path="tensors[0].elements[1]",
        b_path="tensors[2].elements[1]",
        a_value=1.0,
        b_value="inf",
        a_bits="0x3f800000",
        b_bits="0x7f800000",
        elements=elements,
        tolerated=True,
        text="why",
    )
    shown = full.as_json()
    assert json.loads(json.dumps(shown, allow_nan=False))["elements"]["max_abs"] == "inf"
    assert {"b_path", "a_bits", "b_bits", "tolerated", "text"} < shown.keys()
    mirror = mirrored(full)
    assert (mirror.path, mirror.b_path, mirror.a_value) == (full.b_path, full.path, "inf")
    assert mirrored(mirror) == full


def test_values_that_json_lacks() -> None:
    assert json.dumps(to_json(-0.0)) == "-0.0"
    assert to_json(float("nan")) == "nan"
    assert to_json(complex(1, float("-inf"))) == [1.0, "-inf"]
    assert to_json(1 << 70) == str(1 << 70)
    assert to_json("\ud800") == "\\ud800"
    assert len(to_json("x" * 10_000)) == 400
    assert to_json(PickleCall(Global("m", "C"), (1,))) == "m.C(1)"


@given(
    st.recursive(st.none() | st.floats() | st.integers() | st.text() | st.binary(), st.lists, max_leaves=8)
)
def test_every_value_has_its_json(value: Any) -> None:
    json.dumps(to_json(tree(value)), allow_nan=False).encode()
