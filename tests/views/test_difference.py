"""Differences in a line for people."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rpcinspect.equality.difference import Difference, Elements
from rpcinspect.views.difference import difference_phrase, told
from tests.replayer.outcomes import FORM, ONE_ULP

SIDES = ("captured", "live")
assert ONE_ULP.elements is not None
SEVERAL = replace(ONE_ULP.elements, differing=3, beyond=3, max_ulp=2)


def difference(code: str, **fields: Any) -> Difference:
    return Difference(code=code, **({"path": "tensors[0].elements[5]"} | fields))


def one_element(elements: Elements) -> Elements:
    return replace(elements, numel=1)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (
            ONE_ULP,
            "tensors[0].elements[5]: captured 0.5, live 0.5000000596046448 (1 ulp; 1 of 12 elements differs)",
        ),
        (
            replace(ONE_ULP, elements=SEVERAL),
            (
                "tensors[0].elements[5]: captured 0.5, live 0.5000000596046448 "
                "(at most 2 ulp; 3 of 12 elements differ)"
            ),
        ),
        (
            replace(ONE_ULP, tolerated=True, elements=replace(SEVERAL, beyond=0)),
            (
                "tensors[0].elements[5]: captured 0.5, live 0.5000000596046448 "
                "(at most 2 ulp; 3 of 12 elements differ)"
            ),
        ),
        (
            replace(ONE_ULP, elements=replace(SEVERAL, beyond=1)),
            (
                "tensors[0].elements[5]: captured 0.5, live 0.5000000596046448 "
                "(at most 2 ulp; 3 of 12 elements differ, 1 of them beyond the tolerance)"
            ),
        ),
        (
            difference(
                "value",
                a_value=1.0,
                b_value=3.5,
                elements=one_element(replace(SEVERAL, differing=1, max_abs=2.5)),
            ),
            "tensors[0].elements[5]: captured 1.0, live 3.5 (2.5 apart)",
        ),
        (
            difference("nan-payload", a_value="nan", b_value="nan", a_bits="0x7fc00000", b_bits="0x7f812345"),
            (
                'tensors[0].elements[5]: captured "nan" = 0x7fc00000, live "nan" = 0x7f812345 '
                "(the payload of a NaN)"
            ),
        ),
        (
            difference("zero-sign", a_value=0.0, b_value=-0.0, a_bits="0x0", b_bits="0x8"),
            "tensors[0].elements[5]: captured 0.0 = 0x0, live -0.0 = 0x8 (the sign of zero)",
        ),
        (
            difference(
                "profile-events",
                path="envelopes[0].events",
                a_value={"aten::add": 2, "aten::mul": 1},
                b_value={"aten::mul": 2, "aten::add": 2, "aten::sin": 1},
            ),
            'envelopes[0].events: captured {"aten::mul": 1}, live {"aten::mul": 2, "aten::sin": 1}',
        ),
        (FORM, "tensors[0].stride: captured [4, 1], live [1, 3] (form)"),
        (
            difference("field", path="envelopes[0]", a_value="A", b_path="envelopes[1]"),
            'envelopes[0] (envelopes[1]): captured "A", live (none)',
        ),
        (
            difference("unknown", path="tensors", text="it can't be read"),
            "tensors (not known; it can't be read)",
        ),
        (
            difference("latency", path="median_ns", a_value=2_870_000, b_value=6_100_000, text="of 1 call"),
            "median: captured 2.87 ms, live 6.1 ms (of 1 call)",
        ),
        (
            difference("extra", path="", b_value="PYTHON_CALL app.f"),
            "(a lacks the message)",
        ),
    ],
)
def test_phrases(found: Difference, told: str) -> None:
    assert difference_phrase(found, SIDES) == told


def test_long_values_are_shown_where_they_part() -> None:
    schema = "aten::add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> "
    a, b = (f"{schema}{kind}" for kind in ("(Tensor)", "Tensor"))
    found = told(difference("form", path="schema", a_value=a, b_value=b), 60)
    assert found.values is not None
    assert [value[0] for value in found.values] == ["…", "…"]
    assert found.values[0].endswith('-> (Tensor)"')
    assert found.values[1].endswith('-> Tensor"')
    assert all(len(value) <= 60 for value in found.values)


def test_long_and_hostile_values_are_cut_and_escaped() -> None:
    phrase = difference_phrase(
        difference("argument", path="args[0]", a_value="x" * 500, b_value="\x1b[2J"), SIDES
    )
    assert len(phrase) < 400
    assert phrase.isprintable()
