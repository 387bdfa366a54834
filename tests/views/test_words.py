"""Times in words."""

from __future__ import annotations

from rpcinspect.views.words import moment


def test_moments() -> None:
    assert moment(0) == "1970-01-01 00:00:00 UTC"
    assert moment(1_700_000_000_123_456_789, 9) == "2023-11-14 22:13:20.123456789 UTC"
    assert moment(1_700_000_000_123_456_789, 3) == "2023-11-14 22:13:20.123 UTC"
    assert moment(1 << 62).endswith(" UTC")
    assert moment(10**30).endswith(" s")
    assert moment(-1).endswith("1969-12-31 23:59:59 UTC")
