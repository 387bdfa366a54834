"""The app as a whole: views, moves, filter, find, go to, history, on captures of jobs that print it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from rpcinspect.browse.app import Browser
from rpcinspect.browse.lines import LinesView
from rpcinspect.browse.listing import RowList
from rpcinspect.browse.parts import PartLines
from rpcinspect.browse.screens import Chooser, HelpScreen
from rpcinspect.browse.tensor_view import TensorScreen
from rpcinspect.browse.views import VIEWS
from tests.browsing import browser, driven, screen_text, until
from tests.builders import pcap_file
from tests.cli.runner import decode
from tests.places import CAPTURES, recorded

CHAIN = CAPTURES / "basic_chain.pcap"


async def rows_of(app: Browser, pilot: Pilot[int]) -> list[int]:
    await until(pilot, lambda: app.settled)
    rows = app.lines_view.lines
    assert isinstance(rows, RowList)
    return [app.reading.number(rows.row(at)) for at in range(len(rows))]


async def filtered(app: Browser, pilot: Pilot[int], text: str) -> None:
    await pilot.press("slash")
    app.filter_line.query_one(Input).value = text
    await pilot.press("enter")


async def shown_number(app: Browser, pilot: Pilot[int]) -> int:
    await pilot.pause()
    assert app.row is not None
    return app.reading.number(app.row)


def test_it_opens_on_the_calls_without_housekeeping() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> tuple[list[int], str]:
        return await rows_of(app, pilot), screen_text(app)

    rows, text = driven(CHAIN, act)
    assert rows == [6, 8, 10, 11, 13, 15]
    assert "basic_chain.scale(tensor[3,4]" in text
    assert "24 messages" in text


def test_housekeeping_is_shown_and_hidden_by_a_key() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> list[int]:
        await pilot.press("2", "a")
        first = await rows_of(app, pilot)
        await pilot.press("a")
        return [len(first), len(await rows_of(app, pilot))]

    assert driven(CHAIN, act) == [24, 12]


def test_moves_follow_a_backward_pass() -> None:
    """basic_chain.py: worker0 calls scale and add on worker1; the gradients go back along both edges."""

    async def act(app: Browser, pilot: Pilot[int]) -> list[int]:
        steps = [await shown_number(app, pilot)]
        for keys in (["p"], ["p"], ["b"], ["b"], ["left_square_bracket"], ["right_square_bracket"]):
            await pilot.press(*keys)
            steps.append(await shown_number(app, pilot))
        return steps

    first, answer, again, gradient, forward, back, forth = driven(CHAIN, act)
    assert (first, answer, again) == (6, 7, 6)
    assert gradient == 15  # the last: the first call's gradient comes last
    assert (forward, back, forth) == (6, 15, 6)


def test_parents_and_children_are_those_of_the_run() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> list[int]:
        await pilot.press("down", "down", "d")  # 10 → its only child
        steps = [await shown_number(app, pilot)]
        await pilot.press("u")
        return [*steps, await shown_number(app, pilot)]

    assert driven(CHAIN, act) == [11, 10]


def test_a_filter_narrows_the_list_and_the_answers() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> tuple[list[int], str, list[int]]:
        await filtered(app, pilot, "src == worker1")
        picked = await rows_of(app, pilot)
        title = screen_text(app).splitlines()[0]
        await filtered(app, pilot, "")
        return picked, title, await rows_of(app, pilot)

    picked, title, after = driven(CHAIN, act)
    assert picked == [11, 15]
    assert "match src == worker1" in title
    assert after == [6, 8, 10, 11, 13, 15]


def test_a_message_that_the_filter_hides_is_shown_without_it() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> list[int]:
        await filtered(app, pilot, "src == worker1")
        await rows_of(app, pilot)
        await pilot.press("number_sign", "6", "enter")
        await until(pilot, lambda: "the filter hides #6: it is off now" in screen_text(app))
        return [await shown_number(app, pilot), *await rows_of(app, pilot)]

    shown, *rows = driven(CHAIN, act)
    assert shown == 6
    assert 6 in rows


def test_what_is_no_filter_stays_in_the_line_with_the_reason() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> str:
        await filtered(app, pilot, "latency > fast")
        return screen_text(app)

    text = driven(CHAIN, act)
    assert "latency > fast" in text
    assert "✗" in text


def test_find_goes_round() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> list[int]:
        found = []
        await pilot.press("f", *"gradients", "enter")
        for key in ("n", "n", "n", "n", "N"):
            await pilot.pause(0.1)
            found.append(await shown_number(app, pilot))
            await pilot.press(key)
        await pilot.pause(0.1)
        return [*found, await shown_number(app, pilot)]

    assert driven(CHAIN, act) == [10, 11, 13, 15, 10, 15]


@pytest.mark.parametrize(("typed", "number"), [("13", 13), ("#7", 7), ("0.0351s", 10), ("p375", 8)])
def test_go_to(typed: str, number: int) -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> int:
        await pilot.press("number_sign", *typed, "enter")
        return await shown_number(app, pilot)

    assert driven(CHAIN, act) == number


def test_go_to_nowhere_says_why() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> int:
        await pilot.press("number_sign", *"99", "enter")
        await until(pilot, lambda: "there is no message 99" in screen_text(app))
        return await shown_number(app, pilot)

    assert driven(CHAIN, act) == 6


def test_every_view_has_something_to_show_and_a_context_opens() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> tuple[dict[str, int], list[str], str]:
        sizes = {}
        for number, view in enumerate(VIEWS, 1):
            await pilot.press(str(number % 10))
            await until(pilot, lambda: not str(app.lines_view.lines.line(0, 80).text).startswith("working"))
            sizes[view.name] = len(app.lines_view.lines)
        await pilot.press("3")
        await until(pilot, lambda: isinstance(app.lines_view.lines, PartLines))
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.opened == 0 and len(app.lines_view.lines) > 3)
        opened = app.lines_view.lines
        lines = [opened.line(at, 200).text for at in range(len(opened))]
        await pilot.press("q")
        await pilot.pause()
        return sizes, lines, app.view.name + str(app.opened)

    sizes, lines, after = driven(CHAIN, act)
    assert all(sizes.values()), sizes
    assert any("critical path" in line or "backward" in line for line in lines)
    assert after == "contextsNone"


def test_enter_on_a_finding_goes_to_the_message_that_the_line_names() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> tuple[int, str]:
        await pilot.press("7")
        await until(pilot, lambda: isinstance(app.lines_view.lines, PartLines))
        lines = app.lines_view.lines
        assert isinstance(lines, PartLines)
        at = next(at for at in range(len(lines)) if len(lines.targets(at)) == 1)
        app.lines_view.move_to(at)
        await pilot.press("enter")
        text = " ".join(lines.line(near, 200).text for near in range(at, len(lines)))
        return await shown_number(app, pilot), text

    number, line = driven(recorded("reports/findings/errs_remote.pcap"), act)
    assert f"#{number}" in line


def test_layouts_and_a_maximised_pane() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> list[tuple[int, int]]:
        sizes = []
        for _ in range(3):
            sizes.append((app.lines_view.size.width, app.lines_view.size.height))
            await pilot.press("vertical_line")
            await pilot.pause()
        await pilot.press("backslash")
        await pilot.pause()
        sizes.append((app.lines_view.size.width, app.lines_view.size.height))
        return sizes

    above, beside, alone, whole = driven(CHAIN, act)
    assert above[0] > beside[0]
    assert alone[1] > above[1]
    assert whole[1] >= alone[1]


def test_rows_are_there_before_the_end() -> None:
    async def run() -> list[int]:
        async with browser(recorded("reports/concurrent/chain_ctx1.pcap"), wait=False) as (app, pilot):
            seen: set[int] = set()
            while not app.settled:
                seen.add(len(app.lines_view.lines))
                await pilot.pause(0.02)
            return sorted({*seen, len(app.lines_view.lines)})

    counts = asyncio.run(run())
    assert counts[-1] > 0


def test_a_capture_without_messages_says_so(tmp_path: Path) -> None:
    empty_capture = tmp_path / "empty.pcap"
    empty_capture.write_bytes(pcap_file([]))

    async def act(app: Browser, pilot: Pilot[int]) -> str:
        await pilot.press("vertical_line")
        await pilot.pause()
        return screen_text(app)

    assert "no RPC messages" in driven(empty_capture, act)


def test_a_view_of_many_calls_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpcinspect.browse.growing_run.MAX_RECORDS", 10)

    async def act(app: Browser, pilot: Pilot[int]) -> list[str]:
        await pilot.press("3")
        await pilot.pause()
        said = [app.lines_view.lines.line(0, 200).text]
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.lines_view.lines, PartLines))
        said.append(app.lines_view.lines.line(0, 200).text)
        await pilot.press("1", "down", "d")  # moves need no calls
        return [*said, str(app.reading.in_memory), str(await shown_number(app, pilot))]

    asked, answered, in_memory, number = driven(CHAIN, act)
    assert "enter works it out" in asked
    assert answered.startswith("context")
    assert (in_memory, number) == ("False", "8")


def test_what_80_columns_cut_can_be_read() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> None:
        await pilot.press("7")
        await until(pilot, lambda: "stops there." in screen_text(app))
        text = screen_text(app)
        assert "7 findings" in text
        assert "0 sum" in text
        assert await shown_number(app, pilot) == 107  # which the line under the cursor names
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Chooser))
        offered = app.screen.query_one(LinesView).lines
        assert [offered.line(at, 80).text.split()[0] for at in range(len(offered))] == [
            "#107",
            "#102",
            "#106",
        ]
        await pilot.press("enter", "enter", "down", "down", "enter")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        assert "is the first" in screen_text(app)

    driven(recorded("reports/job/nan.pcap"), act, (80, 24))


def test_keys_for_the_message_do_nothing_while_a_tensor_is_open() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> None:
        await pilot.press("enter", "G", "enter")
        await until(pilot, lambda: isinstance(app.screen, TensorScreen))
        before = app.row
        await pilot.press("m", "p", "2", "slash")
        assert isinstance(app.screen, TensorScreen)
        assert (app.row, app.view.name, [*app.marks]) == (before, "calls", [])
        assert "q back" in screen_text(app).splitlines()[-1]
        await pilot.press("q")
        assert not isinstance(app.screen, TensorScreen)

    driven(CHAIN, act)


def test_a_word_that_is_being_typed_is_no_mistake() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> list[str]:
        await pilot.press("slash", *"la")
        hints = [screen_text(app).splitlines()[-3]]
        await pilot.press("space")
        return [*hints, screen_text(app).splitlines()[-3]]

    begun, over = driven(CHAIN, act)
    assert begun.startswith("… latency")
    assert over.startswith("✗")


def test_a_filter_means_messages_where_a_view_is_of_messages() -> None:
    """In `decode -f` the sender is each message's own; in `decode --calls -f` it is that of the request."""

    async def act(app: Browser, pilot: Pilot[int]) -> list[int]:
        await filtered(app, pilot, "src == worker1")
        await rows_of(app, pilot)
        await pilot.press("2")
        return await rows_of(app, pilot)

    printed = decode(CHAIN, "-f", "src == worker1", "--format", "jsonl").objects
    assert driven(CHAIN, act) == [one["index"] for one in printed if one["kind"] == "message"]


def test_the_way_back_leads_past_another_filter_to_the_same_message() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> tuple[str, int, int]:
        await pilot.press("3")
        await until(pilot, lambda: isinstance(app.lines_view.lines, PartLines))
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.opened == 0 and isinstance(app.lines_view.lines, PartLines))
        await pilot.press("1", "down", "2")
        before = await shown_number(app, pilot)
        await filtered(app, pilot, "index == 99")  # leaves no context
        await pilot.press("left_square_bracket")
        await filtered(app, pilot, "index > 7")
        await pilot.press("right_square_bracket")
        await rows_of(app, pilot)
        after = await shown_number(app, pilot)
        await filtered(app, pilot, "index == 99")
        for _ in range(3):
            await pilot.press("left_square_bracket")
        await until(pilot, lambda: isinstance(app.lines_view.lines, PartLines))
        return "\n".join(app.lines_view.lines.line(0, 90).text.splitlines()), before, after

    told, before, after = driven(CHAIN, act)
    assert told == "shown: 0 of 1 context, those with messages that match index == 99"
    assert before == after
