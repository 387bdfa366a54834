"""A recorded run: what `decode` says of its messages beside what its workers wrote down.

In: the folder of a run. Out: `Joined`, with the request that each logged call was made to serve. What a
message carries and times tell which call it is: a request comes after the `begin_ns` of its call, its answer
before `end_ns`. Where that leaves a choice, no message of the choice is used; `unjoined` counts them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 120
CLOCK_NS = 1000
"""Captures count microseconds, cut off; the workers nanoseconds, on the same clock."""
FETCHES = ("PYTHON_RREF_FETCH_CALL", "SCRIPT_RREF_FETCH_CALL")
_RREF = re.compile(r"RRef\((\d+):(\d+) fork")
_FORK = re.compile(r"RRef\(\d+:\d+ fork (\d+):(\d+)")


@dataclass
class Joined:
    """A run whose calls are known."""

    folder: Path
    messages: list[Json]
    parents: dict[int, int | None] = field(default_factory=dict)
    """The request that a message was sent to serve, for messages of which that is known; None: the program's
    own."""
    labels: dict[str, int] = field(default_factory=dict)
    """The message of each call that has a name."""
    changed: str | None = None
    """The name of the call that is changed or left out in this run."""
    unjoined: Counter[str] = field(default_factory=Counter)
    """Calls and runs that were logged and whose message isn't known, by function."""

    @property
    def capture(self) -> Path:
        return capture_in(self.folder)


def capture_in(folder: Path) -> Path:
    """The recording of a run."""
    return next(path for path in sorted(folder.iterdir()) if path.name.startswith("capture."))


