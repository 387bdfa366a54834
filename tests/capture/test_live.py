"""Captures that are made while they are decoded. The real ones need root: they run on the loopback interface
of a network namespace of their own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.capture import CaptureReader, Live, Reading
from rpcinspect.capture.tshark import find_program
from rpcinspect.errors import CaptureError
from tests import decoded
from tests.builders import Captured, pcapng_file
from tests.cli.runner import decode
from tests.decoded import Json

ROOT = Path(__file__).resolve().parent.parent.parent
CHAIN = ROOT / "captures" / "basic_chain.pcap"
CAPTURE = ["decode", "--live", "lo"]


@pytest.fixture
def namespace() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs tests.capture.replay in a namespace whose loopback interface is up."""
    if os.geteuid() != 0:
        pytest.skip("not root")
    for program in ("unshare", "ip", "setpriv"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    if find_program("dumpcap") is None:
        pytest.skip("dumpcap is not installed")
    if subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no network namespaces here")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
            cwd=ROOT,
        )

    return run


REPLAY = (sys.executable, "-m", "tests.capture.replay")
RPCINSPECT = (sys.executable, "-m", "rpcinspect")


def said(line: Json) -> dict[str, Any]:
    """What a message says, and between whom, whenever and wherever it was captured."""
    return {
        name: line[name] for name in ("type", "id", "src", "dst", "body", "envelopes", "tensors", "control")
    }


