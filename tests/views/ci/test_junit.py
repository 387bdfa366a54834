"""JUnit XML: what readers require of it, whatever the text is."""

from __future__ import annotations

from msgspec.structs import replace

from rpcinspect.views.ci.junit import junit_xml
from rpcinspect.views.ci.suite import MAX_CASES, CaseResult, SuiteResult, about, told_apart
from tests.cli.runner import visible
from tests.junit import cases_of

SUITE = SuiteResult(
    command="findings",
    about="run",
    cases=(
        CaseResult(name="a", lines=("seen",), seconds=0.25),
        CaseResult(name="b", outcome="failure", message="it differs", lines=("first", "second")),
        CaseResult(name="c", outcome="error", message="no answer"),
        CaseResult(name="d", outcome="skipped", message="not sent", lines=("why",)),
    ),
    properties={"captures": "run.pcap"},
    seconds=1234.5,
)
HOSTILE = "\x00\x1b[31m]]></failure>\u202e&amp;\ud800\ufffe\uffff'\"<!--\r\x85\u2028%0A::error::"


def test_each_outcome_is_the_element_that_readers_know() -> None:
    cases = cases_of(junit_xml(SUITE))
    assert [tuple(case) for case in cases.values()] == [
        ("a", "passed", "", "seen"),
        ("b", "failure", "it differs", "first\nsecond"),
        ("c", "error", "no answer", ""),
        ("d", "skipped", "not sent", ""),
    ]
    text = junit_xml(SUITE).decode()
    assert 'classname="rpcinspect.findings.run" time="0.250"' in text
    assert 'time="1234.500"' in text


def test_hostile_text_is_inert() -> None:
    case = CaseResult(name=HOSTILE, outcome="failure", message=HOSTILE, lines=(HOSTILE, "next"))
    data = junit_xml(replace(SUITE, about=HOSTILE, cases=(case,), properties={"captures": HOSTILE}))
    (found,) = cases_of(data).values()
    assert found.text.startswith(r"\x00\x1b[31m]]></failure>\u202e&amp;\ud800\ufffe\uffff'")
    assert found.text.splitlines()[1:] == ["next"]
    assert visible(data.decode())


def test_much_text_is_bounded() -> None:
    much = "x" * 1_000_000
    lines = tuple(f"{much}{n}" for n in range(300))
    case = CaseResult(name=much, outcome="failure", message=much, lines=lines)
    data = junit_xml(replace(SUITE, about=much, cases=(case,), properties={"captures": much}))
    assert len(data) < 200_000
    (found,) = cases_of(data).values()
    assert found.text.endswith("and 100 more lines")


def test_no_two_cases_have_a_name() -> None:
    names = [case.name for case in told_apart(CaseResult(name="x" * length) for length in (1, 300, 301, 1))]
    assert len(set(names)) == 4


def test_names_that_look_alike_are_told_apart() -> None:
    """Servers leave out a second case of a name: it may be the one that failed."""
    names = ("f", "f", "f (2)", "f (2) (2)", "a\n", "a\\n", "f")
    cases = [CaseResult(name=name, outcome="failure") for name in names]
    assert len(cases_of(junit_xml(replace(SUITE, cases=tuple(cases))))) == len(names)


def test_of_too_many_cases_those_that_failed_stay() -> None:
    many = [CaseResult(name=str(n), outcome="failure" if n % 3 == 2 else "passed") for n in range(3000)]
    kept = told_apart(many)
    assert len(kept) == MAX_CASES
    assert sum(case.bad for case in kept) == 1000
    assert kept[-1].message == "1,001 more tests, of which 0 failed"
    failed = told_apart(CaseResult(name=str(n), outcome="error") for n in range(3000))
    assert (len(failed), failed[-1].outcome) == (MAX_CASES, "failure")


def test_captures_are_called_what_servers_can_group() -> None:
    assert about(["./captures/base.v2.pcap.gz"]) == "captures/base_v2"
    assert about(["a.rpclog", "b.rpclog", "c.rpclog"]) == "a and 2 more captures"
    assert about(["-"]) == "standard input"