def command(*arguments: object) -> list[Json]:
    """Run `rpcinspect` and read its lines."""
    done = subprocess.run(
        [sys.executable, "-m", "rpcinspect", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{arguments[0]} ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def joined(folder: Path) -> Joined:
    """Decode a run and join it with its truth."""
    lines = command("decode", "--format", "jsonl", capture_in(folder))
    run = Joined(folder, [line for line in lines if line["kind"] == "message"])
    join(run, truth(folder))
    return run


def truth(folder: Path) -> list[Json]:
    """All that the workers of a run wrote down."""
    files = sorted(folder.glob("truth-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def join(run: Joined, events: Sequence[Json]) -> None:
    """Fill in what the events tell of the messages."""
    requests = [m for m in run.messages if m["request"] and not m["control"]]
    answers = {m["answers"]: m for m in run.messages if m["answers"] is not None}
    answered = {(e["worker"], e["call"]): e["end_ns"] for e in events if e["event"] == "answered"}
    ran = {(e["worker"], e["run"]): e for e in events if e["event"] == "ran"}
    calls = [e for e in events if e["event"] == "call"]
    runs = [e for e in events if e["event"] == "run"]

    def fits_call(event: Json, message: Json) -> bool:
        end, answer = answered.get((event["worker"], event["call"])), answers.get(message["index"])
        early = message["time_ns"] + CLOCK_NS < event["begin_ns"]
        late = end is not None and (answer or message)["time_ns"] > end
        return not (early or late)

    def fits_run(event: Json, message: Json) -> bool:
        end, answer = ran.get((event["worker"], event["run"])), answers.get(message["index"])
        early = event["begin_ns"] < message["end_time_ns"]
        late = end is not None and answer is not None and answer["end_time_ns"] + CLOCK_NS < end["end_ns"]
        return not (early or late) and all(fork in _found(_FORK, message) for fork in event["forks"])

    of_call = matched(calls, requests, call_key, message_key, fits_call)
    of_run = matched(runs, requests, lambda e: call_key(e)[1:], lambda m: message_key(m)[1:], fits_run)
    served = {(runs[n]["worker"], runs[n]["run"]): m for n, m in of_run.items()}
    for n, event in enumerate(calls):
        key = (event["worker"], event["serving"])
        if n not in of_call:
            run.unjoined[event["function"]] += 1
            continue
        index = of_call[n]
        if event["label"] is not None:
            run.labels[event["label"]] = index
        if event["serving"] is None:
            run.parents[index] = None
        elif key in served:
            run.parents[index] = served[key]
        else:
            run.unjoined[f"request for {event['function']}"] += 1
    _follow(run, requests, [e for e in events if e["event"] == "follows"])
    for event in events:
        if event["event"] in ("changed", "dropped"):
            run.changed = event["label"]


def _follow(run: Joined, requests: Sequence[Json], events: Iterable[Json]) -> None:
    """Calls that no wrapper saw; what they carry is theirs alone."""
    sent, got = defaultdict(list), defaultdict(list)
    for message in requests:
        key = message_key(message)
        sent[key[0], key[2], key[3]].append(message["index"])
        got[key[1], key[2], key[3]].append(message["index"])
    for event in events:
        served = event["served"]
        made = sent[event["by"], event["function"], tuple(sorted(event["tensors"]))]
        asked = got[event["by"], served["function"], tuple(sorted(served["tensors"]))]
        if len(made) == len(asked) == 1:
            run.parents[made[0]] = asked[0]


# --- which message is which call ----------------------------------------------------------------------------


def call_key(event: Json) -> tuple[Any, ...]:
    """From, to, function, tensors and RRefs of a logged call; of a run without who called."""
    if event["event"] == "run":
        ends = (None, event["worker"])
    else:
        ends = (event["worker"], event["to"])
    return (*ends, event["function"], tuple(sorted(event["tensors"])), _ids(event["rrefs"]))


def message_key(message: Json) -> tuple[Any, ...]:
    """The same of a message."""
    body = message["body"]
    if body["type"] in FETCHES:
        function, tensors, rrefs = "to_here", (), [body["rref_id"]]
    else:
        function = body.get("function", body["type"])
        tensors = tuple(sorted(t["sha256"] for t in message["tensors"] if t["sha256"]))
        rrefs = _found(_RREF, message)
    return message["src"], message["dst"], function, tensors, _ids(rrefs)


def _ids(ids: Iterable[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(sorted(tuple(one) for one in ids))


def brought(message: Json) -> set[tuple[int, int]]:
    """The RRefs that a message hands to the worker that gets it."""
    body = message["body"]
    text = json.dumps([body.get("args"), body.get("kwargs"), body.get("value")])
    return {(int(a), int(b)) for a, b in _RREF.findall(text)}


def _found(pattern: re.Pattern[str], message: Json) -> list[list[int]]:
    body = message["body"]
    text = json.dumps([body.get("args", []), body.get("kwargs", {})])
    return [[int(a), int(b)] for a, b in pattern.findall(text)]


def matched(
    events: Sequence[Json],
    messages: Sequence[Json],
    key_of_event: Callable[[Json], Hashable],
    key_of_message: Callable[[Json], Hashable],
    fits: Callable[[Json, Json], bool],
) -> dict[int, int]:
    """Place of an event → index of its message, where no other choice leaves each event a message."""
    by_key: dict[Hashable, list[Json]] = defaultdict(list)
    for message in messages:
        by_key[key_of_message(message)].append(message)
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for n, event in enumerate(events):
        groups[key_of_event(event)].append(n)
    found: dict[int, int] = {}
    for key, places in groups.items():
        choices = {n: [m["index"] for m in by_key[key] if fits(events[n], m)] for n in places}
        found |= forced(choices)
    return found


def forced(choices: dict[int, list[int]]) -> dict[int, int]:
    """The pairs that are in every way to give each its own; nothing if there is no way."""
    chosen = _assign(choices, {})
    if chosen is None:
        return {}
    return {
        one: other
        for one, other in chosen.items()
        if len(choices[one]) == 1
        or _assign({**choices, one: [c for c in choices[one] if c != other]}, {}) is None
    }


def _assign(choices: dict[int, list[int]], taken: dict[int, int]) -> dict[int, int] | None:
    """Some way to give each its own (augmenting paths); `taken` is by whom."""

    def give(one: int, seen: set[int]) -> bool:
        for other in choices[one]:
            if other not in seen:
                seen.add(other)
                if other not in taken or give(taken[other], seen):
                    taken[other] = one
                    return True
        return False

    if not all(give(one, set()) for one in choices):
        return None
    return {one: other for other, one in taken.items()}
