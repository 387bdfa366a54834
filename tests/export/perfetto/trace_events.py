"""What a file in the Trace Event Format must keep so that viewers read it as it is meant; see
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.

Times are compared as whole nanoseconds, since that is what they stand for.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

Json = dict[str, Any]

NEEDED = {
    "b": {"cat", "name", "id2", "pid", "tid", "ts"},
    "e": {"cat", "name", "id2", "pid", "tid", "ts"},
    "X": {"cat", "name", "pid", "tid", "ts", "dur", "args"},
    "s": {"cat", "name", "id", "pid", "tid", "ts"},
    "f": {"cat", "name", "id", "pid", "tid", "ts", "bp"},
    "i": {"cat", "name", "s", "pid", "tid", "ts", "args"},
    "C": {"name", "pid", "tid", "ts", "args"},
    "M": {"name", "pid", "tid", "ts", "args"},
}
METADATA = {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}


def ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def of(document: Json, *phases: str) -> list[Json]:
    """The events of some phases."""
    return [event for event in document["traceEvents"] if event["ph"] in phases]


def check(document: Json) -> None:
    """All of it."""
    assert document["displayTimeUnit"] == "ns"
    check_fields(document)
    check_names(document)
    check_async(document)
    check_threads(document)
    check_flows(document)
    check_counters(document)


def check_fields(document: Json) -> None:
    for event in document["traceEvents"]:
        assert NEEDED[event["ph"]] <= set(event), event
        for key in ("pid", "tid", "id"):
            if key in event:
                assert type(event[key]) is int, event
                assert 0 < event[key] < 1 << 31, event
        assert type(event["ts"]) is float, event
        assert event["ts"] >= 0, event
        assert abs(event["ts"] * 1000 - ns(event["ts"])) < 1e-3, "finer than a nanosecond"
        assert isinstance(event["name"], str)
        assert event["name"]


def check_names(document: Json) -> None:
    """Every process and thread has one name, and no tid is in two processes or a pid."""
    processes: dict[int, str] = {}
    threads: dict[int, int] = {}
    for event in of(document, "M"):
        assert event["name"] in METADATA
        if event["name"] == "process_name":
            assert event["pid"] not in processes
            processes[event["pid"]] = event["args"]["name"]
        elif event["name"] == "thread_name":
            assert event["tid"] not in threads
            threads[event["tid"]] = event["pid"]
    assert len(set(processes.values())) == len(processes)
    assert all(threads[number] == number for number in set(threads) & set(processes))
    for event in document["traceEvents"]:
        assert event["pid"] in processes, event
        if event["ph"] in "Xsfbe":
            assert threads[event["tid"]] == event["pid"], event


def check_async(document: Json) -> None:
    """As viewers read them: by time, events of one time as they stand; one stack for each id."""
    stacks: dict[tuple[str, str], list[Json]] = defaultdict(list)
    pids: dict[str, int] = {}
    for event in sorted(of(document, "b", "e"), key=lambda e: ns(e["ts"])):
        assert list(event["id2"]) == ["local"]
        identifier = event["id2"]["local"]
        assert int(identifier, 16) > 0
        stack = stacks[event["cat"], identifier]
        assert pids.setdefault(identifier, event["pid"]) == event["pid"], "an id in two processes"
        if event["ph"] == "b":
            stack.append(event)
        else:
            begin = stack.pop()
            assert (begin["name"], begin["pid"]) == (event["name"], event["pid"])
            assert ns(begin["ts"]) <= ns(event["ts"])
    assert not any(stacks.values())


def check_threads(document: Json) -> None:
    """No slice begins before the one before it on the thread has ended."""
    ends: dict[int, int] = {}
    for event in sorted(of(document, "X"), key=lambda e: ns(e["ts"])):
        begin = ns(event["ts"])
        assert ends.get(event["tid"], -1) < begin, event
        assert event["dur"] >= 0
        ends[event["tid"]] = begin + ns(event["dur"])


def check_flows(document: Json) -> None:
    """Each has one start and one end, not before it, both within a slice of their thread."""
    slices: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in of(document, "X"):
        begin = ns(event["ts"])
        slices[event["tid"]].append((begin, begin + ns(event["dur"])))
    starts = {event["id"]: event for event in of(document, "s")}
    ends = {event["id"]: event for event in of(document, "f")}
    assert len(starts) == len(of(document, "s"))
    assert len(ends) == len(of(document, "f"))
    assert set(starts) == set(ends)
    for number, start in starts.items():
        end = ends[number]
        assert (start["cat"], start["name"]) == (end["cat"], end["name"])
        assert ns(start["ts"]) <= ns(end["ts"])
        assert end["bp"] == "e"
        for event in (start, end):
            at = ns(event["ts"])
            assert any(low <= at <= high for low, high in slices[event["tid"]]), event


def check_counters(document: Json) -> None:
    """No count of calls or bytes is negative; times ascend."""
    last: dict[tuple[int, str], int] = {}
    for event in of(document, "C"):
        (value,) = event["args"].values()
        assert type(value) is int, event
        assert value >= 0, event
        key = (event["pid"], event["name"])
        assert last.get(key, -1) < ns(event["ts"]), event
        last[key] = ns(event["ts"])
