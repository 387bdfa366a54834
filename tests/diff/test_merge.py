"""One order of the messages of both runs."""

from __future__ import annotations

from rpcinspect.diff.align import align_runs
from rpcinspect.diff.merge import merge
from rpcinspect.diff.model import Aligned
from tests.diff.stories import Story, answer, codes, diff, first


def merged(a: Story, b: Story) -> list[Aligned]:
    runs = a.run(), b.run()
    return merge(*runs, align_runs(*runs))


def places(messages: list[Aligned]) -> list[tuple[int | None, int | None]]:
    return [(message.a, message.b) for message in messages]


def stories(*orders: tuple[int, ...]) -> list[Story]:
    made = []
    for order in orders:
        story = Story()
        for argument in order:
            story.ask(f"app.f{argument}", argument)
        made.append(story)
    return made


def test_what_one_run_has_alone_stands_where_it_was() -> None:
    a, b = stories((1, 2, 3), (1, 3, 4))
    expected = [(0, 0), (1, 1), (2, None), (3, None), (4, 2), (5, 3), (None, 4), (None, 5)]
    assert places(merged(a, b)) == expected
    assert places(merged(b, a)) == [(b, a) for a, b in expected]


def test_answers_point_to_their_requests() -> None:
    a, b = stories((1,), (1,))
    request, reply = merged(a, b)
    assert (request.request, request.answers, request.source, request.destination) == (True, None, "w0", "w1")
    assert (reply.request, reply.answers, reply.source, reply.destination) == (False, 0, "w1", "w0")
    assert (reply.type, reply.function) == ("PYTHON_RET", "app.f1")


def test_every_message_stands_there_once_and_behind_what_it_follows() -> None:
    a, b = stories((1, 2, 3, 4, 5), (5, 3, 1, 9))
    messages = merged(a, b)
    assert sorted(m.a for m in messages if m.a is not None) == list(range(10))
    assert sorted(m.b for m in messages if m.b is not None) == list(range(8))
    for place, message in enumerate(messages):
        assert message.answers is None or message.answers < place


def test_an_answer_that_one_run_lacks() -> None:
    a, b = Story(), Story()
    a.ask("app.f", 1)
    b.ask("app.f", 1, result=None)
    assert places(merged(a, b)) == [(0, 0), (1, None)]


def test_orphans() -> None:
    made = []
    for count in (1, 2):
        story = Story()
        for n in range(count):
            story.say(answer(n), pipe=1, id=90 + n, from_client=False, time_ns=n)
        made.append(story)
    messages = merged(*made)
    assert places(messages) == [(0, 0), (None, 1)]
    assert [(m.source, m.destination, m.request) for m in messages] == [("w1", "w0", False)] * 2


def test_a_nested_call_of_one_run_comes_before_the_answer_that_follows_from_it() -> None:
    """Also where another call, of which nothing follows, has come before it in one run and is last in the
    other."""
    a, b = Story(), Story()
    a.ask("app.other", 1)
    a.ask("app.outer", 2, 3, at=20, takes=60)
    a.ask("app.inner", 4, caller=1, callee=2, at=40)
    b.ask("app.outer", 2, 5, at=20, takes=60)
    for story in (a, b):
        for n in range(6):
            story.ask("app.filler", n, at=100 + 12 * n)
    b.ask("app.other", 1)
    for comparison, code in ((diff(a, b), "missing"), (diff(b, a), "extra")):
        told = [found for found in codes(comparison) if found[0] != "reordered"]
        assert [found[0] for found in told] == [code, code, "value"]
        assert first(comparison)[0] == code
