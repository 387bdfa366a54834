"""The page of a whole run in a real browser: it opens without a complaint, asks for nothing, and does what
it promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from rpcinspect.rpc.command import PythonResp
from rpcinspect.run.run import Run
from tests.browser import Browser, Tab, browser, needs_chromium
from tests.diff.stories import Story
from tests.places import recordings
from tests.truth import CAPTURES
from tests.views.page.pages import HOSTILE, page_text, story_run, with_run

pytestmark = needs_chromium

NAMES = ["basic_chain", "bwd_boom", "ps_race", "rref_relay", "ctx_crowd", "dtype_zoo", "profiled_legacy"]
NAMES += ["transport_matrix_default", "devmap_cpu_refused", "reinit"]
STATUS = "document.getElementById('status').textContent"
CANVAS = "document.getElementById('canvas').getBoundingClientRect()"
IN_SIGHT = "Number(document.getElementById('canvas').dataset.inSight)"
DETAIL = "document.getElementById('detail')"
TITLE = f"({DETAIL}.hidden ? '' : {DETAIL}.querySelector('h2').textContent)"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as one:
        yield one


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pages of bundled captures."""
    folder = tmp_path_factory.mktemp("pages")
    for name in NAMES:
        (folder / f"{name}.html").write_text(with_run(name, page_text), encoding="utf-8")
    return folder


def harmless(tab: Tab, path: Path) -> None:
    """No complaint, and no request but for the page itself."""
    assert tab.errors == []
    assert set(tab.requests) == {f"file://{path}"}


@pytest.mark.parametrize("name", NAMES)
def test_every_view_opens(name: str, chromium: Browser, pages: Path) -> None:
    path = pages / f"{name}.html"
    tab = chromium.tab()
    tab.open(path)
    assert tab.run("document.getElementById('broken').textContent") == ""
    for view in ("findings", "messages", "contexts", "latency", "state", "overview"):
        tab.click(f"nav a[href='#{view}']")
        tab.wait(f"document.body.dataset.tab === '{view}'")
        shown = tab.run(
            "[...document.querySelectorAll('main > section')].filter(s => s.offsetHeight).map(s => s.id)"
        )
        assert shown == [view]
    harmless(tab, path)


def test_a_filter_leaves_fewer_rows(chromium: Browser, pages: Path) -> None:
    tab = chromium.tab()
    tab.open(pages / "ps_race.html", "#messages")
    assert tab.run(STATUS) == "44 of 118 messages"  # without housekeeping
    for words, count in {
        "is:error": 2,
        "backward_autograd_req": 6,
        "worker:worker3 fn:forward": 2,
        "-worker:worker0": 0,
        "#28": 1,
        "is:constructor": 0,  # what every object of the language has is no word of the filter
        "constructor:x": 0,
        "-__proto__:x": 44,
        "": 44,
    }.items():
        tab.type("#search", words)
        tab.wait(f"{STATUS} === '{count} of 118 messages'")
    assert tab.wait("Number(document.getElementById('canvas').dataset.lanes)") == 4
    tab.type("#search", "#28")
    tab.wait("document.getElementById('canvas').dataset.lanes === '2'")
    tab.type("#search", "")
    tab.wait(f"{STATUS} === '44 of 118 messages'")
    tab.click("#kinds input", 3)
    tab.wait(f"{STATUS} === '118 messages'")
    tab.click("#only-errors")
    tab.wait(f"{STATUS} === '2 of 118 messages'")
    assert tab.run("document.querySelectorAll('#rows .row').length") == 2
    harmless(tab, pages / "ps_race.html")


def test_a_click_shows_a_message_and_its_answer(chromium: Browser, pages: Path) -> None:
    tab = chromium.tab()
    tab.open(pages / "ps_race.html", "#messages")
    tab.type("#search", "#28")
    tab.wait(f"{STATUS} === '1 of 118 messages'")
    tab.click("#rows .row")
    tab.wait(f"{TITLE} === '#28 FORWARD_AUTOGRAD_REQ'")
    said = tab.run("document.getElementById('detail-body').innerText")
    for words in (
        "worker3 → worker0",
        "ps_race.forward",
        "3:0 (844424930131968)",
        "float32[4, 4]",
        "frame.number ==",
    ):
        assert words in said
    tab.click("#detail a[href='#m33']")
    tab.wait(f"{TITLE} === '#33 FORWARD_AUTOGRAD_RESP'")
    tab.key("Escape")
    tab.wait(f"{TITLE} === ''")
    harmless(tab, pages / "ps_race.html")


