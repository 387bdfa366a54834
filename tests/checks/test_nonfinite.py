"""NaN and infinities: who made them from what, in captures whose jobs tell it, and in captures in which a
tensor's bytes were replaced."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from rpcinspect.checks.nonfinite import FIRST_BYTES
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Finding, Session
from tests.places import content, recorded

NAN, INFINITY = struct.pack("<f", float("nan")), struct.pack("<f", float("-inf"))


def decoded(*paths: Path) -> tuple[list[RpcRecord], Session]:
    with Decoding([str(path) for path in paths]) as decoding:
        records = list(decoding.records())
        return records, decoding.session


def told(*paths: Path) -> list[Finding]:
    return [one for one in decoded(*paths)[1].findings if one.code == "nonfinite-tensor"]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (
            ["nan.pcap"],
            (
                "#107 from worker2 to worker0 is the first message that carries NaN: 96 NaN of 96 "
                "elements of tensor#0. worker2 made them in the backward pass of __mp_main__.forward2 "
                "(#102), from the finite gradients in #106. 7 later messages carry such numbers, too."
            ),
        ),
        (
            ["two_a.rpclog", "two_b.rpclog"],
            (
                "#107 from worker2 to worker0 is the first message that carries NaN: 96 NaN of 96 "
                "elements of tensor#0. worker2 made them in the backward pass of __main__.forward2 "
                "(#102), from the finite gradients in #106. 7 later messages carry such numbers, too. "
                "Their order is that of several clocks, which nobody compared."
            ),
        ),
        (
            ["two_a.rpclog"],
            (
                "#53 from worker0 to worker1 is the first message that carries NaN: 96 NaN of 96 elements"
                " of tensor#0. Who made them is not known: nothing that worker1, worker2 sent is "
                "recorded. 5 later messages carry such numbers, too."
            ),
        ),
    ],
)
def test_the_gradient_at_step_3(names: Sequence[str], text: str) -> None:
    """worker2's forward computes sqrt(0) at step 3: its gradient is infinite, times 0 it is NaN. The log of
    worker0's host alone does not have what worker2 sent."""
    [finding] = told(*(recorded(f"reports/job/{name}") for name in names))
    assert finding.text == text


@pytest.mark.parametrize("name", ["reports/job/plain.pcap", "basic_chain.pcap", "rref_relay.pcap"])
def test_finite_jobs(name: str) -> None:
    assert told(recorded(name)) == []


def changed(tmp_path: Path, *changes: tuple[int, int, bytes], name: str = "reports/job/plain.pcap") -> Path:
    """A capture with other bytes in it: (message, place in its first tensor, bytes)."""
    source = tmp_path / "source.pcap"
    source.write_bytes(content(name))
    records, session = decoded(source)
    data = bytearray(source.read_bytes())
    for index, at, new in changes:
        [record] = [one for one in records if int(session.index[one.row]) == index]
        extent = record.tp.tensors[0].extent
        assert extent is not None
        _, offset, length = extent.part(at, at + len(new)).pieces[0]
        assert length == len(new)
        data[offset : offset + length] = new
    path = tmp_path / "changed.pcap"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        # 40 answers 38, 44 answers 42; 46 is worker0's gradient for 44, 47 worker2's for 42.
        (
            [(44, 8, NAN)],
            (
                "#44 from worker2 to worker0 is the first message that carries NaN: 1 NaN of 24 elements "
                "of tensor#0. worker2 made them in __mp_main__.forward2 (#42), or had them, as in "
                "weights; it had received no tensor with such numbers before."
            ),
        ),
        (
            [(44, 8, INFINITY)],
            (
                "#44 from worker2 to worker0 is the first answer or gradient that carries infinities: 1 "
                "infinite of 24 elements of tensor#0. worker2 made them in __mp_main__.forward2 (#42), or"
                " had them, as in weights; it had received no tensor with such numbers before."
            ),
        ),
        (
            [(46, 0, INFINITY + NAN), (47, 4, NAN), (49, 0, NAN)],
            (
                "#46 from worker0 to worker2 is the first message that carries NaN: 1 NaN and 1 infinite "
                "of 24 elements of tensor#0. worker0 made them behind the result of __mp_main__.forward2 "
                "(#42): in what it computes of it, or in the backward pass of that. 2 later messages "
                "carry such numbers, too."
            ),
        ),
        (
            [(38, 0, NAN)],
            (
                "#38 from worker0 to worker1 is the first message that carries NaN: 1 NaN of 48 elements "
                "of tensor#0. worker0 had received no tensor with such numbers before."
            ),
        ),
        (
            [(44, 0, NAN), (49, 0, NAN), (40, 0, NAN)],
            (
                "#40 from worker1 to worker0 is the first message that carries NaN: 1 NaN of 96 elements "
                "of tensor#0. worker1 made them in _remote_module_non_scriptable._remote_forward (#38), "
                "or had them, as in weights; it had received no tensor with such numbers before. 2 later "
                "messages carry such numbers, too. As far as the capture shows, worker2 (#44) had "
                "received none, and sent some, too."
            ),
        ),
    ],
)
def test_replaced_numbers(changes: list[tuple[int, int, bytes]], text: str, tmp_path: Path) -> None:
    [finding] = told(changed(tmp_path, *changes))
    assert finding.text == text


def test_infinities_that_the_sender_had_as_arguments(tmp_path: Path) -> None:
    """What is made of a mask comes from it, perhaps: nobody says that the arguments were finite."""
    [finding] = told(changed(tmp_path, (42, 8, INFINITY), (44, 8, INFINITY), (47, 4, NAN)))
    assert finding.text.endswith(
        "is the first answer or gradient that carries infinities: 1 infinite of 24 elements of tensor#0. "
        "worker2 made them in __mp_main__.forward2 (#42), or had them, as in weights; it had received "
        "infinities among the arguments in #42. 1 later message carries such numbers, too. The first that "
        "carries NaN is #47."
    )


@pytest.mark.parametrize("first_bytes", [16, FIRST_BYTES])
def test_numbers_behind_the_first_bytes(
    first_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """worker2 got NaN in #42, far behind the beginning of the tensor: it is nobody who made some."""
    monkeypatch.setattr("rpcinspect.checks.nonfinite.FIRST_BYTES", first_bytes)
    path = changed(tmp_path, (38, 120, NAN), (40, 0, NAN), (42, 200, NAN), (44, 0, NAN))
    [finding] = told(path)
    assert finding.text.startswith("#38 from worker0 to worker1 is the first message that carries NaN: 1 NaN")
    assert "sent some, too" not in finding.text
    assert finding.remedy.startswith(
        "Look at what worker0's own program computes, which a replay does not run"
    )


def test_a_capture_that_begins_in_the_middle(tmp_path: Path) -> None:
    """What was in weights, or was received, before the capture began is not told of as known."""
    [finding] = told(changed(tmp_path, (7, 0, NAN), name="reports/job/nan_late.pcap"))
    assert finding.text.endswith(
        "The capture begins after the job: what worker:1 received before is not in it. 8 later messages "
        "carry such numbers, too. As far as the capture shows, worker:2 (#15) had received none, and sent "
        "some, too."
    )
    assert finding.remedy.startswith("Replay it with --live worker:1 --anomaly")


def test_infinities_among_arguments_are_masks(tmp_path: Path) -> None:
    assert told(changed(tmp_path, (38, 0, INFINITY), (42, 8, INFINITY))) == []