@pytest.mark.rooted
@pytest.mark.parametrize(
    ("chosen", "written"),
    [
        pytest.param((), "pcap", id="sniffer"),
        pytest.param(("--capture-filter", "tcp"), "pcapng", id="dumpcap"),
    ],
)
def test_messages_come_as_they_are_captured(
    chosen: tuple[str, ...], written: str, namespace: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = namespace(
        *REPLAY, str(CHAIN), "--", *RPCINSPECT, *CAPTURE, "--format", "jsonl", "--stream", *chosen
    )
    assert (done.returncode, done.stderr) == (0, "")
    output = decoded.Decoded(decoded.parse(done.stdout.encode()))
    expected = decoded.stream(CHAIN)
    assert len(output.messages) == 24
    key = lambda line: (line["type"], line["id"], line["src"])  # noqa: E731
    assert sorted(map(said, output.messages), key=key) == sorted(map(said, expected.messages), key=key)
    (capture,) = output.of("capture")
    assert (capture["path"], capture["format"], capture["reader"]) == ("lo", written, "native")
    assert [worker["name"] for worker in output.of("worker")] == ["worker0", "worker1"]
    assert output.problems() == []


@pytest.mark.rooted
def test_the_table_ends_with_a_summary(namespace: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = namespace(*REPLAY, str(CHAIN), "--", *RPCINSPECT, *CAPTURE)
    assert (done.returncode, done.stderr) == (0, "")
    assert "24 messages in lo (pcap, " in done.stdout
    assert "no decoding problems" in done.stdout


@pytest.mark.rooted
@pytest.mark.parametrize("chosen", [(), ("--capture-filter", "tcp")], ids=["sniffer", "dumpcap"])
def test_no_capture_outlives_us(
    chosen: tuple[str, ...], namespace: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = namespace(*REPLAY, "--leave", str(CHAIN), "--", *RPCINSPECT, *CAPTURE, *chosen)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


@pytest.mark.rooted
def test_who_may_not_capture_is_told_what_to_do(
    namespace: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    done = namespace(*nobody, *RPCINSPECT, *CAPTURE)
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1
    assert "permission" in done.stderr
    assert "dpkg-reconfigure wireshark-common" in done.stderr


@pytest.mark.parametrize(
    "chosen",
    [
        (),
        pytest.param(
            ("--capture-filter", "tcp"),
            marks=pytest.mark.skipif(find_program("dumpcap") is None, reason="dumpcap is not installed"),
        ),
    ],
    ids=["sniffer", "dumpcap"],
)
def test_an_interface_that_is_not_there(chosen: tuple[str, ...]) -> None:
    done = decode("--live", "no-such", *chosen)
    assert (done.code, done.out) == (3, "")
    assert len(done.err.splitlines()) == 1
    assert "no-such" in done.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(("--live", "lo", CHAIN), "--live and FILE", id="a file too"),
        pytest.param(("--live", "lo", "--message", "1"), "twice", id="message"),
        pytest.param(("--live", "lo", "--roundtrip"), "twice", id="roundtrip"),
        pytest.param(("--live", "lo", "--reader", "tshark"), "natively", id="reader"),
        pytest.param(("--capture-filter", "tcp", CHAIN), "--live", id="filter without it"),
        pytest.param(
            ("--reader", "native", "--tshark-option", "a:b", CHAIN), "tshark", id="option for nobody"
        ),
    ],
)
def test_mistakes(arguments: tuple[object, ...], told: str) -> None:
    done = decode(*arguments)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert len(done.err.splitlines()) == 1


# --- a dumpcap that misbehaves ---

BY_DUMPCAP = Reading(capture_filter="tcp")
"""libpcap alone knows filters, so that even root captures by dumpcap."""


@pytest.fixture
def impostor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a program called dumpcap, a shell script, in the place of all others."""

    def make(script: str) -> None:
        (tmp_path / "capture").write_bytes(pcapng_file([Captured(bytes(60), 5)] * 3))
        program = tmp_path / "dumpcap"
        program.write_text(f'#!/bin/sh\ncd "{tmp_path}"\n{script}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return make


def test_lost_packets_are_a_problem(impostor: Callable[[str], None]) -> None:
    summary = (
        "Packets received/dropped on interface 'lo': 3/7 (pcap:7/dumpcap:0/flushed:0/ps_ifdrop:0) (30.0%)"
    )
    impostor(f'cat capture; echo "{summary}" >&2')
    with CaptureReader(Live("lo"), 0, BY_DUMPCAP) as reader:
        assert sum(block.packets for block in reader.blocks()) == 3
    (problem,) = reader.problems
    assert problem.reason == "7 packets were lost while capturing: they came too fast"


def test_an_end_that_nobody_asked_for_is_a_problem(impostor: Callable[[str], None]) -> None:
    impostor('cat capture; echo "dumpcap: The interface went down." >&2; exit 2')
    with CaptureReader(Live("lo"), 0, BY_DUMPCAP) as reader:
        assert sum(block.packets for block in reader.blocks()) == 3
    (problem,) = reader.problems
    assert problem.reason == "the capture ended: The interface went down."


def test_it_ends_when_asked(impostor: Callable[[str], None]) -> None:
    impostor("trap 'cat capture; exit 0' INT\nhead -c 200 capture\nwhile :; do sleep 0.05; done")
    with CaptureReader(Live("lo"), 0, BY_DUMPCAP) as reader:
        assert reader.end()


def test_what_it_holds_when_it_is_asked_to_end_is_taken(impostor: Callable[[str], None]) -> None:
    """Also where it takes longer than another writer would be given."""
    later = "trap 'sleep 1.2; tail -c +101 capture; exit 0' INT"
    impostor(f"{later}\nhead -c 100 capture\nwhile :; do sleep 0.05; done")
    with CaptureReader(Live("lo"), 0, BY_DUMPCAP) as reader:
        assert reader.end()
        assert sum(block.packets for block in reader.blocks()) == 3
    assert reader.problems == []


@pytest.mark.parametrize("script", ["exit 1", "echo; exit 1"], ids=["silent", "an odd byte"])
def test_it_says_nothing_of_use(script: str, impostor: Callable[[str], None]) -> None:
    impostor(script)
    with pytest.raises(CaptureError, match=r"^lo: ") as caught:
        CaptureReader(Live("lo"), 0, BY_DUMPCAP)
    assert str(caught.value).rstrip()[-1] != ":"


def test_it_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpcinspect.capture.tshark.PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    done = decode("--live", "lo", "--capture-filter", "tcp")
    assert (done.code, done.out) == (3, "")
    assert len(done.err.splitlines()) == 1
    assert "apt install tshark" in done.err
