"""D12: each variant of a damaged or rewritten capture against the lists of what must survive it.

tests/d12.py makes the job, the variants and the lists, all when the test runs.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.builders import ACK, FIN, SYN
from tests.d12 import MB3, SEGMENT, VARIANTS, Job, Name, Variant, expected, job, lost, whole
from tests.decoded import Decoded, Json, parse, pieces


def decoded(path: Path) -> Decoded:
    return Decoded(parse(b"".join(pieces(path))))


def name_of(line: Json) -> Name:
    return line["id"], "request" if line["request"] else "answer"


def check(its: Job, variant: Variant, path: Path) -> Decoded:
    """Each message has its fate, each tensor its bytes or none."""
    path.write_bytes(variant.data)
    result = decoded(path)
    fates = expected(its, variant.captured)
    found = {name_of(line): line for line in result.messages}
    assert len(found) == len(result.messages), "a message came out twice"
    assert {name for name, line in found.items() if not line["problems"]} == fates.survive
    assert {name for name, line in found.items() if line["problems"]} == fates.partial
    for name in fates.survive:
        message, line = its.messages[name], found[name]
        assert len(line["tensors"]) == len(message.tensors)
        for place, digest, tensor in zip(message.tensors, message.hashes, line["tensors"], strict=True):
            missing = fates.present.missing(place)
            if variant.complete or not missing:
                assert tensor["placement"] in ("certain", "missing") if missing else ("certain",), name
                assert tensor["missing_bytes"] == missing, name
            assert tensor["sha256"] == (None if missing else digest), name
    codes = {finding["code"] for finding in result.of("finding")}
    assert variant.signs <= codes
    if not variant.signs and variant.complete:
        assert codes.isdisjoint({"capture-gap", "truncated-packets", "conflicting-overlap"})
        assert result.problems() == []
    return result


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name: str, tmp_path: Path) -> None:
    its = job()
    check(its, VARIANTS[name](its), tmp_path / "x")


def test_what_the_cuts_leave() -> None:
    """The lists themselves, for some: they are worth reading, and must not be empty by mistake."""
    its = job()

    def fates(name: str) -> tuple[set[Name], set[Name], set[Name]]:
        found = expected(its, VARIANTS[name](its).captured)
        return found.survive, found.partial, found.lost

    everything = set(its.messages)
    assert len(everything) == 16
    assert fates("overlap") == (everything, set(), set())
    plain = {name for name, message in its.messages.items() if not message.tensors}
    assert len(plain) == 8
    assert fates("snaplen 96") == (set(), plain, everything - plain), "descriptors without tensors fit"
    whole_, partial, lost_ = fates("snaplen 300")
    assert partial == {(2, "request")}, "the one with a long text"
    assert lost_ == set()
    assert len(whole_) == 15
    for name in VARIANTS:
        if name.startswith("cut"):
            survive, _, lost_ = fates(name)
            assert survive
            assert lost_
    assert {n for n, _ in fates("cut head by 85%")[0]} <= {5, 52, 4, 51}


def test_the_end_of_a_cut_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(VARIANTS["cut tail to 40%"](job()).data)
    assert any(problem["layer"] == "capture" for problem in decoded(path).summary["problem_list"])


# --- lost segments ---


SMALL = 5_000
"""20,000 bytes: a tensor in two segments, so that every packet's loss can be tried."""


def rows_with_payload() -> list[int]:
    return [at for at, row in enumerate(job(SMALL).rows) if row.payload]


@pytest.mark.parametrize("part", range(8))
def test_each_lost_segment(part: int, tmp_path: Path) -> None:
    """One after the other, from behind the handshakes on."""
    its = job(SMALL)
    first = min(message.span[1] for message in its.messages.values())
    flows = {message.span[0] for message in its.messages.values()}
    lanes = {place[0] for message in its.messages.values() for place in message.tensors}
    tried = 0
    for at in rows_with_payload()[part::8]:
        row = its.rows[at]
        if (row.flow in flows and its.first[at] >= first) or (row.flow in lanes and its.first[at] > 16):
            check(its, lost(at)(its), tmp_path / "x")
            tried += 1
    assert tried > 3


@pytest.mark.parametrize("kind", ["descriptor", "type", "id", "payload", "table", "tensor"])
def test_a_lost_part_of_a_message(kind: str, tmp_path: Path) -> None:
    """The lists for one message in the middle, by what of it was lost."""
    its = job()
    name = (3, "request")
    message = its.messages[name]
    places = {
        "descriptor": message.descriptor,
        **dict(zip(("type", "id", "payload", "table"), message.payloads, strict=True)),
        "tensor": message.tensors[0],
    }
    flow, start, _ = places[kind]
    which = [
        at for at, row in enumerate(its.rows) if row.flow == flow and row.payload and its.first[at] >= start
    ]
    variant = lost(which[0])(its)
    fates = expected(its, variant.captured)
    everything = set(its.messages)
    assert fates.survive == (everything if kind in ("descriptor", "tensor") else everything - {name})
    assert fates.partial == ({name} if kind in ("payload", "table") else set())
    assert fates.lost == ({name} if kind in ("type", "id") else set())
    result = check(its, variant, tmp_path / "x")
    found = {name_of(line): line for line in result.messages}
    if kind == "tensor":
        (tensor, small) = found[name]["tensors"]
        assert (tensor["placement"], tensor["missing_bytes"], tensor["sha256"]) == ("certain", SEGMENT, None)
        assert small["sha256"] == message.hashes[1]
    if kind in ("payload", "table", "tensor"):
        assert result.summary["bytes"]["missing"] > 0


@pytest.mark.parametrize("seed", range(6))
def test_many_lost_segments(seed: int, tmp_path: Path) -> None:
    """What is certain stays right, and what is there comes out; places may be uncertain."""
    its = job(SMALL)
    rnd = random.Random(seed)
    opened = max(at for at, row in enumerate(its.rows) if row.flags & SYN)
    data = [at for at in rows_with_payload() if at > opened + 2 and not its.rows[at].flags & FIN]
    variant = lost(*rnd.sample(data, 6))(its)
    path = tmp_path / "x"
    path.write_bytes(variant.data)
    fates = expected(its, variant.captured)
    found = {name_of(line): line for line in decoded(path).messages}
    assert fates.survive <= set(found)
    assert {name for name in fates.survive if found[name]["problems"]} == set()
    assert {name for name, line in found.items() if line["problems"]} >= fates.partial
    for name, line in found.items():
        for digest, tensor in zip(its.messages[name].hashes, line["tensors"], strict=False):
            assert tensor["sha256"] in (None, digest)


def test_the_job_is_what_it_says() -> None:
    its = job()
    assert sum(len(row.payload) for row in its.rows) > 5 * 4 * MB3
    assert all(row.flags & ACK or row.flags & SYN for row in its.rows)
    assert expected(its, whole(its)).survive == set(its.messages)
    assert expected(its, [None] * len(its.rows)).lost == set(its.messages)
