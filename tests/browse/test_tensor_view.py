"""The screen of one tensor: its numbers against torch."""

from __future__ import annotations

import re
import threading

import pytest
import torch
from textual.app import App
from textual.pilot import Pilot

from rpcinspect.browse.tensor_view import TensorPane, TensorScreen, work_out
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.run.message import tensors_of
from rpcinspect.run.tensors import LastRead
from tests.browse.messages import call
from tests.browse.panes import drive, screen
from tests.places import recorded
from tests.views.opened import opened


async def settled(app: App[None], pilot: Pilot[None]) -> TensorPane:
    """The pane, once all is worked out."""
    await app.workers.wait_for_complete()
    await pilot.pause()
    return app.screen.query_one(TensorPane)


def test_statistics_and_histogram() -> None:
    async def story(pilot: Pilot[None]) -> None:
        app.push_screen(TensorScreen(record, capture.bytes, 0))
        await pilot.pause()
        pane = await settled(app, pilot)
        lines = screen(pane)
        made = pane.tensor.torch().double()
        (line,) = [line for line in lines if line.startswith(" finite ")]
        told = {name: float(number) for name, number in re.findall(r"(\w+) (-?[\d.e+-]+)", line)}
        assert told["min"] == pytest.approx(made.min().item(), rel=1e-5)
        assert told["max"] == pytest.approx(made.max().item(), rel=1e-5)
        assert told["mean"] == pytest.approx(made.mean().item(), rel=1e-5)
        assert told["norm"] == pytest.approx(made.norm().item(), rel=1e-5)
        assert any(line.endswith(f" 0 NaN, 0 Inf, {int((made == 0).sum())} zero") for line in lines)
        at = lines.index(" histogram of the finite elements")
        counts = [int(line.split()[-1]) for line in lines[at + 1 : at + 13]]
        assert counts == torch.histogram(made.reshape(-1), 12)[0].int().tolist()
        assert any(f"sha256     {pane.tensor.sha256}" in line for line in lines)
        await pilot.press("escape")
        assert not isinstance(app.screen, TensorScreen)

    app: App[None] = App()
    with opened(recorded("reports/job/nan.pcap")) as capture:
        record = capture.messages[41]
        drive(app, story, (100, 60))


def test_elements_of_a_large_tensor_are_there_at_once_and_the_rest_comes() -> None:
    """The thread is held until the first screen was seen."""
    may_go = threading.Event()
    numel = 1 << 21
    data = torch.arange(numel, dtype=torch.float32).numpy().tobytes()
    meta = TensorMeta(
        dtype="float32", sizes=(1 << 11, 1 << 10), strides=(1 << 10, 1), storage=0, storage_numel=numel
    )
    record, source = call(metas=[meta], storages=[data])
    inner, main = source._pread, threading.current_thread()

    def pread(capture: int, offset: int, length: int) -> bytes:
        if threading.current_thread() is not main:
            assert may_go.wait(20)
        return inner(capture, offset, length)

    source._pread = pread

    async def story(pilot: Pilot[None]) -> None:
        app.push_screen(TensorScreen(record, source, 0))
        await pilot.pause()
        await pilot.press("end")
        pane = app.screen.query_one(TensorPane)
        assert screen(pane)[-1].split() == ["[2047,1020]", *(str(numel - at) for at in (4, 3, 2, 1))]
        await pilot.press("home")
        assert any(line.startswith(" statistics is being") for line in screen(pane))
        may_go.set()
        pane = await settled(app, pilot)
        assert pane.worked.statistics is not None
        assert pane.worked.statistics.maximum == numel - 1
        assert pane.worked.bins is not None
        assert sum(pane.worked.bins.counts) == numel
        assert pane.worked.sha256 is not None

    app: App[None] = App()
    drive(app, story)


def test_leaving_ends_the_work() -> None:
    asked: list[int] = []
    blocks = 40
    meta = TensorMeta(
        dtype="uint8", sizes=(blocks << 19,), strides=(1,), storage=0, storage_numel=blocks << 19
    )
    record, source = call(metas=[meta], storages=[bytes(blocks << 19)])
    inner, main = source._pread, threading.current_thread()
    first, left = threading.Event(), threading.Event()

    def pread(capture: int, offset: int, length: int) -> bytes:
        if threading.current_thread() is not main:
            asked.append(length)
            first.set()
            assert left.wait(20)
        return inner(capture, offset, length)

    source._pread = pread

    async def story(pilot: Pilot[None]) -> None:
        app.push_screen(TensorScreen(record, source, 0))
        await pilot.pause()
        assert first.wait(20)
        await pilot.press("escape")
        await pilot.pause()
        left.set()

    app: App[None] = App()
    drive(app, story)
    assert len(asked) < blocks


def test_why_nothing_is_told() -> None:
    meta = TensorMeta(dtype="float32", sizes=(9,), strides=(1,), storage=0, storage_numel=8)
    record, source = call(metas=[meta], storages=[bytes(32)])
    (worked,) = work_out(tensors_of(record, LastRead(source))[0])
    assert worked.note.startswith("can't be told: ")
    assert "32" in worked.note or "8" in worked.note
