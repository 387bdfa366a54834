"""Seeds as the command line gives them."""

from __future__ import annotations

import pytest

from rpcinspect.replayer.workers.seeds import MAX_TRIES, Seeds, read_range, read_seed, read_seeds, unknown


@pytest.mark.parametrize(
    ("word", "read"),
    [
        ("7", (None, 7)),
        ("-1", (None, -1)),
        ("0x10", (None, 16)),
        ("worker1=7", ("worker1", 7)),
        ("a=b=7", ("a=b", 7)),
        (str((1 << 64) - 1), (None, (1 << 64) - 1)),
        (str(1 << 64), None),
        (str(-(1 << 63) - 1), None),
        ("=7", None),
        ("worker1=", None),
        ("worker1", None),
        ("1.5", None),
    ],
)
def test_a_seed(word: str, read: tuple[str | None, int] | None) -> None:
    assert read_seed(word) == read


def test_the_last_one_holds() -> None:
    seeds = read_seeds(["1", "ps=2", "3", "ps=4"])
    assert seeds == Seeds(everybody=3, own={"ps": 4})
    assert [seeds.of(name) for name in ("ps", "other")] == [4, 3]
    assert read_seeds([]).of("ps") is None


@pytest.mark.parametrize(
    ("word", "read"),
    [
        ("100", range(100)),
        ("5:8", range(5, 8)),
        ("-2:1", range(-2, 1)),
        (":3", None),
        ("3:", None),
        ("8:5", None),
        ("0", None),
        ("a:b", None),
        (f"0:{MAX_TRIES + 1}", None),
        (f"0:{1 << 80}", None),
        (f"{(1 << 64) - 1}:{(1 << 64) + 1}", None),
    ],
)
def test_seeds_to_try(word: str, read: range | None) -> None:
    assert read_range(word) == read


def test_who_is_not_live() -> None:
    assert unknown(Seeds(own={"w1": 1, "w2": 2}), ["w2", "w3"]) == ["w1"]
