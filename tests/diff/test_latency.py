"""Times of calls: information where they are clearly others."""

from __future__ import annotations

from rpcinspect.diff.align import align_runs
from rpcinspect.diff.latency import LEAST_NS, Slower, latencies
from tests.diff.stories import Story


def spent(*times: int) -> Story:
    story = Story()
    for n, time in enumerate(times):
        story.ask("app.f", n, takes=time)
    return story


def told(a: Story, b: Story) -> list[Slower]:
    runs = a.run(), b.run()
    return latencies(*runs, align_runs(*runs).pairs)


def test_medians_that_differ_by_far_are_told_once() -> None:
    a, b = spent(LEAST_NS, LEAST_NS, LEAST_NS), spent(5 * LEAST_NS, 6 * LEAST_NS, 7 * LEAST_NS)
    assert told(a, b) == [Slower((0, 0), 3, LEAST_NS, 6 * LEAST_NS)]
    assert told(b, a) == [Slower((0, 0), 3, 6 * LEAST_NS, LEAST_NS)]


def test_small_differences_are_not() -> None:
    assert told(spent(10), spent(900)) == []
    assert told(spent(10 * LEAST_NS), spent(15 * LEAST_NS)) == []
    assert told(spent(LEAST_NS), spent(LEAST_NS)) == []
