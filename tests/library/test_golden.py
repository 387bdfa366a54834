"""Recordings that are kept, against logs of the bundled pairs of runs; the runs themselves are the truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.equality.rules import Rules
from rpcinspect.errors import CaptureError
from rpcinspect.library.golden import Golden
from tests.logs import convert, log_of, message
from tests.places import ROOT

PAIRS = ROOT / "captures" / "pairs"


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, Path]:
    found = {}
    for name in ("base", "again", "function", "call_added"):
        found[name] = tmp_path / f"{name}.rpclog"
        found[name].write_bytes(convert(PAIRS / f"{name}.pcap.gz"))
    return found


def golden(folder: Path, **options: object) -> Golden:
    return Golden(path=folder / "kept" / "x.rpclog", name="kept/x.rpclog", **options)  # type: ignore[arg-type]


def test_modes(logs: dict[str, Path], tmp_path: Path) -> None:
    again, function, added = logs["again"], logs["function"], logs["call_added"]
    assert golden(tmp_path).lacking
    once = golden(tmp_path, mode="once")
    assert not once.lacking
    assert once.settle(logs["base"]).what == "recorded"
    first = once.path.read_bytes()
    assert not golden(tmp_path).lacking

    assert golden(tmp_path).settle(again).what == "same"
    for mode in ("none", "once", "new_episodes"):
        told = golden(tmp_path, mode=mode).settle(function)
        assert told.what == "different"
        assert told.lines[0].startswith("different: ")
        assert told.lines[1].startswith("a  kept/x.rpclog: 182 messages between worker0, worker1, worker2")
        assert told.lines[2].startswith("b  this run: 182 messages")
        assert any(line.startswith("first difference: ") for line in told.lines)
    assert once.settle(added).what == "different"
    assert once.path.read_bytes() == first

    assert golden(tmp_path, mode="new_episodes").settle(added).what == "extended"
    assert golden(tmp_path).settle(added).what == "same"
    assert golden(tmp_path, mode="new_episodes").settle(again).what == "different"  # lacks a kept call
    extended = once.path.read_bytes()
    assert golden(tmp_path, update=True).settle(added).what == "same"
    assert once.path.read_bytes() == extended
    assert golden(tmp_path, update=True).settle(function).what == "updated"
    assert golden(tmp_path).settle(function).what == "same"

    assert golden(tmp_path, mode="all").settle(again).what == "recorded"
    golden(tmp_path, mode="all").begin()
    assert once.path.exists()
    rewrite = golden(tmp_path, mode="rewrite")
    rewrite.begin()
    assert not once.path.exists()
    assert rewrite.settle(again).what == "recorded"
    assert [path.name for path in once.path.parent.iterdir()] == ["x.rpclog"]


@pytest.mark.parametrize("tensors", ["none", "small"])
def test_hashes_tell_what_the_bytes_tell(logs: dict[str, Path], tmp_path: Path, tensors: str) -> None:
    whole = golden(tmp_path / "whole", mode="once", tensors="all")
    short = golden(tmp_path / "short", mode="once", tensors=tensors)
    for kept in (whole, short):
        copy = tmp_path / "base_again.rpclog"
        copy.write_bytes(logs["base"].read_bytes())
        assert kept.settle(copy).what == "recorded"
    assert (short.path.stat().st_size < whole.path.stat().st_size) == (tensors == "none")
    assert short.settle(logs["again"]).what == "same"
    expected, found = (kept.settle(logs["function"]).lines for kept in (whole, short))
    assert found[:4] == expected[:4]  # verdict, both sides
    assert [line for line in found if line.startswith(("first difference", "likely"))] == [
        line for line in expected if line.startswith(("first difference", "likely"))
    ]


@pytest.mark.parametrize("tensors", ["none", "all"])
def test_another_release_of_torch(tmp_path: Path, tensors: str) -> None:
    """One job under both, which says the same."""
    kept = golden(tmp_path, mode="once", tensors=tensors)
    for release, what in (("1.13.1", "recorded"), ("2.14.1", "same")):
        log = tmp_path / f"{release}.rpclog"
        log.write_bytes(convert(PAIRS.parent / "versions" / f"torch-{release}.pcap.gz"))
        assert kept.settle(log).what == what


def test_a_tolerance_needs_the_bytes(logs: dict[str, Path], tmp_path: Path) -> None:
    rules = Rules(rtol=1e6, atol=1e6)
    (tmp_path / "base2.rpclog").write_bytes(logs["base"].read_bytes())
    (tmp_path / "function2.rpclog").write_bytes(logs["function"].read_bytes())
    whole = golden(tmp_path / "whole", mode="once", tensors="all", rules=rules)
    whole.settle(logs["base"])
    assert whole.settle(logs["function"]).what == "same"
    short = golden(tmp_path / "short", mode="once", tensors="none", rules=rules)
    short.settle(tmp_path / "base2.rpclog")
    told = short.settle(tmp_path / "function2.rpclog")
    assert told.what == "different"
    assert any("can't tell whether the rules allow the difference" in line for line in told.lines)
    assert short.diff_options() == ["--rtol=1000000.0", "--atol=1000000.0"]
    others = Rules(by_dtype=True, ignore=frozenset({"form", "error"}))
    assert golden(tmp_path, rules=others).diff_options() == ["--ignore=error,form", "--tolerance"]


def test_nothing_without_messages_is_kept(tmp_path: Path) -> None:
    empty = tmp_path / "empty.rpclog"
    empty.write_bytes(log_of())
    with pytest.raises(CaptureError):
        golden(tmp_path, mode="all").settle(empty)
    assert not golden(tmp_path).path.exists()


HOSTILE = "\x1b[31m\u202e\x00'\"\n]]>::error::" + "x" * 3000


def test_captured_text_is_inert_and_short(tmp_path: Path) -> None:
    def logged(name: str, value: bytes) -> Path:
        call = b"\x00\x80\x02ctorch.distributed.rpc.internal\nPythonUDF\nctrain\nscale\nX%b%b\x85}\x87\x81."
        path = tmp_path / name
        payload = call % (len(value).to_bytes(4, "little"), value)
        path.write_bytes(
            log_of(message(HOSTILE, "w\n1", "PYTHON_CALL", payload, table=0), message("w\n1", HOSTILE))
        )
        return path

    kept = golden(tmp_path, mode="once")
    kept.settle(logged("a.rpclog", HOSTILE.encode()))
    told = kept.settle(logged("b.rpclog", (HOSTILE + "y" * (1 << 20)).encode()))
    assert told.what == "different"
    assert all(line.isprintable() for line in told.lines)
    assert sum(map(len, told.lines)) < 10_000
