"""The bars of the overview, against sums over the messages and the times that the workers told."""

from __future__ import annotations

from collections import Counter

from rpcinspect.fields.phrases import amount, duration
from rpcinspect.run.latency import for_people
from rpcinspect.views.page.charts import MAX_BARS, busiest, covered, moved, slowest
from tests.checks.runs import workload_trace
from tests.diff.stories import Story
from tests.truth import Workload
from tests.views.page.pages import story_run


def test_what_took_long() -> None:
    story = Story()
    for took in (10, 30, 20):
        story.ask("app.slow", takes=took)
    story.ask("app.quick", takes=5)
    story.ask("app.never", result=None)
    found = slowest(for_people(story_run(story).latency))
    assert [(bar.name, bar.words, bar.remark) for bar in found] == [
        ("app.slow", "60 ns", "3 calls, at most 30 ns"),
        ("app.quick", "5 ns", "1 call, at most 5 ns"),
    ]
    assert found[1].share == 5 / 60


def test_who_was_busy_counts_no_moment_twice() -> None:
    """A request is on the wire for 2 ns."""
    story = Story()
    for begin, took in ((0, 100), (50, 100), (400, 50)):
        story.ask("app.f", at=begin, takes=took)
    story.ask("app.f", at=0, takes=10, callee=2)
    run = story_run(story)
    found = busiest(for_people(run.latency), run.session)
    assert [(bar.name, bar.words, bar.remark) for bar in found] == [
        ("w1", "196 ns, 44 % of the run", "3 calls, own work 244 ns"),
        ("w2", "8 ns, 2 % of the run", "1 call, own work 8 ns"),
    ]


def test_time_that_spans_cover() -> None:
    assert covered([]) == 0
    assert covered([(5, 9), (0, 3), (1, 2), (8, 12)]) == 10


def test_bytes_of_pairs() -> None:
    lines = Workload("ps_race").decoded.messages
    run = workload_trace("ps_race")
    found = {bar.name: bar for bar in moved(run, range(len(run.messages)))}
    counts = Counter(f"{line['src']} → {line['dst']}" for line in lines)
    tensors = Counter[str]()
    for line in lines:
        tensors[f"{line['src']} → {line['dst']}"] += sum(
            {one["storage"]: one["storage_nbytes"] for one in line["tensors"]}.values()
        )
    assert found.keys() == counts.keys()
    for pair, bar in found.items():
        assert bar.remark == f"{counts[pair]} messages, {amount(tensors[pair])} of tensors"
    assert max(bar.share for bar in found.values()) == 1


def test_no_more_than_there_is_room_for() -> None:
    story = Story()
    for n in range(MAX_BARS + 5):
        story.ask(f"app.f{n}", takes=10 + n)
    found = slowest(for_people(story_run(story).latency))
    assert len(found) == MAX_BARS
    assert found[0].words == duration(MAX_BARS + 14)
