"""Passes over captures: what views are fed, and what a filter picks."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from rpcinspect.cli.inputs import Inputs, read_run, take_chosen
from rpcinspect.cli.options import STDIN, CaptureOptions
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from tests.cli.runner import CHAIN, decode, rpcinspect
from tests.filter.from_json import read_filter


def inputs(stack: ExitStack, *files: str, twice: bool = False) -> Inputs:
    """Those of a command that names the files, or CHAIN."""
    return Inputs(CaptureOptions(files=[*files] or [str(CHAIN)]), stack, twice=twice, quiet=True)


class Counting:
    """A view that counts."""

    def __init__(self) -> None:
        self.fed: list[int] = []
        self.skipped = 0

    def feed(self, records: Sequence[RpcRecord | None]) -> None:
        shown = [record.row for record in records if record is not None]
        self.fed += shown
        self.skipped += len(records) - len(shown)


def test_a_filter_tells_what_it_picked() -> None:
    view = Counting()
    with ExitStack() as stack, inputs(stack).decoding() as decoding:
        assert take_chosen(decoding, view.feed, None) is None
    assert (len(view.fed), view.skipped) == (24, 0)
    view = Counting()
    with ExitStack() as stack, inputs(stack).decoding() as decoding:
        shown = take_chosen(decoding, view.feed, read_filter("request"))
    assert (len(view.fed), view.skipped) == (12, 12)
    assert shown is not None
    with ExitStack() as stack:
        session, again = inputs(stack).session(read_filter("request"))
        assert again == shown
        assert shown.count == 12 == session.totals.messages // 2
        assert inputs(stack).session(None)[1] is None


def test_standard_input_can_be_read_twice_and_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CHAIN.read_bytes())))
    with ExitStack() as stack:
        copied = inputs(stack, STDIN, twice=True)
        for _ in range(2):
            session, _ = copied.session(None)
            assert session.totals.messages == 24
            assert [capture.path for capture in session.captures] == [STDIN]


@pytest.mark.parametrize(
    "words",
    [
        ("decode", "--message", "6"),
        ("export", "rpclog", "-o", "run.rpclog"),
        ("export", "safetensors", "-o", "tensors"),
        ("decode", "-w", "part.pcap"),
    ],
    ids=lambda words: words[1],
)
def test_a_pipe_that_has_a_name_can_be_read_twice(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("run.fifo")
    with ThreadPoolExecutor() as pool:
        written = pool.submit(Path("run.fifo").write_bytes, CHAIN.read_bytes())
        piped = rpcinspect(*words, "run.fifo")
        assert written.result() == CHAIN.stat().st_size
    assert (piped.code, piped.out) == (0, rpcinspect(*words, CHAIN).out.replace(str(CHAIN), "run.fifo"))


@pytest.mark.parametrize(("data", "said"), [(b"", "empty file"), (b"hello, world", "not a pcap")])
def test_a_copy_goes_by_the_name_of_what_was_copied(data: bytes, said: str) -> None:
    ran = decode("-", "--message", "6", stdin=data)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith(f"rpcinspect: standard input: {said}")


CAPTURE = str(Path(__file__).resolve().parents[2] / "captures" / "basic_chain.pcap")


def test_messages_come_in_the_order_of_time() -> None:
    with Decoding((CAPTURE,)) as decoding:
        run, shown = read_run(decoding)
    assert shown is None
    assert [int(run.session.index[message.row]) for message in run.messages] == list(range(len(run.messages)))
    assert len(run.messages) == run.session.totals.messages > 0


def test_a_filter_picks_messages_and_leaves_the_run_whole() -> None:
    with Decoding((CAPTURE,)) as decoding:
        run, shown = read_run(decoding, read_filter("type == BACKWARD_AUTOGRAD_REQ"))
    assert shown is not None
    picked = [m for m in run.messages if shown.rows[m.row]]
    assert shown.count == len(picked) == run.session.totals.by_type["BACKWARD_AUTOGRAD_REQ"] > 0
    assert len(run.messages) > shown.count
    assert run.graphs
