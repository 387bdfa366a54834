"""What stands before a line of a log, in every form that torch and its surroundings write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.workerlog.prefix import SECOND_NS, Prefix, Stamp, split_prefix

NINE = 9 * 3600 * SECOND_NS
TEXT = "RPC agent for a encountered error"


def stamp(part: int = 0, **fields: int) -> Stamp:
    return Stamp(of_day_ns=NINE + part, **fields)  # type: ignore[arg-type]


C10 = Stamp(month=11, day=28, of_day_ns=NINE + 123_456_789, loose=True)

FORMS = {
    "[W1128 09:00:00.123456789 tensorpipe_agent.cpp:725] ": Prefix(severity="warning", stamp=C10),
    "[rank3]:[W1128 09:00:00.123456789 tensorpipe_agent.cpp:725] ": Prefix(
        rank=3, severity="warning", stamp=C10
    ),
    "[default0]:[E1128 09:00:00.123456789 container.cpp:248] ": Prefix(rank=0, severity="error", stamp=C10),
    "[W tensorpipe_agent.cpp:939] ": Prefix(severity="warning"),
    "W1128 09:00:00.123456 4711 tensorpipe_agent.cc:7] ": Prefix(
        severity="warning", stamp=stamp(123_456_000, month=11, day=28)
    ),
    "E20261128 09:00:00.000123 4711 torch/distributed/elastic/api.py:882] ": Prefix(
        severity="error", stamp=stamp(123_000, year=2026, month=11, day=28)
    ),
    "2026-11-28T09:00:00.5Z stderr F ": Prefix(
        stamp=stamp(SECOND_NS // 2, year=2026, month=11, day=28, zone_s=0)
    ),
    "2026-11-28 09:00:00,250 - torch.distributed.rpc.api - ERROR - ": Prefix(
        severity="error", stamp=stamp(SECOND_NS // 4, year=2026, month=11, day=28)
    ),
    "[2026-11-28 09:00:00,250] ": Prefix(stamp=stamp(SECOND_NS // 4, year=2026, month=11, day=28)),
    "2026-11-28T09:00:00-05:30 ": Prefix(stamp=stamp(year=2026, month=11, day=28, zone_s=-19800)),
    "Nov 28 09:00:00 [W tensorpipe_agent.cpp:838] ": Prefix(
        severity="warning", stamp=stamp(month=11, day=28)
    ),
    "09:00:00 ": Prefix(stamp=stamp()),
    "WARNING:torch.distributed.rpc.api:": Prefix(severity="warning"),
    "": Prefix(),
}


@pytest.mark.parametrize("written", FORMS)
def test_forms(written: str) -> None:
    assert split_prefix(written + TEXT) == (FORMS[written], TEXT)


def test_the_time_that_knows_its_zone_counts_more_than_the_one_beside_the_text() -> None:
    found, _ = split_prefix("2026-11-28T10:00:00Z [W1128 09:00:00.123456789 a.cpp:1] x")
    assert found.stamp is not None
    assert (found.stamp.zone_s, found.stamp.of_day_ns) == (0, 10 * 3600 * SECOND_NS)


@pytest.mark.parametrize("text", ["[W1399 09:00:00.1 a.cpp:1] x", "24:61:00 x", "9999-01-01T00:00:00Z x"])
def test_times_that_can_not_be_are_none(text: str) -> None:
    assert split_prefix(text)[0].stamp is None


@given(st.text(max_size=200))
def test_any_line_is_read(line: str) -> None:
    _, text = split_prefix(line)
    assert line.endswith(text)
