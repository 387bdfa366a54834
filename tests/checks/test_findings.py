"""Over every capture there is: the findings that its run provokes, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rpcinspect.cli.decode import DecodeCommand
from tests.checks.code_captures import CAUSED, recorded
from tests.checks.talks import of_path
from tests.contract import CODES
from tests.places import ROOT, others, workloads
from tests.truth import CAPTURES

SEVERITIES = ["error", "warning", "info"]
"""In the order in which findings are told."""
SHM = {"invisible-transport"}
ALONE = {"failed-init"}
FAILS = {"error-response"}
PROVOKED: dict[str, set[str]] = {
    # PyTorch's own tests
    "DistAutogradTest.test_backward_node_failure": {
        "unanswered-request"
    },  # calls workers until they are gone
    "DistAutogradTest.test_error_in_context": {"error-response", "dangling-send"},  # shapes that don't fit
    "DistAutogradTest.test_multiple_backward_with_errors": FAILS,  # a backward function that raises
    "DistOptimizerTest.test_dist_optim_exception": FAILS,  # an optimizer that raises
    "DistOptimizerTest.test_dist_optim_exception_on_constructor": FAILS,
    # calls that raise, to see how errors travel
    "kitchen": FAILS,
    "script": FAILS,
    "script_hang": FAILS,
    "torch-1.8.1": FAILS,
    "torch-1.13.1": FAILS,
    "torch-2.1.2": FAILS,
    "torch-2.14.1": FAILS,
    # everything goes through shared memory
    "chan_default": SHM,
    "chan_shm": SHM,
    "two": SHM,
    "rnn_default_shm": SHM,
    "transport_matrix_default": SHM,
    # bundled workloads (captures/README.md)
    "devmap_cpu_refused": ALONE,  # a device map that names nobody
    "devmap_cpu_refused_cuda": ALONE,
    "bwd_boom": {"error-response", "missing-gradient"},
    "dtype_zoo": FAILS,
    "ps_race": FAILS,
    "faults/dies": {"unanswered-request"},
    "faults/unfit": {"error-response", "device-map-missing", "unsafe-pickle"},
    "faults/unused_result": {"missing-gradient", "unanswered-request"},
    "faults/second_pass": {"missing-gradient", "unanswered-request"},
    "redaction/vault": {"error-response", "unsafe-pickle"},
    "logs/killed": {"error-response", "unanswered-request"},
    "pairs/error": FAILS,
    "pairs/error_nested": {"error-response", "dangling-send"},
}
"""Capture → the codes of severity error that its job provokes on purpose. All others have none."""

BUNDLED = workloads()


def check(path: Path, name: str) -> None:
    session, found = of_path(str(path))
    assert {f.code for f in found if f.severity == "error"} == PROVOKED.get(name, set())
    assert [f.text for f in found if f.code == "unexpected-envelope"] == []
    if path.parent.name == "torch-suite":  # no two of its trainers share a module
        assert {f.code for f in found}.isdisjoint({"stale-gradient", "optimizer-without-gradients"})
    assert [f.severity for f in found] == sorted((f.severity for f in found), key=SEVERITIES.index)
    for finding in found:
        assert finding.severity in CODES[finding.code]
        assert finding.text.endswith(".")
        assert finding.remedy is not None
        assert list(finding.messages) == sorted(set(finding.messages))
        assert all(0 <= index < session.totals.messages for index in finding.messages)
        capture_only = finding.code in ("invisible-transport", "capture-gap", "truncated-packets", "no-rpc")
        assert finding.workers or capture_only
        assert finding.messages or capture_only or finding.code in ("failed-init", "startup-skew")


def bare(path: str) -> str:
    return path.removesuffix(".zst").removesuffix(".gz").removesuffix(".pcap")


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: bare(path.relative_to(CAPTURES).as_posix()))
def test_bundled_captures(path: Path) -> None:
    check(path, bare(path.relative_to(CAPTURES).as_posix()))


@pytest.mark.parametrize("path", others(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_other_captures(path: Path) -> None:
    check(path, bare(path.name))


def test_every_fault_of_a_bundled_job_is_told() -> None:
    """By the jobs' own words: a fault line for each finding."""
    for path in sorted((CAPTURES / "faults").glob("*.truth")):
        lines = [json.loads(line.removeprefix("TRUTH ")) for line in path.read_text().splitlines()]
        faults = {line["code"] for line in lines if line["event"] == "fault"}
        faults |= {"lost-edge" for line in lines if line.get("note") == "no backward"}
        _, found = of_path(str(path.with_suffix(".pcap.gz")))
        assert faults <= {finding.code for finding in found}
        assert faults or found == []
        if path.stem == "tidy":
            assert {finding.code for finding in found} == faults


@pytest.mark.parametrize(("name", "code"), [("faults/dies", 1), ("faults/leaks", 0), ("faults/tidy", 0)])
def test_check_fails_on_errors_only(name: str, code: int, tmp_path: Path) -> None:
    command = DecodeCommand(files=[str(CAPTURES / f"{name}.pcap.gz")], check=True, output=tmp_path / "out")
    assert command.run() == code


def test_every_code_is_explained() -> None:
    assert sections().keys() == CODES.keys()


def unnumbered(sentence: str) -> str:
    """Another recording of a job may have its messages in another order, and other ports and times."""
    sentence = re.sub(r"#\d+", "#", sentence)
    sentence = re.sub(r"[\d.]+:\d+>[\d.]+:\d+", "flow", sentence)
    return re.sub(r"(?<=packet )\d+|(?<=\()[\d.]+:\d+(?=\))|[\d.]+ (?:µs|ms|s|%)(?!\w)", "N", sentence)


def test_examples_are_real(tmp_path: Path) -> None:
    """Each code has one at least; the capture that it is from stands before it."""
    made = {case.label: case for cases in CAUSED.values() for case in cases}
    for code, section in sections().items():
        examples = re.findall(r"^> \*([^*]+)\*: (.*)$", section, re.MULTILINE)
        assert examples, code
        assert section.count("\n> ") == len(examples)
        for label, sentence in examples:
            case = made.get(label) or recorded(label)
            _, found = of_path(str(case.path(tmp_path)))
            texts = [unnumbered(finding.text) for finding in found if finding.code == code]
            assert unnumbered(sentence) in texts, (code, texts)


def test_each_section_says_the_severities_and_a_remedy() -> None:
    for code, section in sections().items():
        first = (
            section.partition("\n\n")[2]
            .partition(
                "*",
            )[2]
            .partition("*")[0]
        )
        assert {word for word in ("error", "warning", "info") if word in first} == CODES[code], code
        assert "*Remedy:*" in section


def sections() -> dict[str, str]:
    """Code → what docs/findings.md says of it."""
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    parts = re.split(r"^## `([a-z-]+)`$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
