"""Which messages a view shows."""

from __future__ import annotations

from msgspec.structs import replace

from rpcinspect.filter.matches import Shown
from rpcinspect.run.participation import Participation
from rpcinspect.session.model import Finding
from tests.checks.runs import workload_trace


def test_rows_keep_the_order_that_is_asked_for() -> None:
    shown = Shown("request", bytes([1, 0, 1, 1]))
    assert shown.count == 3
    assert shown.of([3, 1, 0, 2]) == [3, 0, 2]


def test_contexts_and_rrefs_are_told_apart_by_job() -> None:
    whole = workload_trace("rref_relay").session
    jobs = (0, 1)
    session = replace(
        whole,
        contexts=tuple(replace(context, job=job) for job in jobs for context in whole.contexts),
        rrefs=tuple(replace(rref, job=job) for job in jobs for rref in whole.rrefs),
    )
    assert session.contexts
    for context in session.contexts:
        touched = Participation(contexts=frozenset([(context.job, context.context_id)]))
        assert Shown("", b"", touched).contexts(session) == (context,)
    for rref in session.rrefs:
        touched = Participation(rrefs=frozenset([(rref.job, rref.rref_id)]))
        assert Shown("", b"", touched).rrefs(session) == (rref,)


def test_findings_of_shown_messages_and_of_the_capture() -> None:
    session = workload_trace("basic_chain").session
    found = [
        Finding(code=code, severity="info", text="", messages=messages)
        for code, messages in (("some", (2, 5)), ("others", (3,)), ("none", ()))
    ]
    rows = bytes(int(index) == 5 for index in session.index)
    kept = Shown("", rows).findings(replace(session, findings=tuple(found)))
    assert [finding.code for finding in kept] == ["some", "none"]


def test_a_view_says_how_much_it_shows() -> None:
    shown = Shown("fn == \x1bx", b"")
    assert shown.words(2, 3, "message") == "shown: 2 of 3 messages, those that match fn == \\x1bx"
    assert shown.words(0, 1, "RRef") == "shown: 0 of 1 RRef, those with messages that match fn == \\x1bx"
