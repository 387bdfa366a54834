"""A short run of every target, the same inputs each time, and all that fuzzing has found.

The long one is `make fuzz`. Here no coverage guides it, so that it needs no package and no luck.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.bounds import TooMuch, bounded
from tests.fuzz.mutation import MAX_BYTES, change_frames, change_opcodes, change_parts, pack, unpack
from tests.fuzz.targets import TARGETS
from tests.thorough import examples

VECTORS = sorted((Path(__file__).parent / "vectors").glob("*/*.bin"))
SLOW_MACHINE = 5
"""Times the bound of a target: this is no measurement."""


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_was_found_stays_mended(path: Path) -> None:
    target = TARGETS[path.parent.name]
    with bounded(target.seconds * SLOW_MACHINE, target.mib):
        target.run(path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_a_short_run(name: str) -> None:
    """Quick, a third of the inputs that a target names; thorough, ten times as many."""
    target, draw = TARGETS[name], random.Random(1)
    seeds = [seed for seed in target.seeds() if len(seed) <= MAX_BYTES]
    assert seeds
    for number in range(examples(target.inputs)):
        data = draw.choice(seeds)
        for _ in range(number % 3):  # the first ones are the seeds themselves
            data = target.change(data, draw)
        with bounded(target.seconds * SLOW_MACHINE, target.mib):
            target.run(data)


def test_every_vector_has_its_target() -> None:
    assert VECTORS
    assert {path.parent.name for path in VECTORS} <= set(TARGETS)


# --- the tools themselves ---


def test_time_is_bounded() -> None:
    def spin() -> None:
        while True:
            pass

    with pytest.raises(TooMuch, match=r"more than 0\.2 s"), bounded(0.2, 100):
        spin()


def test_memory_is_bounded() -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("needs Linux's /proc")
    with pytest.raises(TooMuch, match="MiB more than before"), bounded(10, 40):
        assert len(b"x" * (100 << 20)) > 0
    with bounded(10, 40):
        assert len(b"x" * (10 << 20)) > 0


def test_parts_are_what_was_packed() -> None:
    parts = [b"", b"a", b"\0" * 300]
    assert unpack(pack(parts)) == parts
    assert unpack(pack(parts)[:-1]) == [b"", b"a", b"\0" * 299]
    assert unpack(b"\xff\xff\xff\xffabc") == [b"abc"]


def test_mutation_leaves_what_is_around_it_whole() -> None:
    draw = random.Random(2)
    frames = b"".join(len(body).to_bytes(8, "little") + body for body in (b"one", b"twotwo", b"three"))
    last = (5).to_bytes(8, "little") + b"three"
    assert sum(change_frames(frames, draw).endswith(last) for _ in range(200)) > 80
    pickle = b"\x80\x02X\x03\0\0\0abcq\0K\x05\x86."
    assert len({change_opcodes(pickle, draw) for _ in range(200)}) > 100
    parts = pack([b"head1", b"head2"])
    assert sum(unpack(change_parts(parts, draw, head=4))[-1:] == [b"head2"] for _ in range(200)) > 50
