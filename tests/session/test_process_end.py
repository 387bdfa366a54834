"""How a process ended, in words."""

from __future__ import annotations

import pytest

from rpcinspect.session.process_end import ProcessEnd, agreed

WORDS = [
    (ProcessEnd(how="signal", signal="SIGKILL"), "killed by SIGKILL", "was killed by SIGKILL"),
    (ProcessEnd(how="signal"), "killed by a signal", "was killed by a signal"),
    (ProcessEnd(how="exit", status=3), "exit status 3", "ended by itself with exit status 3"),
    (
        ProcessEnd(how="exit", status=1, error="ValueError"),
        "exit status 1 (ValueError)",
        "ended by itself with exit status 1 (ValueError)",
    ),
    (ProcessEnd(how="exit"), "ended by itself", "ended by itself"),
    (ProcessEnd(how="running"), "still running", "still ran when the recording ended"),
    (ProcessEnd(how="unknown"), "unknown", "ended, it is not known how"),
]


@pytest.mark.parametrize(("ended", "label", "sentence"), WORDS, ids=lambda value: str(value))
def test_words(ended: ProcessEnd, label: str, sentence: str) -> None:
    assert (str(ended), ended.sentence) == (label, sentence)


def test_what_is_well() -> None:
    assert ProcessEnd(how="exit", status=0).well
    assert ProcessEnd(how="exit").well
    assert not ProcessEnd(how="exit", status=0, error="ValueError").well
    assert not ProcessEnd(how="exit", status=1).well
    for how in ("signal", "running", "unknown"):
        assert not ProcessEnd(how=how).well  # type: ignore[arg-type]


def test_records_that_differ_say_nothing() -> None:
    one, other = ProcessEnd(how="exit", status=0, pid=7), ProcessEnd(how="exit", status=0, pid=8)
    assert agreed([]) is None
    assert agreed([one, one]) == one
    assert agreed([one, other]) == ProcessEnd(how="unknown")


def test_a_log_holds_all_of_it() -> None:
    ended = ProcessEnd(how="signal", signal="SIGKILL", error="E", time_ns=5, pid=7, oom_kills=2)
    assert ProcessEnd.of(ended.logged("worker0", 0, "job")) == ended
