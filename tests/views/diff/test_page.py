"""What the page of a comparison shows, before it is HTML."""

from __future__ import annotations

from types import SimpleNamespace

from rpcinspect.diff.compare import compare_runs
from rpcinspect.equality.rules import Rules
from rpcinspect.rpc.command import PythonResp
from rpcinspect.run.run import RunModel
from rpcinspect.views.diff.page import MAX_BINS, page_of
from tests.diff.stories import FAILURE, Story
from tests.truth import workload
from tests.views.opened import CAPTURES


def page(a: Story, b: Story, **rules: object) -> SimpleNamespace:
    runs = a.opened(), b.opened()
    return page_of(compare_runs(*runs, Rules(**rules)), runs)  # type: ignore[arg-type]


def captured(name: str, rules: Rules | None = None) -> SimpleNamespace:
    paths = (CAPTURES / "pairs" / f"{stem}.pcap.gz" for stem in ("base", name))
    a, b = (RunModel.open([str(path)]) for path in paths)
    with a, b:
        return page_of(compare_runs(a, b, rules or Rules()), (a, b))


def story(result: int, *, more: int = 0) -> Story:
    made = Story()
    made.ask("app.f", 1, result)
    for n in range(more):
        made.ask("app.tell", n + 10_000 * result)
    return made


def test_the_same() -> None:
    found = page(story(1), story(1))
    assert (found.same, found.verdict, found.first) == (True, "The same: 2 messages of both runs", None)
    assert found.lead == "Nothing in them makes the two runs different."
    assert (found.counts.rows, found.marks, found.notes) == ([], (), ())
    assert found.rules == ("compared by their bits",)
    assert page(Story(), Story()).rows.items == ()


def test_unrelated() -> None:
    b = Story()
    b.ask("app.g", 2)
    found = page(story(1), b)
    assert (found.same, found.outcome, found.first) == (False, "unrelated", None)
    assert found.verdict == "Unrelated: the two runs share no similar call"
    assert found.lead.startswith("So there is no first difference.")
    assert len(found.rows.by_place()) == 4


def test_different() -> None:
    found = page(story(1, more=3), story(2, more=3))
    assert found.verdict == "First difference: #1, where w1 answers app.f to w0"
    assert found.lead.startswith("Likely function: w1 gives a different result for the same call: ")
    assert found.lead.endswith(". 4 of 8 messages are different.")
    assert found.first is not None
    assert (found.first.row.place, found.first.likely, found.first.worker) == (1, "function", "w1")
    assert found.first.following == "3 other messages are different: all follow from this one."
    assert [row[:3] for row in found.counts.rows] == [
        ["argument", "3", "–"],
        ["value", "1", "–"],
    ]
    facts = {row.name: (row.a, row.b, row.differs) for row in found.first.facts}
    assert facts["value"] == ("1", "2", True)
    assert facts["type"] == ("PYTHON_RET", "PYTHON_RET", False)
    assert [(mark.x, mark.kind) for mark in found.marks] == [
        (1, "parts"),
        (2, "follows"),
        (4, "follows"),
        (6, "follows"),
    ]


def test_facts_that_one_run_has() -> None:
    b = Story()
    b.ask("app.f", 1, PythonResp(FAILURE))
    found = page(story(1), b)
    assert found.first is not None
    facts = {row.name: (row.a, row.b, row.differs) for row in found.first.facts}
    assert facts["error"] == (None, "oh no", True)
    assert facts["value"] == ("1", None, False)


def test_places_beside_the_first() -> None:
    a, b = Story(), Story()
    for made, n in ((a, 0), (b, 1)):
        made.ask("app.f", n, caller=0, callee=1)
        made.ask("app.f", n, caller=2, callee=1)
    found = page(a, b)
    assert found.first is not None
    assert [(link.text, link.anchor) for link in found.first.beside] == [("#2", "m2")]
    assert found.first.following == "1 other message is different: it differs in the same way."


def test_the_strip_shows_what_has_no_row() -> None:
    found = page(story(1, more=2000), story(2, more=2000))
    assert found.rows.hidden == 1001
    assert found.bins == MAX_BINS == len(found.marks)
    assert found.marks[0].anchor is not None
    assert found.marks[-1].anchor is None
    assert any(
        note.startswith("1,001 messages in which something differs have no row") for note in found.notes
    )


def test_captures_and_their_times() -> None:
    found = captured("summation")
    for panel, name in zip(found.panels, ("base", "summation"), strict=True):
        (file,) = panel.files
        assert file.path.endswith(f"{name}.pcap.gz")
        assert file.time.startswith("20")
        assert " UTC, " in file.time
        assert set(panel.workers) == {"worker0", "worker1", "worker2"}
        assert panel.messages == "182 messages"
    assert found.first is not None
    (line,) = found.first.row.lines
    differing = workload("pairs/summation").of("summation")[0]["differing"]
    assert dict(line.stats)["differ"] == f"{differing} of 32 elements ({differing / 0.32:.1f} %)"
    assert line.chart is not None
    facts = {row.name: row.differs for row in found.first.facts}
    assert facts["tensors[0].elements"]
    assert not facts["tensors[0]"]


def test_rules_are_told() -> None:
    rules = Rules(rtol=1e-4, atol=1e-6, ignore=frozenset({"latency"}), strict=True, renames={"x": "y"})
    assert captured("summation", rules).rules == (
        "floats may differ by 1e-06 + 0.0001 × the smaller of the two",
        "ignored: latency",
        "strict: form, order and the agents' own calls count",
        "x of a is y of b",
    )
