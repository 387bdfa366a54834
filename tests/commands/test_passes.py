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

from rpcinspect.commands.decode_request import STDIN, Request
from rpcinspect.commands.filtering import read_filter
from rpcinspect.commands.passes import (
    read,
    read_run,
    readable_twice,
    spool,
    take,
    take_at_once,
    take_chosen,
)
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from tests.commands.runner import CHAIN, decode

REQUEST = Request(files=(str(CHAIN),))


class Counting:
    """A view that counts."""

    def __init__(self) -> None:
        self.fed: list[int] = []
        self.skipped = 0

    def feed(self, records: Sequence[RpcRecord | None]) -> None:
        shown = [record.row for record in records if record is not None]
        self.fed += shown
        self.skipped += len(records) - len(shown)


def test_views_are_fed_what_is_wanted() -> None:
    views = Counting(), Counting()
    with REQUEST.decoding() as decoding:
        take(decoding, list(views), lambda record: record.row % 2 == 0)
    for view in views:
        assert (view.fed, view.skipped) == (list(range(0, 24, 2)), 12)


def test_a_filter_tells_what_it_picked() -> None:
    view = Counting()
    with REQUEST.decoding() as decoding:
        assert take_chosen(decoding, [view], None) is None
    assert len(view.fed) == 24
    with REQUEST.decoding() as decoding:
        shown = take_chosen(decoding, [Counting()], read_filter("request"))
    assert shown is not None
    session, again = read(REQUEST, read_filter("request"))
    assert again == shown
    assert shown.count == 12 == session.totals.messages // 2
    assert read(REQUEST, None)[1] is None


def test_a_filter_may_be_asked_at_once() -> None:
    shown: list[RpcRecord] = []
    with REQUEST.decoding() as decoding:
        assert take_at_once(decoding, shown.append, None) is None
        assert len(shown) == 24
    shown.clear()
    with REQUEST.decoding() as decoding:
        picked = take_at_once(decoding, shown.append, read_filter("request"))
        assert picked is not None
        assert picked.count == len(shown) == 12


def test_standard_input_can_be_read_twice_and_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CHAIN.read_bytes())))
    with ExitStack() as stack:
        request = readable_twice(Request(files=(STDIN,)), stack)
        for _ in range(2):
            session, _ = read(request, None)
            assert session.totals.messages == 24
            assert [capture.path for capture in session.captures] == [STDIN]
    with ExitStack() as stack:
        assert readable_twice(REQUEST, stack) is REQUEST


@pytest.mark.parametrize(
    "options",
    [
        ("--message", "6"),
        ("--format", "rpclog", "-o", "run.rpclog"),
        ("--tensors", "tensors"),
        ("-w", "part.pcap"),
    ],
    ids=lambda options: options[0],
)
def test_a_pipe_that_has_a_name_can_be_read_twice(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("run.fifo")
    with ThreadPoolExecutor() as pool:
        written = pool.submit(Path("run.fifo").write_bytes, CHAIN.read_bytes())
        piped = decode("run.fifo", *options)
        assert written.result() == CHAIN.stat().st_size
    assert (piped.code, piped.out) == (0, decode(CHAIN, *options).out.replace(str(CHAIN), "run.fifo"))


@pytest.mark.parametrize(("data", "said"), [(b"", "empty file"), (b"hello, world", "not a pcap")])
def test_a_copy_goes_by_the_name_of_what_was_copied(data: bytes, said: str) -> None:
    ran = decode("-", "--message", "6", stdin=data)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith(f"rpcinspect: standard input: {said}")


def test_a_spool_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ExitStack() as stack:
        spool(stack).write(b"something")
        assert list(tmp_path.iterdir()) == []


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
