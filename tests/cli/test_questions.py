"""`rpcinspect graph`, `contexts`, `latency`, …: what is asked of the whole run, and in which forms."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.cli.members import Json, Messages, key_of, messages_of
from tests.cli.runner import CAPTURES, CHAIN, HIDDEN, Ran, ask, decode, rpcinspect
from tests.filter.from_json import picked
from tests.places import recorded

Lines: TypeAlias = list[Json]
Narrow: TypeAlias = Callable[[Lines, Messages, set[int]], Lines]

BOOM = CAPTURES / "bwd_boom.pcap.gz"
REINIT = CAPTURES / "reinit.pcap.gz"
RACE = CAPTURES / "ps_race.pcap.gz"
RREF = CAPTURES / "rref_relay.pcap.gz"
DEVICES = CAPTURES / "devmap_cpu.pcap.gz"
FAILED = recorded("torch-suite/DistAutogradTest.test_backward_node_failure.pcap.gz")
PROFILED = CAPTURES / "profiled_legacy.pcap"
QUESTIONS = (
    ("graph", "--context", "0:0"),
    ("contexts",),
    ("latency",),
    ("profile",),
    ("rrefs",),
    ("devices",),
    ("disconnects",),
    ("findings",),
)
BEST = {"profile": PROFILED, "rrefs": CAPTURES / "rref_relay.pcap.gz"}
"""Captures that have an answer, where it is not BOOM."""


@pytest.mark.parametrize("question", QUESTIONS)
def test_each_question_has_a_table_and_json_lines(question: tuple[str, ...], tmp_path: Path) -> None:
    path = BEST.get(question[0], BOOM)
    table = ask(question, path)
    assert (table.code, table.err) == (0, "")
    assert "worker0" in table.out
    told = ask(question, path, "--format", "jsonl")
    assert told.code == 0
    assert all("kind" in line for line in told.objects)
    ask(question, path, "-o", tmp_path / "out")
    assert (tmp_path / "out").read_text() == table.out


@pytest.mark.parametrize("question", QUESTIONS)
def test_standard_input_can_be_asked_too(question: tuple[str, ...]) -> None:
    assert ask(question, "-", stdin=CHAIN.read_bytes()).out == ask(question, CHAIN).out


def graph(*context: str) -> Ran:
    """One run about a context of BOOM."""
    return rpcinspect("graph", BOOM, *(f"--context={one}" for one in context))


def test_graphs_can_be_drawn() -> None:
    ran = rpcinspect("export", "dot", BOOM, "--context", "0")
    assert ran.code == 0
    assert ran.out.startswith("digraph")


def test_a_context_may_be_named_both_ways() -> None:
    assert graph("0").out == graph("0:0").out == graph().out


@pytest.mark.parametrize("wrong", ["9:9", "x", "-1", ""])
def test_of_an_unknown_context_the_known_ones_are_told(wrong: str) -> None:
    ran = graph(wrong)
    assert ran.code == 2
    assert "there is no such context; there is 0:0" in ran.err
    assert ran.out == ""


def test_an_id_that_several_jobs_have_shows_each() -> None:
    ran = rpcinspect("contexts", REINIT)
    ids = [line.split()[:2] for line in ran.out.splitlines()[1:]]
    if ran.out.startswith("job"):
        assert len({tuple(pair) for pair in ids}) == len(ids)
    assert ran.code == 0


def test_a_capture_without_messages_says_why() -> None:
    for question in (("contexts",), ("latency",)):
        ran = ask(question, HIDDEN)
        assert ran.code == 0
        assert "No RPC messages" in ran.err
    ran = rpcinspect("findings", HIDDEN)
    assert (ran.err, ran.out.count("invisible-transport")) == ("", 1)
    assert rpcinspect("graph", HIDDEN, "--context", "0").code == 2


def test_of_several_contexts_one_must_be_named() -> None:
    ran = rpcinspect("graph", RACE)
    assert (ran.code, ran.out) == (2, "")
    assert re.search(r"choose one with --context: there (is|are) \d+:\d+", ran.err)


def test_findings_stand_as_below_the_table() -> None:
    foot = decode(BOOM).out
    assert rpcinspect("findings", BOOM).out in foot
    assert rpcinspect("findings", CHAIN).out == "no findings\n"
    lines = [line for line in decode(BOOM, "--format", "jsonl").objects if line["kind"] == "finding"]
    assert rpcinspect("findings", BOOM, "--format", "jsonl").objects == lines != []


# --- filters ------------------------------------------------------------------------------------------------

TEXTS = ("error", "type == BACKWARD_AUTOGRAD_REQ", "src == worker1 and not request", "index < 30", "src == x")
ASKED = [
    *((path, ("graph", "--context", "0:0")) for path in (BOOM, CHAIN, RREF)),
    *((path, ("contexts",)) for path in (BOOM, RACE)),
    *((path, ("latency",)) for path in (BOOM, RACE, RREF)),
    (PROFILED, ("profile",)),
    *((path, ("rrefs",)) for path in (RACE, RREF)),
    *((path, ("devices",)) for path in (BOOM, DEVICES)),
    *((path, ("disconnects",)) for path in (BOOM, FAILED)),
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    ("path", "question"), ASKED, ids=[f"{path.name.partition('.')[0]} {name[0]}" for path, name in ASKED]
)
def test_an_answer_is_narrowed_to_what_matching_messages_take_part_in(
    path: Path, question: tuple[str, ...], text: str
) -> None:
    messages, matching = messages_of(path), set(picked(text, path))
    whole = whole_answer(path, *question)
    ran = ask(question, path, "--format", "jsonl", "-f", text)
    assert ran.code == 0, ran.err
    *lines, told = ran.objects
    assert lines == NARROWED[question[0]](whole, messages, matching)
    assert (told["kind"], told["filter"], told["matched"]) == ("filter", text, len(matching))
    ((noun, some),) = told["shown"].items()
    ((same, of),) = told["of"].items()
    assert noun == same
    assert some == counted(question[0], lines, messages, matching)
    assert of == counted(question[0], whole, messages, {m["index"] for m in messages.lines})


@lru_cache(maxsize=len(ASKED))
def whole_answer(path: Path, *question: str) -> Lines:
    """Without a filter."""
    return ask(question, path, "--format", "jsonl").objects


def counted(question: str, lines: Lines, messages: Messages, among: set[int]) -> int:
    """How many things an answer tells of; of messages those among some."""
    if question == "graph":
        return len(messages.parts("context")[key_of(lines[0])] & among)
    if question == "disconnects":
        return lines[-1]["open_pipes"] + sum(len(line.get("pipes", ())) for line in lines)
    kind = {"latency": "exchange", "devices": "device_map"}.get(question, question.rstrip("s"))
    return sum(line["kind"] == kind for line in lines)


def _of_exchanges(lines: Lines, messages: Messages, matching: set[int]) -> Lines:
    return [line for line in lines if messages.exchange(line["request"]) & matching]


def _latency(lines: Lines, messages: Messages, matching: set[int]) -> Lines:
    exchanges = _of_exchanges([line for line in lines if line["kind"] == "exchange"], messages, matching)
    stragglers = [line for line in lines if line["kind"] == "straggler"]
    users = [line for line in exchanges if not line["control"]]
    groups = [
        *_groups("function", users, lambda line: (line["job"], line["what"], None, None)),
        *_groups("pair", users, lambda line: (line["job"], None, line["caller"], line["callee"])),
    ]
    return [*exchanges, *groups, *_of_exchanges(stragglers, messages, matching)]


def _groups(by: str, exchanges: Lines, key: Callable[[Json], tuple[Any, ...]]) -> Lines:
    groups: dict[tuple[Any, ...], Lines] = defaultdict(list)
    for line in exchanges:
        groups[key(line)].append(line)
    found = [
        (-sum(line["total_ns"] or 0 for line in its), _group(by, which, its)) for which, its in groups.items()
    ]
    return [group for _, group in sorted(found, key=lambda item: item[0])]


def _group(by: str, which: tuple[Any, ...], its: Lines) -> Json:
    answered = [line for line in its if line["total_ns"] is not None]
    return {
        "kind": "latency",
        "by": by,
        **dict(zip(("job", "what", "caller", "callee"), which, strict=True)),
        "count": len(its),
        "answered": len(answered),
        "failed": sum(line["failed"] for line in its),
        "given_up": 0,  # no packet tells that
        "total_ns": _ranks([line["total_ns"] for line in answered]),
        "own_ns": _ranks([line["busy_ns"] - line["nested_ns"] for line in answered]),
        "nested_ns": sum(line["nested_ns"] or 0 for line in its),
        "wire_ns": sum(line["request_ns"] + (line["answer_ns"] or 0) for line in its),
        "request_bytes": sum(line["request_bytes"] for line in its),
        "answer_bytes": sum(line["answer_bytes"] for line in its),
    }


def _ranks(numbers: list[int]) -> Json | None:
    """Nearest ranks."""
    if not numbers:
        return None
    ordered = sorted(numbers)
    ranks = {f"p{p}": ordered[math.ceil(len(ordered) * p / 100) - 1] for p in (50, 90, 99)}
    return {**ranks, "max": ordered[-1]}


def _profile(lines: Lines, messages: Messages, matching: set[int]) -> Lines:
    profiles = _of_exchanges([line for line in lines if line["kind"] == "profile"], messages, matching)
    runs = [(line["job"], run["name"], run["node_id"], run) for line in profiles for run in line["runs"]]
    rows = []
    for key in dict.fromkeys((job, name, node) for job, name, node, _ in runs):
        its = [run for *of, run in runs if tuple(of) == key]
        sums = {
            name: sum(run[name] for run in its) for name in ("self_ns", "total_ns", "memory", "self_memory")
        }
        named = dict(zip(("job", "name", "node_id"), key, strict=True))
        rows.append({"kind": "profile_row", **named, "calls": len(its), **sums, "async": its[0]["async"]})
    return [*profiles, *rows]


def _graph(lines: Lines, messages: Messages, matching: set[int]) -> Lines:
    context, *others = lines
    edges = []
    for edge in context["edges"]:
        gradients = set().union(*(messages.exchange(index) for index in edge["backward"]))
        if ({edge["forward"]} | gradients) & matching:
            edges.append(edge)
    kept = [{**context, "edges": edges}]
    for line in others:
        if line["kind"] == "passing":
            its = {line["message"]}
        else:
            its = set() if line["request"] is None else messages.exchange(line["request"])
        if its & matching:
            kept.append(line)
    return kept


def _closings(lines: Lines, messages: Messages, matching: set[int]) -> Lines:
    *departures, last = lines
    pipes, kept = messages.pipes(matching), []
    for line in departures:
        its = [pipe for pipe in line["pipes"] if pipe["pipe"] in pipes]
        if its:
            served = [pipe for pipe in its if pipe["server"] == line["worker"]]
            own = [pipe for pipe in its if pipe["client"] == line["worker"]]
            changed = {
                "reset": sum(pipe["how"] == "reset" for pipe in its),
                "unanswered": sorted(index for pipe in served for index in pipe["in_flight"]),
                "waiting": sorted(index for pipe in own for index in pipe["in_flight"]),
                "pipes": its,
            }
            kept.append({**line, **changed})
    ended = sum(len(line["pipes"]) for line in kept)
    return [*kept, {**last, "open_pipes": len(pipes) - ended}]


def _members(kind: str) -> Narrow:
    def narrow(lines: Lines, messages: Messages, matching: set[int]) -> Lines:
        parts = messages.parts(kind)
        return [line for line in lines if parts[key_of(line)] & matching]

    return narrow


def _device_maps(lines: Lines, messages: Messages, matching: set[int]) -> Lines:
    used = messages.device_maps(matching)
    return [line for line in lines if (line["caller"], line["callee"]) in used]


NARROWED: dict[str, Narrow] = {
    "graph": _graph,
    "contexts": _members("context"),
    "latency": _latency,
    "profile": _profile,
    "rrefs": _members("rref"),
    "devices": _device_maps,
    "disconnects": _closings,
}
"""What is left of the lines of an answer, worked out from the lines of messages."""


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_table_says_how_much_it_shows(question: tuple[str, ...], tmp_path: Path) -> None:
    path = BEST.get(question[0], BOOM)
    whole = ask(question, path, "-f", "id or not id").out.splitlines()
    assert re.fullmatch(r"shown: (\d+) of \1 .+, those .+ match id or not id", whole[-1])
    if question[0] != "graph":  # which says less of critical paths
        assert whole[:-2] == ask(question, path).out.splitlines()
    none = ask(question, path, "-f", "src == nobody")
    assert none.code == 0
    assert re.fullmatch(r"shown: 0 of \d+ .+, those .+ match src == nobody", none.out.splitlines()[-1])
    if question[0] != "graph":
        assert len(none.out.splitlines()) == 1
    ask(question, path, "-f", "src == nobody", "-o", tmp_path / "out")
    assert (tmp_path / "out").read_text() == none.out


def test_a_graph_shows_the_messages_that_match() -> None:
    ran = rpcinspect("graph", CHAIN, "--context", "0:0", "-f", "type == BACKWARD_AUTOGRAD_REQ")
    shown = [int(found) for found in re.findall(r"  #(\d+)  gradient of", ran.out)]
    assert shown == picked("type == BACKWARD_AUTOGRAD_REQ", CHAIN) != []
    assert "gradients for 4 of 4" in ran.out
    assert f"shown: {len(shown)} of " in ran.out
    answers = "type == BACKWARD_AUTOGRAD_RESP"
    told = [
        line
        for line in rpcinspect("graph", CHAIN, "--context", "0:0", "-f", answers).out.splitlines()
        if "returns" in line
    ]
    assert len(told) == len(picked(answers, CHAIN)) == 4


def test_a_drawing_has_the_arrows_of_messages_that_match() -> None:
    text = "type == BACKWARD_AUTOGRAD_REQ"
    out = rpcinspect("export", "dot", CHAIN, "--context", "0:0", "-f", text).out
    lines = out.splitlines()
    assert sum("style=dashed" in line for line in lines) == len(picked(text, CHAIN)) == 4
    assert sum("->" in line for line in lines) == 4
    assert "4 of 8 arrows, those with messages that match" in out
    assert "shown" not in rpcinspect("export", "dot", CHAIN, "--context", "0:0").out


def test_filters_of_drawings_are_harmless() -> None:
    text = 'src ~ "\\"};<b>--" or type == BACKWARD_AUTOGRAD_REQ'
    dot = rpcinspect("export", "dot", CHAIN, "--context", "0:0", "-f", text).out
    (note,) = [line for line in dot.splitlines() if line.startswith("  label=")]
    assert note.endswith('";')
    assert '"' not in note[len('  label="') : -2].replace("\\\\", "").replace('\\"', "")


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_document_has_what_the_lines_say_of_the_filter(question: tuple[str, ...]) -> None:
    told = [ask(question, BOOM, "--format", form, "-f", "error") for form in ("jsonl", "json")]
    assert json.loads(told[1].out)["filter"] == told[0].objects[-1]


def test_who_left_first_is_told_whatever_is_shown() -> None:
    told = [
        rpcinspect("disconnects", FAILED, "--format", "jsonl", "-f", t).objects[-2]["first"] for t in TEXTS
    ]
    assert set(told) == {"worker1"}


def test_a_question_to_standard_input_may_ask_what_the_end_tells() -> None:
    ran = rpcinspect("latency", "-", "-f", "finding", stdin=BOOM.read_bytes())
    assert ran.code == 0
    assert "those with messages that match finding" in ran.out


def test_an_unknown_context_is_none_with_a_filter_too() -> None:
    ran = rpcinspect("graph", BOOM, "--context", "9:9", "-f", "src == nobody")
    assert ran.code == 2
    assert "there is no such context; there is 0:0" in ran.err


def test_times_count_from_the_first_packet_where_there_is_no_message() -> None:
    lines = rpcinspect("disconnects", HIDDEN).out.splitlines()[1:3]
    (capture,) = (line for line in decode(HIDDEN, "--format", "jsonl").objects if line["kind"] == "capture")
    took = (capture["last_time_ns"] - capture["first_time_ns"]) / 1e9
    assert all(0 < float(line.split()[0]) <= took for line in lines)