def test_a_click_on_an_arrow_shows_its_message(chromium: Browser, pages: Path) -> None:
    tab = chromium.tab()
    tab.open(pages / "bwd_boom.html", "#messages")
    tab.type("#search", "#16")
    tab.wait(f"{STATUS}.startsWith('1 of ')")
    tab.click("#zoom-all")
    tab.wait(f"{IN_SIGHT} === 1")
    left, top, width, height = tab.run(
        f"(() => {{ const b = {CANVAS}; return [b.x, b.y, b.width, b.height]; }})()"
    )
    for x in range(int(left) + 130, int(left + width), 4):  # somewhere in the middle height of the arrow
        tab.click_at(x, top + height * 0.4)
        if tab.run(TITLE):
            break
    tab.wait(f"{TITLE} === '#16 BACKWARD_AUTOGRAD_REQ'")


def test_zoom(chromium: Browser, pages: Path) -> None:
    tab = chromium.tab()
    tab.open(pages / "ps_race.html", "#messages")
    assert tab.wait(IN_SIGHT) == 44
    for _ in range(4):
        tab.click("#zoom-in")
    tab.wait(f"{IN_SIGHT} < 30")
    tab.click("#only-in-view")
    tab.wait(f"Number({STATUS}.split(' ')[0]) === {IN_SIGHT}")
    tab.click("#zoom-all")
    tab.wait(f"{IN_SIGHT} === 44")
    x, y = tab.run(f"(() => {{ const b = {CANVAS}; return [b.x + 700, b.y + 80]; }})()")
    tab.wheel(x, y, -900)
    tab.wait(f"{IN_SIGHT} < 30")
    tab.run("document.getElementById('canvas').focus()")
    tab.key("0")
    tab.wait(f"{IN_SIGHT} === 44")
    for mode in ("time", "order"):
        tab.run(f"document.getElementById('axis').value = '{mode}'")
        tab.run("document.getElementById('axis').dispatchEvent(new Event('change'))")
        tab.wait(f"{IN_SIGHT} === 44")
    harmless(tab, pages / "ps_race.html")


def test_keys(chromium: Browser, pages: Path) -> None:
    tab = chromium.tab()
    tab.open(pages / "basic_chain.html")
    tab.key("/")
    tab.wait("document.activeElement.id === 'search'")
    tab.run("document.getElementById('rows').focus()")
    tab.key("ArrowDown")
    tab.key("ArrowDown")
    tab.wait(f"{TITLE}.startsWith('#')")
    first = tab.run(TITLE)
    tab.key("End")
    tab.wait(f"{TITLE} !== {first!r}")


def test_a_link_to_a_message_opens_it(chromium: Browser, pages: Path) -> None:
    tab = chromium.tab()
    tab.open(pages / "bwd_boom.html", "#m18")
    tab.wait(f"{TITLE}.startsWith('#18 ')")
    assert tab.run("document.body.dataset.tab") == "messages"
    assert "gradient exploded on purpose" in tab.run("document.getElementById('detail-body').innerText")
    tab.click("nav a[href='#findings']")
    tab.wait("document.body.dataset.tab === 'findings'")
    tab.click("#findings .links a:not([href='#m18'])")
    tab.wait(f"!{TITLE}.startsWith('#18 ')")
    assert tab.run("document.body.dataset.tab") == "findings"
    tab.click("#findings .links a.all")
    tab.wait("document.body.dataset.tab === 'messages'")
    assert tab.run("document.getElementById('search').value").startswith("finding:")


def test_an_autograd_graph(chromium: Browser, pages: Path) -> None:
    tab = chromium.tab()
    tab.open(pages / "bwd_boom.html", "#c0")
    tab.wait("document.getElementById('graph').innerText.includes('#23')")
    said = tab.run("document.getElementById('graph').innerText")
    for words in (
        "Context 0:0",
        "gradients for 2 of 4",
        "Critical path, 16 ms",
        "its gradient never came",
        "worker2 5.57 ms (35 %)",
    ):
        assert words in said
    assert tab.run("document.querySelectorAll('#graph-rows .event').length") == 12
    assert tab.run("document.querySelectorAll('#graph-rows .event.bad.edge').length") == 2
    tab.click("#graph-rows .event")
    tab.wait(f"{TITLE}.startsWith('#8 ')")
    harmless(tab, pages / "bwd_boom.html")


