"""The bundled captures: every workload has its script, its capture and a truth that can be read."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.places import CAPTURES, RECORDINGS, content, workloads

FORBIDDEN = [b"/root/", b"/home/"]
MAX_FILE = 150_000
MAX_RECORDING = 1_000_000
MAX_ALL = 12_000_000


def load_record() -> ModuleType:
    """captures/ is no package: its scripts run from a folder of their own."""
    spec = importlib.util.spec_from_file_location("record", CAPTURES / "record.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WORKLOADS: dict[str, tuple[str, tuple[str, ...]]] = load_record().WORKLOADS


def capture_of(name: str) -> Path:
    found = [path for path in (CAPTURES / f"{name}.pcap", CAPTURES / f"{name}.pcap.gz") if path.exists()]
    assert len(found) == 1, f"{name} has {len(found)} captures"
    return found[0]


def truth_of(name: str) -> list[dict[str, object]]:
    lines = (CAPTURES / f"{name}.truth").read_text().splitlines()
    assert all(line.startswith("TRUTH ") for line in lines)
    return [json.loads(line.removeprefix("TRUTH ")) for line in lines]


def below(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((CAPTURES / folder).rglob("*")) if path.is_file()]


def truths() -> list[Path]:
    found = sorted(CAPTURES.rglob("*.truth"))
    return [path for path in found if path.relative_to(CAPTURES).parts[0] not in RECORDINGS]


def world_of(script: str) -> int:
    found = re.search(r"^WORLD = (\d+)$", (CAPTURES / script).read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_all_workloads_are_there() -> None:
    stems = [
        "basic_chain",
        "profiled_legacy",
        "param_detach",
        "dtype_zoo",
        "views_alias",
        "ctx_crowd",
        "rref_relay",
        "bwd_boom",
        "ps_race",
        "devmap_cpu",
        "transport_matrix",
        "reinit",
        "draws",
        "training",
        "faults",
        "costs",
        "killed",
        "vault",
    ]
    assert {script for script, _ in WORKLOADS.values()} == {f"{stem}.py" for stem in stems}


def test_nothing_else_lies_about() -> None:
    files = [*workloads(), *truths()]
    assert {str(path.relative_to(CAPTURES)).split(".")[0] for path in files} == set(WORKLOADS)


@pytest.mark.parametrize("script", sorted({script for script, _ in WORKLOADS.values()}))
def test_script_parses_and_says_what_it_is(script: str) -> None:
    assert (ast.get_docstring(ast.parse((CAPTURES / script).read_text())) or "").startswith(
        ("D", "Not one of the D")
    )


@pytest.mark.parametrize("name", WORKLOADS)
def test_capture_is_an_ethernet_pcap_without_this_machine(name: str) -> None:
    capture = content(f"{name}.pcap")
    assert capture[:4] == bytes.fromhex("d4c3b2a1")  # little-endian, microseconds
    assert capture[20:24] == b"\x01\x00\x00\x00"  # Ethernet
    truth = (CAPTURES / f"{name}.truth").read_bytes()
    assert [word for word in FORBIDDEN if word in capture or word in truth] == []


ENDS = ("shutdown", "refused", "left", "killed")


@pytest.mark.parametrize("name", WORKLOADS)
def test_truth_is_complete(name: str) -> None:
    events = truth_of(name)
    script, _ = WORKLOADS[name]
    workers = sorted({str(event["worker"]) for event in events})
    assert len(workers) == world_of(script)
    for worker in workers:
        own = [event for event in events if event["worker"] == worker]
        assert [event["n"] for event in own] == list(range(len(own)))
        ends = [event["event"] for event in own if event["event"] in ENDS]
        assert ends, f"{worker} never came to its end"


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_call_has_its_answer_and_every_tensor_its_hash(name: str) -> None:
    calls: dict[tuple[object, object], list[object]] = {}
    for event in truth_of(name):
        if event["event"] in ("call", "answer"):
            calls.setdefault((event["worker"], event["call"]), []).append(event["event"])
        for tensor in event.get("tensors", []):  # type: ignore[attr-defined]
            assert "sha256" in tensor or "parts" in tensor or tensor["device"] == "meta"
    assert all(pair == ["call", "answer"] for pair in calls.values())


def test_sizes_are_bounded() -> None:
    """Whoever clones the project gets all of them."""
    assert [path for path in [*workloads(), *truths()] if path.stat().st_size > MAX_FILE] == []
    assert [path for path in below(".") if path.stat().st_size > MAX_RECORDING] == []
    assert sum(path.stat().st_size for path in below(".")) <= MAX_ALL
