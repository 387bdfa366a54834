"""The ledger on a terminal."""

from __future__ import annotations

from msgspec.structs import replace

from rpcinspect.views.questions.rrefs import QUESTION
from tests.checks.runs import traced, workload_trace
from tests.cli.runner import visible
from tests.places import recorded
from tests.views.graphs import HOSTILE
from tests.views.opened import altered, told


def shown(stories: object, *, every_fork: bool = False) -> list[str]:
    run = altered(workload_trace("rref_relay"), rrefs=stories, calls={})
    return told(QUESTION.show(run, every_fork))


def test_every_rref_has_a_line_and_every_fork_where_all_is_wanted() -> None:
    ledger = workload_trace("rref_relay").rrefs
    lines = shown(ledger)
    assert [line.split()[0] for line in lines[1 : len(ledger) + 1]] == ["0:0", "0:5", "0:8", "0:11"]
    assert lines[-1] == "4 RRefs, no forks alive when the capture ends"
    assert not any(line.startswith("fork ") for line in lines)
    every = shown(ledger, every_fork=True)
    at = next(i for i, line in enumerate(every) if line.startswith("fork "))
    assert len(every[at + 1 : -2]) == sum(len(story.forks) for story in ledger)


def test_who_was_called_is_named_as_in_other_views() -> None:
    """Of a RemoteModule and of a remote call of a method not the function of torch's that they go through."""
    run = traced(recorded("reports/job/plain.pcap"))
    lines = told(QUESTION.show(run, False))
    values = {line.split()[0]: line for line in lines[1 : len(run.rrefs) + 1]}
    made = {f"{r.rref_id[0]}:{r.rref_id[1]}": r.created for r in run.rrefs if r.created is not None}
    assert " __mp_main__.Stage1 " in values["0:0"]
    assert made
    assert all(f" {run.calls[index].what} " in values[rref] for rref, index in made.items())
    assert not any("_create_module" in line or "_local_invoke" in line for line in values.values())


def test_what_is_alive_is_listed() -> None:
    story = workload_trace("rref_relay").rrefs[0]
    forks = (replace(story.forks[1], state="alive", deleted=None), *story.forks[2:])
    lines = shown([replace(story, forks=forks)])
    at = next(i for i, line in enumerate(lines) if line.startswith("fork "))
    assert lines[at + 1].split()[:3] == ["0:2", "0:0", "worker2"]
    assert lines[at + 1].endswith("alive")
    assert lines[-1] == "1 RRef, 1 fork alive when the capture ends"


def test_captured_names_are_harmless() -> None:
    story = workload_trace("rref_relay").rrefs[0]
    fork = replace(story.forks[0], holder=HOSTILE, giver=HOSTILE)
    lines = shown(
        [replace(story, owner=HOSTILE, creator=HOSTILE, what=HOSTILE, forks=(fork,), failed=True)],
        every_fork=True,
    )
    assert visible("\n".join(lines))
    assert "✗ raised" in lines[1]


def test_what_was_not_captured_is_not_guessed() -> None:
    story = workload_trace("rref_relay").rrefs[0]
    (_, line, *_) = shown([replace(story, what=None, created=None, owner=None, creator=None, forks=())])
    assert "a local value" in line or "not captured" in line
    assert shown([]) == ["no remote reference was seen"]