def test_hostile_text_stays_text(chromium: Browser, tmp_path: Path) -> None:
    raw = HOSTILE.encode("utf-8")
    answer = b"\x80\x02X" + len(raw).to_bytes(4, "little") + raw + b"."  # PROTO 2, BINUNICODE, STOP
    story = Story()
    story.ask(f"app.{HOSTILE}", 1, PythonResp(answer))
    story.iteration(3)
    story.ask(f"app.{HOSTILE}", 1, 1, context=0)
    run = story_run(story)
    session = replace(run.session, clients=tuple(HOSTILE for _ in run.session.clients))
    run = Run(session, run.messages, source=run.source)
    path = tmp_path / "hostile.html"
    path.write_text(page_text(run), encoding="utf-8")
    tab = chromium.tab()
    tab.open(path, "#messages")
    for index in (0, 1):
        tab.run(f"location.hash = 'm{index}'")
        tab.wait(f"{TITLE}.startsWith('#{index} ')")
        assert "<script>" in tab.run("document.getElementById('detail-body').innerText")
    tab.run("document.querySelector('#detail-body details').open = true")
    tab.run("location.hash = 'c0'")
    tab.wait("document.getElementById('graph').innerText.includes('<script>')")
    assert tab.run("document.querySelectorAll('img, main script, aside script').length") == 0
    assert "\u202e" not in tab.run("document.body.innerText")
    harmless(tab, path)


def test_narrow_screens_do_not_scroll_sideways(chromium: Browser, pages: Path) -> None:
    tab = chromium.tab(400, 800)
    for view in ("#overview", "#findings", "#messages", "#c0", "#latency", "#m28"):
        tab.open(pages / "ps_race.html", view)
        assert tab.run("document.documentElement.scrollWidth") <= 400, view


@pytest.mark.slow
def test_fifty_thousand_messages(chromium: Browser, tmp_path: Path) -> None:
    story = Story(5)
    for n in range(5000):
        story.iteration(n, calls=3)
    run = story_run(story)
    assert len(run.messages) == 50_000
    path = tmp_path / "many.html"
    path.write_text(page_text(run), encoding="utf-8")
    assert path.stat().st_size < 20_000_000
    tab = chromium.tab()
    assert tab.open(path, "#messages") < 30
    assert tab.run(STATUS) == "40,000 of 50,000 messages"
    tab.type("#search", "backward")
    tab.wait(f"{STATUS} === '10,000 of 50,000 messages'", 10)
    tab.type("#search", "")
    tab.click(".kind.housekeeping input")
    tab.wait(f"{STATUS} === '50,000 messages'", 10)
    tab.run("document.getElementById('rows').scrollTop = 1e9")
    tab.wait("document.querySelector('#rows .row:last-child .n').textContent === '#49999'", 10)
    tab.run("location.hash = 'm25000'")
    tab.wait(f"{TITLE}.startsWith('#25000 ')", 10)
    assert tab.run("document.querySelectorAll('#rows .row').length") < 60
    tab.run("location.hash = 'c4999'")
    tab.wait("document.getElementById('graph').innerText.includes('Context')", 10)
    harmless(tab, path)


@pytest.mark.slow
def test_every_capture_of_torchs_own_tests(chromium: Browser, tmp_path: Path) -> None:
    paths = recordings("torch-suite")
    assert len(paths) > 40
    tab = chromium.tab()
    for number, path in enumerate(paths):
        page = tmp_path / f"{number}.html"
        page.write_text(with_run(path, page_text), encoding="utf-8")
        tab.forget()
        tab.open(page, "#m0")
        tab.wait(f"{TITLE}.startsWith('#0 ')")
        if tab.run("document.querySelector('script[data-of=contexts]') !== null"):
            tab.run("location.hash = 'c0'")
            tab.wait("document.getElementById('graph').innerText.includes('Context')")
        harmless(tab, page)


def test_there_are_pages_of_captures_with_everything() -> None:
    assert all(any(CAPTURES.glob(f"{name}.pcap*")) for name in NAMES)
