"""The page of a whole run in a real browser: it opens without a complaint, asks for nothing, and does what
it promises."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from rpcinspect.fields.phrases import duration
from rpcinspect.fields.table import BY_NAME, FIELDS
from rpcinspect.filter.grammar import parse
from rpcinspect.filter.selection import CallSelection, Filter, Selection
from rpcinspect.rpc.command import PythonResp
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import NONE
from tests.browser import Browser, Tab, browser, needs_chromium
from tests.diff.stories import Story
from tests.places import recordings
from tests.thorough import THOROUGH, some
from tests.truth import CAPTURES, capture_of
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
    assert tab.run("document.body.dataset.tab") == ("calls" if tab.run(STATUS) != "0 calls" else "overview")
    for view in ("findings", "messages", "contexts", "latency", "state", "overview", "calls"):
        tab.click(f"nav a[href='#{view}']")
        tab.wait(f"document.body.dataset.tab === '{view}'")
        shown = tab.run(
            "[...document.querySelectorAll('main > section')].filter(s => s.offsetHeight).map(s => s.id)"
        )
        assert shown == ["messages" if view == "calls" else view]
    harmless(tab, path)


FILTERS = (
    "error",
    "not error and request",
    "type == backward_autograd_req or body == PYTHON_RET",
    'worker == worker3 and fn ~ "forward"',
    "not worker == worker0",
    "index in {28, 33}",
    "index >= 10 && (index < 20 || !request)",
    "latency > 2ms and not housekeeping",
    "latency <= 1.5ms",
    "time > 0.1s and took >= 50us",
    "answers == 28",
    "first_packet < 300 and last_packet >= 40",
    "answered",
    "not answered and request",
    "call ~ '^.*forward$'",
    "control or housekeeping",
    "finding == error-response",
    "finding",
    "ctx == 3:0",
    "ctx in {1:0, 562949953421312}",
    "autograd_message_id",
    "from_worker_id == 0",
    "envelope == FORWARD_AUTOGRAD_REQ",
    "device_map",
    "retain_graph == false",
    "rref_id == 0:0 or fork_id",
    "id < 5",
    "pipe != 0",
    "job == 0",
    "capture == 0 and packet > 200",
    'flow ~ ":[0-9]+>127"',
    "tensors >= 1 and nbytes > 0.6KB",
    "nbytes <= 1KiB",
    "arg ~ '^tensor#0'",
    "kwarg ~ 'lr='",
    "async == false",
    'value ~ "(?i)^TENSOR#"',
    'error.type == builtins.RuntimeError or error.text ~ "in.?place\\s"',
    "error.node_id == 0",
    "tensor.dtype in {float32, float64}",
    "tensor.shape == [*, 4] and tensor.dim == 2",
    "tensor.shape != [3]",
    "tensor.numel > 3 and tensor.nbytes >= 16B",
    "tensor.requires_grad or tensor.parameter",
    "not tensor.requires_grad",
    "tensor.device == cpu and not tensor.target_device != cpu",
    "tensor.storage_nbytes > 1KB or tensor.missing_bytes > 0",
    "tensor.placement != certain or tensor.missing",
    'tensor.sha256 ~ "^[0-7]"',
    "tensor.layout == strided and not tensor.conj and not tensor.neg",
    "tensor.quantizer",
    "problem or problem.layer == pickle",
    "event == 'aten::mm' or profiling_id",
    "time_ns > 1 and src != worker0 and from ~ worker and dst in {worker0, worker1}",
)
"""Each field at least once."""


ASK = """(async (text) => {
  const input = document.getElementById('search'), rows = document.getElementById('rows');
  input.value = text;
  input.dispatchEvent(new Event('change'));
  while (rows.getAttribute('aria-busy') !== 'false') await new Promise((go) => setTimeout(go, 1));
  const numbers = (row) => [...row.querySelectorAll('.n')].map((one) => one.innerText.replace('#', ''));
  return [
    document.getElementById('mistake').textContent,
    [...rows.querySelectorAll('.row')].map((row) => Number(numbers(row).find(Boolean))),
  ];
})"""
"""Types a filter and presses Enter: the mistake that is told, and the numbers of the rows."""


@pytest.mark.parametrize("view", ["messages", "calls"])
@pytest.mark.parametrize("name", ["ps_race", "bwd_boom", "rref_relay", "dtype_zoo", "profiled_legacy"])
def test_filters_pick_what_decode_picks(name: str, view: str, chromium: Browser, pages: Path) -> None:
    tab = chromium.tab(1280, 6000)  # all rows are in sight
    tab.open(pages / f"{name}.html", f"#{view}")
    tab.run("document.getElementById('sequence').style.display = 'none'")
    tab.run("document.querySelectorAll('#kinds input').forEach(box => { if (!box.checked) box.click(); })")
    with RunModel.open([str(capture_of(name))]) as run:
        for text in FILTERS:
            mistake, numbers = tab.run(f"{ASK}({json.dumps(text)})")
            assert mistake == "", text
            assert sorted(numbers) == picked(run, text, calls=view == "calls"), text
    harmless(tab, pages / f"{name}.html")


def picked(run: RunModel, text: str, *, calls: bool) -> list[int]:
    """Indexes of what `-f` picks, with `calls` as `--calls -f` does: of each call the request, or the answer
    to one that was not captured."""
    session, kind = run.session, CallSelection if calls else Selection
    selection = kind(Filter(parse(text), text), run.bytes)
    for index in session.index.tolist():
        selection.feed(run.messages[index])
    columns = session.messages
    return [
        int(session.index[row])
        for row in selection.finish(session).of(session.order.tolist())
        if not calls or columns.from_client[row] or columns.partner[row] == NONE
    ]


def test_every_field_is_asked_for() -> None:
    asked = {field.name for text in FILTERS for field in Filter(parse(text), text).fields}
    assert asked == {field.name for field in FIELDS}


@pytest.fixture(scope="module")
def boom(chromium: Browser, pages: Path) -> Tab:
    """A page that is open for all mistakes: opening it takes longer than they do."""
    tab = chromium.tab()
    tab.open(pages / "bwd_boom.html")
    return tab


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lantency > 5ms", "there is no field lantency"),
        ("latency > 5", "latency: a time with its unit"),
        ("fn", ""),
        ("fn ~", "the filter ends too early: expected a value"),
        ('fn ~ "(?=x)"', "this page does not know (?=x in a regular expression"),
        ('fn ~ "("', "not a regular expression of RE2"),
        ('fn ~ "x', "the text in quotes has no end"),
        ("error error", "expected and, or, the end instead of error"),
        ("type == NOTHING", "type: a name of MessageType"),
        ("error < true", "error is a flag, which does not know <"),
        (
            "src == and",
            "expected a value instead of and (a value that is a word of the language must be in quotes)",
        ),
        ("constructor", "there is no field constructor"),
        ("(" * 9000, "too many parentheses"),
        ("((error)", "the filter ends too early: expected )"),
        ("not " * 70 + "error", "more than 64 levels"),
    ],
)
def test_mistakes_are_told_in_a_line(text: str, said: str, boom: Tab, pages: Path) -> None:
    tab = boom
    tab.run(f"{ASK}('')")
    found, _ = tab.run(f"{ASK}({json.dumps(text)})")
    assert found.startswith(said)
    assert bool(found) == bool(said)
    assert "\n" not in found
    if said:
        assert tab.run(STATUS) == "4 of 16 calls"  # what was shown before
    harmless(tab, pages / "bwd_boom.html")


def test_a_field_that_the_page_does_not_hold_is_said_to_be_so(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BY_NAME, "news", replace(BY_NAME["value"], key="news"))
    path = tmp_path / "news.html"
    path.write_text(with_run("bwd_boom", page_text), encoding="utf-8")
    tab = chromium.tab()
    tab.open(path)
    tab.type("#search", "error or news")
    tab.wait(
        "document.getElementById('mistake').textContent === 'this page does not hold news: ask decode -f'"
    )


def test_kinds_that_are_switched_off_are_counted(chromium: Browser, pages: Path) -> None:
    tab = chromium.tab()
    tab.open(pages / "ps_race.html", "#messages")
    assert tab.run(STATUS) == "44 of 118 messages"  # without housekeeping
    tab.type("#search", "worker == worker3")
    tab.wait(f"{STATUS} === '8 of 118 messages; 18 more of kinds that are switched off'")
    tab.click("#kinds input", 3)
    tab.wait(f"{STATUS} === '26 of 118 messages'")
    tab.type("#search", "index == 28")
    tab.wait(f"{STATUS} === '1 of 118 messages'")
    tab.wait("document.getElementById('canvas').dataset.lanes === '2'")
    tab.type("#search", "")
    tab.wait(f"{STATUS} === '118 messages'")
    boxes = "[...document.querySelectorAll('#kinds .soft')]"
    counts = f"{boxes}.reduce((sum, one) => sum + Number(one.textContent), 0)"
    assert tab.run(counts) == 118
    tab.click("nav a[href='#calls']")
    tab.wait(f"{STATUS} === '59 calls'")
    assert tab.run(counts) == 59
    harmless(tab, pages / "ps_race.html")


def test_calls_stand_below_the_call_that_they_were_sent_for(chromium: Browser, pages: Path) -> None:
    tab = chromium.tab()
    tab.open(pages / "bwd_boom.html")
    gradients, error = "gradients of context 0:0: tensor[3]", "Error on Node 1: gradient exploded on purpose"
    rows = "[...document.querySelectorAll('#rows .row')].map(row => row.innerText.replaceAll(/\\s+/g, ' '))"
    assert tab.run(rows) == [
        "8 11 36.609 worker0 → worker2 7.76 ms bwd_boom.relay(tensor[3]) = tensor[3]",
        "9 10 39.794 worker2 → worker1 2.54 ms └ bwd_boom.explode(tensor[3]) = tensor[3]",
        f"16 19 49.878 worker0 → worker2 2.77 ms {gradients} ✗ Error on Node 2: {error}",
        f"17 18 50.931 worker2 → worker1 1.49 ms └ {gradients} ✗ {error}",
    ]
    for column, order in (("took", "8 16 9 17"), ("took", "17 9 16 8"), ("caller", "8 16 9 17")):
        heads = "[...document.querySelectorAll('#row-head button')]"
        tab.run(f"{heads}.find(head => head.innerText.startsWith('{column}')).click()")
        numbers = tab.run("[...document.querySelectorAll('#rows .row .n:first-child')].map(n => n.innerText)")
        assert numbers == order.split()


def test_a_click_on_a_head_sorts_a_table(chromium: Browser, pages: Path) -> None:
    tab = chromium.tab()
    tab.open(pages / "ps_race.html", "#latency")
    head = "document.querySelector('#latency th:nth-child(8)')"  # max
    cells = "[...document.querySelectorAll('#latency table')][0].querySelectorAll('tbody td:nth-child(8)')"
    tab.click("#latency th:nth-child(8) button")
    assert tab.run(f"{head}.ariaSort") == "descending"
    down = tab.run(f"[...{cells}].map(cell => cell.innerText)")
    tab.click("#latency th:nth-child(8) button")
    assert tab.run(f"[...{cells}].map(cell => cell.innerText)") == down[::-1]
    assert len(down) > 4
    assert [duration(ns) for ns in sorted(map(nanoseconds, down), reverse=True)] == down


def nanoseconds(words: str) -> int:
    number, unit = words.split()
    return round(float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit])


def test_the_first_context_is_drawn_when_its_tab_opens(chromium: Browser, pages: Path) -> None:
    tab = chromium.tab()
    tab.open(pages / "ps_race.html")
    tab.click("nav a[href='#contexts']")
    tab.wait("document.querySelectorAll('#graph-rows .event').length > 3")
    assert tab.run("document.querySelector('#context-rows [aria-selected=true]').dataset.place") == "0"


def test_lists_keep_what_they_say_beside_an_open_message(chromium: Browser, pages: Path) -> None:
    for width in (1100, 1400):
        tab = chromium.tab(width, 900)
        for view in ("calls", "messages"):
            tab.open(pages / "ps_race.html", f"#{view}")
            tab.run("location.hash = 'm28'")
            tab.wait(f"{TITLE}.startsWith('#28 ')")
            assert tab.run("document.querySelector('#rows .text').getBoundingClientRect().width") > 150


def test_what_the_labels_of_the_diagram_cover(chromium: Browser, pages: Path) -> None:
    """What is drawn of words lies over no other words, and over no lane."""
    tab = chromium.tab()
    tab.open(pages / "ps_race.html", "#messages")
    tab.run(RECORD_TEXTS)
    tab.click("#zoom-in")
    tab.wait("window.texts.length > 10")
    boxes = [box for box in tab.run("window.texts") if box["text"].startswith("#")]
    assert len(boxes) > 5
    for n, one in enumerate(boxes):
        assert all(abs(one["y"] - 4 - lane) > 6 for lane in tab.run("window.lanes"))
        for other in boxes[n + 1 :]:
            apart = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
            assert apart or abs(one["y"] - other["y"]) >= 11, (one, other)


RECORD_TEXTS = """(() => {
  const pen = document.getElementById('canvas').getContext('2d'), write = pen.fillText.bind(pen);
  window.texts = []; window.lanes = [];
  const clear = pen.clearRect.bind(pen);
  pen.clearRect = (...box) => { window.texts = []; window.lanes = []; clear(...box); };
  pen.fillText = (text, x, y) => {
    if (text.startsWith('worker')) window.lanes.push(y - 4);
    else window.texts.push({ text, x, y, width: pen.measureText(text).width });
    write(text, x, y);
  };
})()"""


def test_norms_of_tensors(chromium: Browser, pages: Path) -> None:
    tab = chromium.tab()
    tab.open(pages / "dtype_zoo.html", "#m0")
    for index, words in ((26, "norm 300.012, no NaN"), (54, "norm 1.4013e-45, 3 NaN, 2 infinite")):
        tab.run(f"location.hash = 'm{index}'")
        tab.wait(f"{TITLE}.startsWith('#{index} ')")
        assert words in tab.run("document.getElementById('detail-body').innerText")


def test_a_click_shows_a_message_and_its_answer(chromium: Browser, pages: Path) -> None:
    tab = chromium.tab()
    tab.open(pages / "ps_race.html", "#messages")
    tab.type("#search", "index == 28")
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
    tab.type("#search", "index == 16")
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
    assert tab.run("document.getElementById('search').value").startswith("index in {")


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
    run = RunModel(session, run.messages, source=run.source)
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
def test_very_many_messages(chromium: Browser, tmp_path: Path) -> None:
    """Fifty thousand, or five."""
    story = Story(5)
    rounds = 5000 if THOROUGH else 500
    for n in range(rounds):
        story.iteration(n, calls=3)
    run = story_run(story)
    every, shown, gradients = rounds * 10, rounds * 8, rounds * 2
    assert len(run.messages) == every
    path = tmp_path / "many.html"
    path.write_text(page_text(run), encoding="utf-8")
    assert path.stat().st_size < 20_000_000
    tab = chromium.tab()
    assert tab.open(path, "#messages") < 30
    assert tab.run(STATUS) == f"{shown:,} of {every:,} messages"
    tab.type("#search", "body == BACKWARD_AUTOGRAD_REQ or body == BACKWARD_AUTOGRAD_RESP")
    tab.wait(f"{STATUS} === '{gradients:,} of {every:,} messages'", 10)
    tab.type("#search", "tensor.shape == [*]")
    tab.wait(f"!{STATUS}.startsWith('{gradients:,} ')", 20)
    tab.type("#search", "")
    tab.click(".kind.housekeeping input")
    tab.wait(f"{STATUS} === '{every:,} messages'", 10)
    tab.run("document.getElementById('rows').scrollTop = 1e9")
    tab.wait("document.querySelector('#rows .row:last-child .n').textContent" + f" === '#{every - 1}'", 10)
    tab.run(f"location.hash = 'm{every // 2}'")
    tab.wait(f"{TITLE}.startsWith('#{every // 2} ')", 10)
    assert tab.run("document.querySelectorAll('#rows .row').length") < 60
    tab.run(f"location.hash = 'c{rounds - 1}'")
    tab.wait("document.getElementById('graph').innerText.includes('Context')", 10)
    harmless(tab, path)


@pytest.mark.slow
def test_captures_of_torchs_own_tests(chromium: Browser, tmp_path: Path) -> None:
    paths = some(recordings("torch-suite"))
    assert len(paths) > 10
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
