"""One side of a diff: names, contents, edges, and the calls of one context."""

from __future__ import annotations

from pathlib import Path

from rpcinspect.diff.side import DiffSide, MessagePlace
from rpcinspect.run.run import open_run
from tests.diff.stories import Story


def test_signs_and_contents() -> None:
    story = Story()
    story.ask("app.f", 1)
    story.ask("app.f", 1)
    story.ask("app.f", 2)
    run = story.run()
    assert run.signs[0] == (0, "w0", "w1", 0x102, "app.f")
    assert run.content(0) == run.content(2) != run.content(4)


def test_names_are_those_of_both_runs() -> None:
    story = Story()
    story.ask("app.f")
    run = story.run()
    run.recognise({(0, "w1"): "other"})
    assert run.signs[0].callee == "other"
    assert run.name(0, "w0") == "w0"


def test_a_gradient_goes_back_along_the_edge_of_a_message() -> None:
    story = Story()
    story.iteration(1)
    run = story.run()
    gradient = next(call for call in run.calls.values() if call.kind == 0x111)
    assert run.forward(gradient) == MessagePlace(0, False)


def test_one_context_is_its_calls_and_what_follows_from_them(repo: Path) -> None:
    with open_run(str(repo / "captures" / "ctx_crowd.pcap.gz")) as opened:
        whole = DiffSide(opened)
        context = opened.session.contexts[1]
        part = DiffSide(opened, context)
    assert 0 < len(part.calls) < len(whole.calls)
    for call in part.calls.values():
        assert call.context == context.context_id or part.parents[call.index] in part.calls
    its = {call.index for call in whole.calls.values() if call.context == context.context_id}
    assert its <= part.calls.keys()


def test_forks_are_known_by_what_carried_them(repo: Path) -> None:
    path = str(repo / "captures" / "rref_relay.pcap.gz")
    with open_run(path) as one, open_run(path) as other:
        runs = [DiffSide(one), DiffSide(other)]
        for run in runs:
            run.recognise({})
        kept = [c.index for c in runs[0].calls.values() if c.kind in (0x10B, 0x10C)]
        assert kept
        places = [run.carrier(run.calls[index]) for index in kept]
        assert places == [runs[1].carrier(runs[1].calls[index]) for index in kept]
        assert None not in places
        for index, place in zip(kept, places, strict=True):
            assert place.request < index
