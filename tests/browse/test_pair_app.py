"""Two captures in the terminal: the app driven by its keys, on runs of which is known in what they differ."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from rpcinspect.browse.pair_app import PairBrowser
from rpcinspect.browse.pair_details import PairDetails
from rpcinspect.browse.pair_lines import PairLines
from rpcinspect.browse.pair_reading import PairReading
from rpcinspect.browse.parts import PartLines
from rpcinspect.diff.compare import check_messages, compare_runs
from rpcinspect.diff.model import Aligned, Comparison
from rpcinspect.equality.rules import Rules
from rpcinspect.errors import CaptureError
from rpcinspect.pipeline import Decoding, Progress
from rpcinspect.run.run import RunModel
from tests.browse.paired import BASE, driven_pair, pair_browser
from tests.browsing import screen_text, until
from tests.builders import pcap_file
from tests.cli.runner import visible
from tests.cli.test_diff_pairs import index_of
from tests.pairs.expected import Check, checks
from tests.places import CAPTURES, ROOT
from tests.thorough import some


async def settled(app: PairBrowser, pilot: Pilot[int]) -> None:
    """Waits until what is shown below is of the message that the cursor is on."""
    await pilot.pause()
    await until(pilot, lambda: not len(app.workers))
    await pilot.pause()


def message(app: PairBrowser) -> Aligned:
    """The one that is shown."""
    assert app.compared is not None
    assert app.place is not None
    return app.compared.comparison.messages[app.place]


def under_cursor(app: PairBrowser) -> int:
    assert isinstance(app.lines_view.lines, PairLines)
    return app.lines_view.lines.place(app.lines_view.cursor)


def details(app: PairBrowser) -> str:
    view = app.details_view
    lines = (view.lines.line(at, view.size.width).text for at in range(len(view.lines)))
    return " ".join(" ".join(lines).split())


CHAIN = CAPTURES / "basic_chain.pcap"
PLAIN = [one for one in checks() if not one.flags and len(one.first) <= 1]


@pytest.mark.parametrize("check", some(PLAIN, 3), ids=str)
def test_it_opens_on_the_message_at_which_the_runs_part(check: Check) -> None:
    """Which one that is, is known from what the workers printed."""

    async def act(app: PairBrowser, pilot: Pilot[int]) -> None:
        if not check.first:
            assert app.place is None
            assert "the same: " in details(app)
            return
        (expected,) = check.first
        side, run = ("b", check.b) if expected["in"] == "b" else ("a", check.a)
        assert getattr(message(app), side) == index_of(
            run, expected["caller"], expected["call"], expected["part"]
        )
        assert under_cursor(app) == app.place
        assert details(app).startswith("first difference: ")
        assert expected["code"] in details(app)
        assert "likely " in details(app)

    driven_pair(check.b, act)


def test_keys_go_from_difference_to_difference() -> None:
    async def act(app: PairBrowser, pilot: Pilot[int]) -> None:
        assert app.compared is not None
        expected = app.compared.different.tolist()
        assert len(expected) > 40
        passed = [app.place]
        for key in ("greater_than_sign", "n", "greater_than_sign", "less_than_sign", "N", "less_than_sign"):
            await pilot.press(key)
            assert app.place == under_cursor(app)
            passed.append(app.place)
        assert passed == [expected[at] for at in (0, 1, 2, 3, 2, 1, 0)]
        await pilot.press("less_than_sign")
        assert app.place == expected[0]
        app.go_to(expected[-2])
        await pilot.press("greater_than_sign", "greater_than_sign")
        assert app.place == expected[-1] == under_cursor(app)

    driven_pair("function", act)


def test_the_cursor_leads_what_is_shown_below() -> None:
    async def act(app: PairBrowser, pilot: Pilot[int]) -> None:
        before = app.place
        await pilot.press("down")
        await settled(app, pilot)
        assert app.place == under_cursor(app) != before
        number = message(app).a
        assert f"a #{number}" in details(app)

    driven_pair("function", act)


def test_differences_alone_and_everything() -> None:
    async def act(app: PairBrowser, pilot: Pilot[int]) -> None:
        assert app.compared is not None
        shown = len(app.lines_view.lines)
        await pilot.press("d")
        assert len(app.lines_view.lines) == len(app.compared.different)
        assert under_cursor(app) == app.place
        await pilot.press("d", "a")
        assert shown < len(app.lines_view.lines) == len(app.compared.comparison.messages)
        assert under_cursor(app) == app.place

    driven_pair("function", act)


def test_moves_to_causes_and_partners_and_back() -> None:
    async def act(app: PairBrowser, pilot: Pilot[int]) -> None:
        first = app.place
        await pilot.press("greater_than_sign", "u")
        assert app.place == under_cursor(app) == first
        await pilot.press("p")
        assert message(app).request
        assert message(app).call == "training.forward"
        await pilot.press("p")
        assert app.place == first
        await pilot.press("left_square_bracket")
        assert message(app).request
        await pilot.press("right_square_bracket")
        assert app.place == first

    driven_pair("function", act)


def test_a_line_below_leads_to_the_cause() -> None:
    async def act(app: PairBrowser, pilot: Pilot[int]) -> None:
        first = app.place
        await pilot.press("greater_than_sign", "enter")
        assert app.details_view.has_focus
        lines = app.details_view.lines
        assert isinstance(lines, PairDetails)
        app.details_view.move_to(next(at for at in range(len(lines)) if lines.target(at) is not None))
        await pilot.press("enter")
        assert app.place == first
        await pilot.press("q")
        assert app.lines_view.has_focus

    driven_pair("function", act)


@pytest.mark.parametrize(("text", "a", "b"), [("b122", None, 122), ("#9", 9, 9), ("a#122", 122, 124)])
def test_going_to_a_number(text: str, a: int | None, b: int) -> None:
    async def act(app: PairBrowser, pilot: Pilot[int]) -> None:
        await pilot.press("number_sign")
        app.screen.query_one(Input).value = text
        await pilot.press("enter")
        await pilot.pause()
        assert (message(app).a, message(app).b) == (a, b)
        assert under_cursor(app) == app.place

    driven_pair("call_added", act)


def test_finding_text() -> None:
    async def act(app: PairBrowser, pilot: Pilot[int]) -> list[str | None]:
        found = []
        await pilot.press("f")
        app.screen.query_one(Input).value = "NORM_OF"
        for key in ("enter", "n", "n", "N"):
            last = under_cursor(app)
            await pilot.press(key)
            await until(pilot, lambda last=last: under_cursor(app) != last)
            await settled(app, pilot)
            found.append(message(app).call)
        return found

    assert set(driven_pair("function", act)) == {"training.norm_of"}


def test_one_message_in_full() -> None:
    async def act(app: PairBrowser, pilot: Pilot[int]) -> None:
        number = message(app).b
        await pilot.press("v")
        assert "b lacks" not in details(app)
        assert "a lacks this message" in details(app)
        await pilot.press("v")
        assert isinstance(app.details_view.lines, PartLines)
        assert details(app).startswith(f"message {number}: PYTHON_CALL, worker0 → worker2")
        await pilot.press("v")
        assert details(app).startswith("first difference: ")

    driven_pair("call_added", act)


def test_the_summary_is_a_key_away() -> None:
    async def act(app: PairBrowser, pilot: Pilot[int]) -> None:
        await pilot.press("s")
        assert "different: 2 of 184 messages" in details(app)
        assert "different: 2 of 184 messages" in screen_text(app)
        await pilot.press("equals_sign")
        assert message(app).b == 122
        assert "difference 1 of 2" in screen_text(app)

    driven_pair("call_added", act)


def test_a_narrow_terminal_has_one_message_below_the_other() -> None:
    async def act(app: PairBrowser, pilot: Pilot[int]) -> None:
        narrow = screen_text(app)
        assert "│" not in narrow
        lines = narrow.splitlines()
        at = next(number for number, line in enumerate(lines) if line.startswith("! a"))
        assert lines[at + 1].startswith("  b ")
        assert "first difference: " in narrow
        assert "? help" in lines[-1]
        await pilot.resize_terminal(140, 40)
        await until(pilot, lambda: "│" in screen_text(app))
        assert under_cursor(app) == app.place
        await pilot.press("vertical_line")
        assert any(line.startswith("! a") for line in screen_text(app).splitlines())

    driven_pair("function", act, (80, 24))


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (300, 80)])
def test_any_size_will_do(size: tuple[int, int]) -> None:
    async def act(app: PairBrowser, pilot: Pilot[int]) -> None:
        await pilot.press(
            "greater_than_sign", "v", "s", "question_mark", "escape", "backslash", "backslash", "t"
        )
        assert app.is_running

    driven_pair("function", act, size)


def test_rules_hold() -> None:
    async def act(app: PairBrowser, pilot: Pilot[int]) -> str:
        assert app.compared is not None
        return details(app)

    assert "the same within the tolerance" in driven_pair("summation", act, rules=Rules(by_dtype=True))
    assert "first difference" in driven_pair("summation", act)


def test_the_screen_of_the_documentation() -> None:
    text = (ROOT / "docs" / "diff.md").read_text(encoding="utf-8").partition("## In the terminal")[2]
    shown = text.split("```")[1].strip("\n").splitlines()

    async def act(app: PairBrowser, pilot: Pilot[int]) -> list[str]:
        return [line[:-1].rstrip() for line in screen_text(app).splitlines()]

    assert driven_pair("dropout_seed", act, (110, 26)) == shown


def test_q_ends_it() -> None:
    async def run() -> tuple[int | None, int | None]:
        async with pair_browser(BASE, BASE) as (app, pilot):
            await pilot.press("q")
        async with pair_browser(BASE, BASE) as (other, pilot):
            await pilot.press("ctrl+c")
        return app.return_value, other.return_value

    assert asyncio.run(run()) == (0, 130)


def test_it_ends_where_runs_cannot_be_compared(tmp_path: Path) -> None:
    none = tmp_path / "none.pcap"
    none.write_bytes(pcap_file([]))

    def checked(a: RunModel, b: RunModel, progress: Progress) -> Comparison:
        check_messages(a, b)
        return compare_runs(a, b)

    async def run() -> PairReading:
        reading = PairReading([Decoding([str(none)]), Decoding([str(none)])], checked)
        app = PairBrowser(reading)
        async with app.run_test() as pilot:
            await until(pilot, lambda: app._exit)
        reading.close()
        return reading

    assert isinstance(asyncio.run(run()).failure, CaptureError)


@pytest.mark.parametrize("size", [(80, 24), (160, 40)])
def test_captured_text_is_inert(tmp_path: Path, size: tuple[int, int]) -> None:
    """Names of workers, functions and files with commands for terminals, and with markup."""
    hostile = tmp_path / "\x1b[31m[bold]x.pcap"
    changed = (
        CHAIN.read_bytes().replace(b"worker0", b"\x1b[31mAB").replace(b"basic_chain", b"\x1b]0;[bold]\x07")
    )
    hostile.write_bytes(changed)

    async def run() -> str:
        async with pair_browser(hostile, CHAIN, size) as (app, pilot):
            seen = [screen_text(app)]
            for key in ("a", "end", "v", "v", "s", "u", "question_mark"):
                await pilot.press(key)
                await settled(app, pilot)
                seen.append(screen_text(app))
            return "\n".join(seen)

    text = asyncio.run(run())
    assert visible(text)
    assert r"a \x1b[31m[bold]x.pcap" in text
    assert r"\x1b[31mAB" in text
    assert r"\x1b]0;[bold]\x07" in text
