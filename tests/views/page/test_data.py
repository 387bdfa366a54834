"""Data in pages: digits that survive JavaScript, text that nothing can end."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.views.page import data as page_data
from rpcinspect.views.page.data import CHUNK_BYTES, KEYS, chunks, cut, exact, packed_json

NAMES = [key.decode() for key in KEYS.split(b"|")]
NASTY = [f'"{name}":12345678901234567890' for name in NAMES]
NASTY += [
    '\\"context_id":5',
    "[12345678901234567890]",
    ",1234567890123456789,",
    "\\",
    '"',
    "</script>",
    "\u2028",
]

texts = st.text(max_size=20) | st.sampled_from(NASTY)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | texts,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(texts | st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=20,
)


def as_strings(value: Any, key: str | None = None) -> Any:
    """The same by walking through it: numbers of ids, and of 16 digits and more, as strings."""
    if isinstance(value, dict):
        return {name: as_strings(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [as_strings(inner) for inner in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if key in NAMES or abs(value) >= 10**15 else value
    return value


@given(values)
def test_long_numbers_and_ids_become_strings(value: Any) -> None:
    assert json.loads(exact(orjson.dumps([value]))) == as_strings([value])


@pytest.mark.parametrize("number", [1.5e300, 12345678901234567.5, 1e-9, 0.1])
def test_fractions_stay_numbers(number: float) -> None:
    found = json.loads(exact(orjson.dumps({"a": number, "s": "x"})))
    assert found in ({"a": number, "s": "x"}, {"a": str(number), "s": "x"})
    assert float(found["a"]) == number


@given(values)
def test_packed_text_is_letters_and_digits(value: Any) -> None:
    text = packed_json({"value": value}).decode()
    assert re.fullmatch("[A-Za-z0-9+/]*=*", text)
    assert json.loads(gzip.decompress(b64decode(text)))["value"] == as_strings(value)


def test_the_same_data_gives_the_same_page() -> None:
    assert packed_json([1, 2]) == packed_json([1, 2])


def test_long_payloads_are_cut() -> None:
    for digits, left in ((10, 10), (1024, 1024), (5000, 1024)):
        json_text = orjson.dumps({"body": {"payload_hex": "a0" * (digits // 2)}, "text": "b" * 5000})
        found = json.loads(cut(json_text))
        assert found["body"]["payload_hex"] == "a0" * (left // 2)
        assert len(found["text"]) == 5000


def test_chunks_hold_everything_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_data, "CHUNK_BYTES", 100)
    objects = [orjson.dumps({"n": n, "text": "x" * (n % 70)}) for n in range(200)]
    found: list[Any] = []
    sizes = []
    for count, text in chunks(iter(objects)):
        part = json.loads(gzip.decompress(b64decode(text)))
        assert len(part) == count
        sizes.append(count)
        found += part
    assert [one["n"] for one in found] == [*range(200)]
    assert len(sizes) > 50
    assert [*chunks(iter(()))] == []
    assert CHUNK_BYTES > 10_000
