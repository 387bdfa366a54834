"""`rpcinspect diff`: options, outputs, exit codes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runner import CAPTURES, CHAIN, Ran, rpcinspect, visible
from tests.decoded import decode
from tests.places import content, recorded
from tests.views.diff.test_json_lines import check_contract

LOCKED = CAPTURES / "ps_race_lock.pcap.gz"
RACE = CAPTURES / "ps_race.pcap.gz"
CROWD = CAPTURES / "ctx_crowd.pcap.gz"


def diff(*arguments: object, stdin: bytes = b"") -> Ran:
    return rpcinspect("diff", *arguments, stdin=stdin)


def verdict(ran: Ran) -> dict[str, Any]:
    check_contract(ran.objects)
    return ran.objects[-1]


def test_the_same() -> None:
    ran = diff(CHAIN, CHAIN)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == "the same: 24 messages of both runs"


def test_a_run_against_a_capture_without_messages(tmp_path: Path) -> None:
    none = tmp_path / "none.pcap"
    none.write_bytes(CHAIN.read_bytes()[:24])
    for files, lacks in (((CHAIN, none), "b"), ((none, CHAIN), "a")):
        ran = diff(*files)
        assert ran.code == 1
        assert ran.out.splitlines()[2:] == [f"different: {lacks} has no RPC messages"]
        assert f"{lacks}: No RPC messages: the capture holds no packets" in ran.err


def test_unrelated(tmp_path: Path) -> None:
    small = tmp_path / "small.pcap"
    for files in ((CHAIN, RACE), (RACE, CHAIN)):
        ran = diff(*files, "--shrink", small)
        assert ran.code == 1
        assert "unrelated: the two runs share no similar call" in ran.out.splitlines()
        assert "first difference" not in ran.out
        assert f"{small}: not written, since no part of either run shows where the two part" in ran.err
        assert not small.exists()
        told = verdict(diff("--format", "jsonl", *files))
        assert (told["same"], told["unrelated"], told["first"]) == (False, True, None)
        html = diff("--format", "html", *files)
        assert html.code == 1
        assert "<h1>Unrelated: the two runs share no similar call</h1>" in html.out
        assert "First difference:" not in html.out


def first_turn() -> dict[str, Any]:
    """The first message that the job with the lock sends and the other does not."""
    return next(
        message
        for message in decode(LOCKED).messages
        if message["body"].get("function") == "ps_race.take_turn"
    )


def test_different() -> None:
    index, who = first_turn()["index"], first_turn()["src"]
    ran = diff(LOCKED, RACE)
    assert (ran.code, ran.err) == (1, "")
    assert visible(ran.out)
    assert len(ran.out.splitlines()) <= 24
    assert f"first difference: a#{index}, {who} → worker0, PYTHON_CALL ps_race.take_turn" in ran.out
    assert f"likely missing-call: only in a, {who} sends ps_race.take_turn to worker0" in ran.out


def test_all_differences() -> None:
    ran = diff("--all", LOCKED, RACE)
    told = verdict(diff("--format", "jsonl", LOCKED, RACE))
    assert ran.code == 1
    assert ran.out.index("take_turn") < ran.out.index("first difference")
    blank = ran.out.splitlines().index("")
    assert blank == sum(told["counts"].values())


def test_json_lines() -> None:
    ran = diff("--format", "jsonl", LOCKED, RACE)
    told = verdict(ran)
    assert ran.code == 1
    assert told["same"] is False
    assert (told["first"]["a"], told["first"]["b"], told["first"]["code"]) == (
        first_turn()["index"],
        None,
        "missing",
    )
    lines = ran.objects[:-1]
    assert told["counts"] == {
        code: sum(line["code"] == code for line in lines) for code in {line["code"] for line in lines}
    }
    there, back = diff("--format", "jsonl", CHAIN, CHAIN), diff("--format", "jsonl", CHAIN, CHAIN)
    assert there.out == back.out
    assert verdict(there)["same"] is True


def test_one_page(tmp_path: Path) -> None:
    there = tmp_path / "diff.html"
    ran = diff("--format", "html", LOCKED, RACE, "-o", there)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"rpcinspect: wrote {there}, ")
    page = there.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    index, who = first_turn()["index"], first_turn()["src"]
    verdict_is = f"First difference: a#{index}, where {who} sends ps_race.take_turn to worker0"
    assert f"<h1>{verdict_is}</h1>" in page
    told = verdict(diff("--format", "jsonl", LOCKED, RACE))
    for code, count in told["counts"].items():
        row = re.search(rf"<tr><td>{code}</td><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td>", page)
        assert row is not None
        assert sum(int(n.replace(",", "")) for n in row.groups() if n != "–") == count
    ran = diff("--format", "html", CHAIN, CHAIN)
    assert (ran.code, ran.err) == (0, "")
    assert "<h1>The same: 24 messages of both runs</h1>" in ran.out


def test_two_contexts_of_one_run() -> None:
    ran = diff(CROWD, "--context", "0:1", "--context", "2", "--format", "jsonl")
    told = verdict(ran)
    assert ran.code == 1
    assert (told["a"]["context"], told["b"]["context"]) == (1, 2)
    assert told["first"]["code"] == "argument"
    same = diff(CROWD, "--context", "0:1", "--context", "0:1")
    assert (same.code, same.err) == (0, "")
    one = diff(CROWD, CROWD, "--context", "0:1", "--format", "jsonl")
    assert verdict(one)["a"]["context"] == verdict(one)["b"]["context"] == 1


def test_several_captures_of_one_run(tmp_path: Path) -> None:
    both = f"{CHAIN},{CAPTURES / 'param_detach.pcap'}"
    told = verdict(diff(both, both, "--format", "jsonl"))
    assert told["same"] is True
    assert len(told["a"]["paths"]) == 2
    odd = tmp_path / "a,b.pcap"
    odd.write_bytes(CHAIN.read_bytes())
    assert diff(odd, CHAIN).code == 0


def test_standard_input(tmp_path: Path) -> None:
    assert diff("-", RACE, stdin=content(RACE)).code == 0


def test_an_output_file(tmp_path: Path) -> None:
    there = tmp_path / "diff.jsonl"
    ran = diff(CHAIN, CHAIN, "--format", "jsonl", "-o", there)
    assert (ran.code, ran.out) == (0, "")
    assert there.read_text().count("\n") == 1
    input_ = tmp_path / "x.pcap"
    input_.write_bytes(CHAIN.read_bytes())
    ran = diff(input_, CHAIN, "-o", input_)
    assert ran.code == 2
    assert input_.read_bytes() == CHAIN.read_bytes()


def test_the_options_are_the_rules() -> None:
    old, new = (recorded(f"versions/torch-{v}.pcap") for v in ("1.8.1", "2.14.1"))
    assert diff(old, new).code == 1
    ran = diff(old, new, "--ignore", "device,latency", "--ignore", "profile-events")
    assert ran.code == 0
    assert "latency" not in ran.out
    assert diff(old, new, "--ignore", "device,latency,profile-events", "--strict").code == 1


def test_what_a_release_changed_is_counted_by_class() -> None:
    """Against what `decode` shows of them: target devices, a schema, an error."""
    captures = {v: recorded(f"versions/torch-{v}.pcap") for v in ("1.8.1", "1.13.1", "2.14.1")}
    heard = {version: decode(path).messages for version, path in captures.items()}
    told = verdict(diff(captures["1.8.1"], captures["2.14.1"], "--format", "jsonl"))
    tensors = [tensor for message in heard["1.8.1"] for tensor in message["tensors"]]
    assert {tensor["target_device"] for tensor in tensors} == {None}
    assert {t["target_device"] for message in heard["2.14.1"] for t in message["tensors"]} == {"cpu"}
    schemas = [
        [message["body"]["schema"] for message in heard[version] if message["body"].get("schema")]
        for version in captures
    ]
    assert schemas[0] != schemas[1] == schemas[2]
    control = sum(line["control"] for line in diff_lines(captures["1.8.1"], captures["2.14.1"]))
    assert {code: n for code, n in told["counts"].items() if code != "latency"} == {
        "device": len(tensors),
        "profile-events": 1,
        "form": len(schemas[0]),
        "argument": control,
    }
    texts = [
        [m["body"]["error"]["text"] for m in heard[version] if m["body"].get("error")] for version in captures
    ]
    assert texts[1] != texts[2]
    near = verdict(diff(captures["1.13.1"], captures["2.14.1"], "--format", "jsonl"))
    assert near["same"]
    assert near["counts"].keys() <= {"latency"}
    assert near["notes"] == [
        f"{len(texts[1])} error text differs only in what is not compared: paths (1), line numbers (1)"
    ]


def diff_lines(a: Path, b: Path) -> list[dict[str, Any]]:
    return diff(a, b, "--format", "jsonl").objects[:-1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((CHAIN,), "name a second run to compare with, or two contexts of this one"),
        ((CHAIN, CHAIN, CHAIN), "two runs can be compared"),
        ((CHAIN, CHAIN, "--ignore", "everything"), "--ignore everything: these can be ignored: device,"),
        ((CHAIN, CHAIN, "--rename", "x"), "--rename: not OLD=NEW"),
        ((CHAIN, CHAIN, "--rename", "x=worker0"), "--rename x=worker0: A has no worker x; it has worker0, "),
        ((CHAIN, CHAIN, "--rename", "worker0=y"), "--rename worker0=y: B has no worker y; it has worker0, "),
        ((CHAIN, CHAIN, "--rename", "x=z", "--rename", "y=z"), "--rename: not OLD=NEW"),
        ((CHAIN, CHAIN, "--rtol", "-1"), "--rtol -1: must be 0 or more, finite"),
        ((CHAIN, CHAIN, "--atol", "nan"), "--atol nan: must be 0 or more, finite"),
        ((CHAIN, CHAIN, "--context", "x"), "--context x: not a context id, such as 3 or 0:3"),
        ((CHAIN, CHAIN, *("--context", "0") * 3), "--context can be given twice"),
        ((CROWD, CROWD, "--context", "9:9"), "--context 9:9: there is no such context, but 0:0, 0:1"),
        (("-", "-"), "standard input can be read only once"),
    ],
)
def test_mistakes(arguments: tuple[object, ...], told: str) -> None:
    ran = diff(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"rpcinspect: {told}")
    assert ran.err.count("\n") == 1


def test_what_is_no_capture(tmp_path: Path) -> None:
    wrong = tmp_path / "x"
    wrong.write_bytes(b"no capture")
    assert diff(CHAIN, wrong).code == 3
    assert diff(wrong, CHAIN).code == 3
    assert diff(CHAIN, tmp_path / "absent").code == 3


def test_it_says_which_of_the_two_has_no_messages(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pcap"
    nothing.write_bytes(CHAIN.read_bytes()[:24])
    for arguments, labels in (((CHAIN, nothing), "b"), ((nothing, CHAIN), "a"), ((nothing, nothing), "ab")):
        ran = diff(*arguments)
        assert ran.code == (3 if labels == "ab" else 1)
        told = ran.err.splitlines()
        if labels == "ab":
            assert told.pop() == "rpcinspect: no RPC messages: there is nothing to compare"
            assert ran.out == ""
        assert [line[: len("rpcinspect: a: No RPC messages")] for line in told] == [
            f"rpcinspect: {label}: No RPC messages" for label in labels
        ]
