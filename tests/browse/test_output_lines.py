"""The output of a command as lines, while it is written."""

from __future__ import annotations

import asyncio
from pathlib import Path

from textual.app import App

from rpcinspect.browse.lines import MAX_LINE, LinesView
from rpcinspect.browse.output_lines import OutputLines, OutputScreen
from tests.browsing import shown_lines, until


def lines_of(path: Path) -> list[str]:
    lines = OutputLines(path)
    try:
        lines.update()
        return lines.texts(range(len(lines)))
    finally:
        lines.close()


def test_lines_come_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"")
    lines = OutputLines(path)
    with path.open("ab", buffering=0) as file:
        assert (lines.update(), len(lines)) == (False, 0)
        file.write(b"one\ntw")
        assert (lines.update(), lines.texts(range(len(lines)))) == (True, ["one", "tw"])
        file.write(b"o\n")
        assert (lines.update(), lines.texts(range(len(lines)))) == (True, ["one", "two"])
        assert not lines.update()
    lines.close()


def test_what_was_written_over_is_gone_and_nothing_is_obeyed(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b" 1%\r50%\r\x1b[32m99%\x1b[0m\r\n\x1b]0;x\x07[bold]\xff\n" + b"x" * 10_000_000)
    percent, evil, long = lines_of(path)
    assert percent == "99%"
    assert evil == r"\x1b]0;x\x07[bold]\xff"
    assert len(long) == MAX_LINE


def test_the_screen_follows_the_end_until_one_scrolls_up(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("".join(f"line {n}\n" for n in range(100)))

    async def run() -> None:
        lines = OutputLines(path)
        app: App[None] = App()
        async with app.run_test(size=(60, 20)) as pilot:
            app.push_screen(OutputScreen(lines))
            await pilot.pause()
            view = app.screen.query_one(LinesView)
            await until(pilot, lambda: "line 99" in "".join(shown_lines(view)))
            with path.open("a") as file:
                file.write("line 100\n")
            await until(pilot, lambda: "line 100" in "".join(shown_lines(view)))
            await pilot.press("up")
            with path.open("a") as file:
                file.write("line 101\n")
            await until(pilot, lambda: len(lines) == 102)
            await pilot.pause()
            assert (view.cursor, view.following) == (99, False)
            await pilot.press("G")
            await pilot.pause()
            assert "line 101" in "".join(shown_lines(view))
            await pilot.press("q")
            await pilot.pause()
            assert not isinstance(app.screen, OutputScreen)
        lines.close()

    asyncio.run(run())
