"""Which call is which: dropped, added, repeated, swapped, replaced, interleaved."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from rpcinspect.diff.align import align_runs
from tests.diff.stories import Story, answer
from tests.thorough import examples


def iterations(*arguments: int, first_context: int = 0) -> Story:
    story = Story(first_context=first_context)
    for argument in arguments:
        story.iteration(argument)
    return story


def pairs(a: Story, b: Story) -> dict[int, int]:
    return align_runs(a.run(), b.run()).pairs


def test_a_run_is_itself() -> None:
    story = iterations(1, 2, 2, 3)
    run = story.run()
    assert pairs(story, story) == {index: index for index in run.calls}


def test_an_iteration_more_at_any_place() -> None:
    base = iterations(1, 2, 3, 4)
    size = len(base.run().messages) // 4
    for at in range(5):
        arguments = [1, 2, 3, 4]
        arguments.insert(at, 9)
        longer = iterations(*arguments, first_context=7)
        found = pairs(base, longer)
        assert len(found) == len(base.run().calls)
        assert all(b - a == (size if a >= at * size else 0) for a, b in found.items())


def test_one_call_dropped_inside_an_iteration() -> None:
    a, b = Story(), Story()
    for story, dropped in ((a, None), (b, 1)):
        for n in range(3):
            for k in range(3):
                if (n, k) != (1, dropped):
                    story.ask("app.f", 10 * n + k, context=n)
    found = pairs(a, b)
    assert len(found) == 8
    assert 8 not in found  # the second call of the second iteration


def test_equal_calls_repeated() -> None:
    a, b = Story(), Story()
    for story, times in ((a, 2), (b, 3)):
        story.ask("app.f", 1)
        for _ in range(times):
            story.ask("app.f", 2)
        story.ask("app.f", 3)
    found = align_runs(a.run(), b.run())
    assert len(found.pairs) == 4
    assert len(found.repeated_b) == 1
    assert not found.repeated_a
    assert align_runs(b.run(), a.run()).repeated_a == found.repeated_b


def test_swapped_calls_are_found_by_what_they_say() -> None:
    a, b = Story(), Story()
    for story, order in ((a, (1, 2, 3, 4)), (b, (1, 3, 2, 4))):
        for argument in order:
            story.ask("app.f", argument, argument)
    assert pairs(a, b) == {0: 0, 2: 4, 4: 2, 6: 6}


def test_a_replaced_function_has_the_place_of_the_other() -> None:
    a, b = Story(), Story()
    for story, name in ((a, "app.g"), (b, "app.h")):
        story.ask("app.f", 1, context=5)
        story.ask(name, 2, context=5)
        story.ask("app.f", 3, context=5)
    assert pairs(a, b) == {0: 0, 2: 2, 4: 4}
    a, b = Story(), Story()
    for story, name in ((a, "app.g"), (b, "app.h")):
        story.ask("app.f", 1)
        story.ask(name, 2)
        story.ask("app.f", 3)
    assert pairs(a, b) == {0: 0, 2: 2, 4: 4}


def test_equal_calls_at_once_are_told_apart_by_their_answers() -> None:
    a, b = Story(), Story()
    for story, results in ((a, (7, 8)), (b, (8, 7))):
        story.ask("app.f", 1, results[0], at=0, takes=20)
        story.ask("app.f", 1, results[1], at=5, takes=20)
    assert pairs(a, b) == {0: 1, 1: 0}
    a, b = Story(), Story()
    for story, results in ((a, (7, 8)), (b, (8, 7))):
        story.ask("app.f", 1, results[0])
        story.ask("app.f", 1, results[1])
    assert pairs(a, b) == {0: 0, 2: 2}


def test_many_equal_calls_at_once_with_few_answers() -> None:
    a, b = Story(), Story()
    for story, shift in ((a, 0), (b, 1)):
        for n in range(500):
            story.ask("app.f", 1, (n + shift) % 2, at=n, takes=1000)
    runs = a.run(), b.run()
    found = align_runs(*runs).pairs
    answers = [(runs[0].calls[i].answer, runs[1].calls[j].answer) for i, j in found.items()]
    assert len(answers) == 500
    assert all(
        runs[0].content(i) == runs[1].content(j) for i, j in answers if i is not None and j is not None
    )


def test_a_nested_call_with_another_argument_is_no_other_call() -> None:
    """Calls that serve other requests have no order among each other."""
    a, b = Story(), Story()
    for story, order, changed in ((a, (0, 1, 2), None), (b, (2, 1, 0), 0)):
        for place, n in enumerate(order):
            story.ask("app.outer", n, at=100 * place, takes=90)
            argument = 77 if n == changed else 10 + n
            story.ask("app.inner", argument, caller=1, callee=2, at=100 * place + 20)
    assert pairs(a, b) == {0: 8, 1: 9, 4: 4, 5: 5, 8: 0, 9: 1}


def test_runs_without_a_call_in_common_are_unrelated() -> None:
    def story(*functions: str, workers: tuple[int, int] = (0, 1)) -> Story:
        made = Story()
        for n, function in enumerate(functions):
            made.ask(function, 10 * len(function) + n, caller=workers[0], callee=workers[1])
        return made

    def unrelated(a: Story, b: Story) -> bool:
        there, back = align_runs(a.run(), b.run()), align_runs(b.run(), a.run())
        assert there.unrelated == back.unrelated
        assert not (there.unrelated and there.pairs)
        return there.unrelated

    assert unrelated(story("app.f", "app.g"), story("app.other", "app.another"))
    assert not unrelated(story("app.f", "app.g"), story("app.other", "app.g"))
    assert not unrelated(story("app.f"), story("app.f", workers=(2, 1)))  # by another worker
    step, make = "torch.distributed.optim.optimizer._local_optimizer_step", "torch.distributed.nn.api.make"
    assert unrelated(story("app.f", "app.g", step), story("app.other", step))  # what any job may call
    assert not unrelated(story(make, step), story(make, step))
    assert not unrelated(story(), story("app.f"))
    assert not unrelated(story(), story())


def test_nested_calls_go_with_their_parents() -> None:
    a, b = Story(), Story()
    for story, results in ((a, (3, 4)), (b, (5, 6))):
        for n, result in enumerate(results):
            story.ask("app.outer", n, at=100 * n, takes=90)
            story.ask("app.inner", result, caller=1, callee=2, at=100 * n + 20)
    found = pairs(a, b)
    assert found == {index: index for index in a.run().calls}


def test_threads_interleave_as_they_like() -> None:
    dice = random.Random(5)
    for _ in range(20):
        runs = []
        for _ in range(2):
            story = Story()
            waiting = {context: list(range(4)) for context in range(3)}
            starts = dice.sample(range(3), 3)
            while any(waiting.values()):
                context = dice.choice([c for c in starts if waiting[c]])
                n = waiting[context].pop(0)
                story.ask("app.f", 10 * context + n, 10 * context + n, context=context)
            runs.append(story.run())
        found = align_runs(*runs).pairs
        assert len(found) == 12
        assert all(runs[0].content(i) == runs[1].content(j) for i, j in found.items())


def test_answers_without_a_request() -> None:
    runs = []
    for first in (3, 4):
        story = Story()
        for value in (first, 5):
            story.say(answer(value), pipe=1, id=90 + value, from_client=False, time_ns=value)
        runs.append(story.run())
    assert align_runs(*runs).orphans == {0: 0, 1: 1}


def scrambled(seed: int) -> Story:
    """Some calls of few kinds, at once and one after the other, in some contexts."""
    dice = random.Random(seed)
    story = Story()
    for n in range(5):
        function, context = dice.choice(["app.f", "app.g"]), dice.choice([None, 0, 1, 2])
        takes = dice.choice([5, 30])
        story.ask(function, dice.randint(0, 2), dice.randint(0, 1), at=7 * n, takes=takes, context=context)
    return story


def scrambled_pairs(stories: int) -> list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    """The pairs of many stories, in both directions."""
    found = []
    for seed in range(0, 2 * stories, 2):
        a, b = scrambled(seed), scrambled(seed + 1)
        found.append((sorted(pairs(a, b).items()), sorted((i, j) for j, i in pairs(b, a).items())))
    return found


def test_every_process_aligns_alike() -> None:
    """Python's numbers for texts are others in each: here at random, there those of PYTHONHASHSEED."""
    script = f"from tests.diff.test_align import scrambled_pairs; print(scrambled_pairs({examples(80)}))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        cwd=Path(__file__).parent.parent.parent,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == str(scrambled_pairs(examples(80)))
    assert all(there == back for there, back in scrambled_pairs(examples(200)))
