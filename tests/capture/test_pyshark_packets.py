"""What pyshark gives is what the native reader reads; nothing that pyshark or tshark does brings us down."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import rpcinspect as ri
from rpcinspect.capture import CaptureReader, PysharkCapture, Reading
from rpcinspect.capture.tshark import find_program
from rpcinspect.errors import CaptureError
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.views.jsonl.lines import JsonLines
from tests.builders import (
    Captured,
    enhanced,
    ethernet,
    geneve,
    gre,
    interface,
    ipv4,
    ipv4_fragments,
    ipv6,
    ipv6_fragments,
    link_frame,
    mpls,
    packet,
    pcap_file,
    pppoe,
    section,
    udp,
    vxlan,
)
from tests.capture.test_tshark import NATIVE, comparable, conversation, messages
from tests.cli.runner import decode, rpcinspect
from tests.decoded import Json, parse
from tests.places import ROOT, recordings
from tests.thorough import some

pyshark = pytest.importorskip("pyshark")
pytestmark = pytest.mark.skipif(find_program("tshark") is None, reason="tshark is not installed")

CHAIN = ROOT / "captures" / "basic_chain.pcap"
PYSHARK = Reading(reader="pyshark")


@pytest.fixture
def file_capture() -> Callable[..., Any]:
    """Makes capture objects as the documentation has them, with a loop of their own: pyshark would make one
    and leave it open."""
    loop = asyncio.new_event_loop()
    loop.close()

    def make(path: Path, **how: Any) -> Any:
        return pyshark.FileCapture(str(path), use_json=True, include_raw=True, eventloop=loop, **how)

    return make


def lines(source: Path | PysharkCapture, reading: Reading = NATIVE) -> list[Json]:
    """The whole output, as `--format jsonl` has it."""
    one = str(source) if isinstance(source, Path) else source
    with tempfile.TemporaryFile() as spool, Decoding([one], Options(reading=reading)) as decoding:
        view = JsonLines(spool, decoding.bytes, hashes=True)
        for record in decoding.records():
            view.feed([record])
        return list(parse(b"".join(view.finish(decoding.session))))


# --- the same as the native reader ---


def tunnel(body: bytes) -> bytes:
    return ethernet(ipv4(udp(vxlan(ethernet(body)), 4789), "172.16.0.1", "172.16.0.2", protocol=17))


def pieces(body: bytes) -> list[bytes]:
    """The fragments of an IP packet that is large enough for two, the first one last: tshark numbers a
    segment by the packet that completes it, the native reader by that with its first byte."""
    cut, number = ([24] if len(body) > 60 else []), crc32(body) & 0xFFFF
    if body[0] >> 4 == 4:
        parts = ipv4_fragments(body[20:], "127.0.0.1", "127.0.0.1", cut, number=number)
    else:
        parts = ipv6_fragments(body[40:], "::1", "::1", cut, number=number)
    return [ethernet(part) for part in reversed(parts)]


OUTER = ("172.16.0.1", "172.16.0.2")
CARRIERS: tuple[tuple[int, Callable[[bytes], bytes | list[bytes]]], ...] = (
    *((kind, lambda body, kind=kind: link_frame(kind, body)) for kind in (0, 1, 12, 101, 108, 113, 276)),
    (1, lambda body: ethernet(body, tags=((0x8100, 5),))),
    (1, lambda body: ethernet(body, tags=((0x88A8, 5), (0x8100, 6)))),
    (1, lambda body: ethernet(mpls(body), kind=0x8847)),
    (1, lambda body: ethernet(pppoe(body), kind=0x8864)),
    (1, tunnel),
    (1, lambda body: ethernet(ipv4(udp(geneve(ethernet(body)), 6081), *OUTER, protocol=17))),
    (1, lambda body: ethernet(ipv4(gre(body), *OUTER, protocol=47))),
    (1, lambda body: ethernet(ipv4(body, *OUTER, protocol=4 if body[0] >> 4 == 4 else 41))),
    (1, lambda body: ethernet(ipv6(body, "fd00::1", "fd00::2", protocol=4 if body[0] >> 4 == 4 else 41))),
    (1, pieces),
    # an error that quotes a segment: it is none
    (1, lambda body: [ethernet(body), ethernet(ipv4(b"\3\3" + bytes(6) + body[:60], *OUTER, protocol=1))]),
)
"""(link type, an IP packet → its frames)."""


def zoo(path: Path) -> Path:
    """A pcapng in which each packet of a conversation is carried otherwise than the one before, over IPv4 and
    then over IPv6; of the last packets a part is cut off."""
    kinds = sorted({kind for kind, _ in CARRIERS})
    blocks = [section(), *(interface(link_type=kind, resolution=9) for kind in kinds)]
    for host in ("127.0.0.1", "[::1]"):
        for number, (payload, flow, numbers, time_ns) in enumerate(conversation()):
            ends = (f"{host}:{end.port}" for end in (flow.source, flow.destination))
            kind, carry = CARRIERS[number % len(CARRIERS)]
            frames = carry(packet(payload, *ends, link_type=101, **numbers))
            for frame in [frames] if isinstance(frames, bytes) else frames:
                kept = frame[:150] if ":" in host and number > 400 and carry is not pieces else frame
                at = {"ticks": time_ns, "interface_id": kinds.index(kind), "length": len(frame)}
                blocks.append(enhanced("<", kept, **at))
    path.write_bytes(b"".join(blocks))
    return path


def test_link_types_tunnels_fragments_and_cut_packets(
    tmp_path: Path, file_capture: Callable[..., Any]
) -> None:
    path = zoo(tmp_path / "zoo.pcapng")
    read = lines(PysharkCapture(file_capture(path)))
    assert (read[0]["reader"], read[0]["format"]) == ("pyshark", "pyshark")
    native = lines(path)
    assert comparable(read) == comparable(native)
    assert native[-1]["bytes"]["missing"] > 0
    assert len(messages(native)) > 30


@pytest.mark.slow
@pytest.mark.parametrize("path", some(recordings("."), 5), ids=lambda path: path.name)
def test_bundled_captures(path: Path, file_capture: Callable[..., Any]) -> None:
    """With tshark's preferences as they are, which its own reader changes."""
    assert comparable(lines(PysharkCapture(file_capture(path)))) == comparable(lines(path))


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed captures and standard input are unpacked before; preferences reach tshark. Which tshark
    runs is not for a file of the current folder to say, as pyshark has it."""
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    (tmp_path / "config.ini").write_text(f"[tshark]\ntshark_path = {program}\n")
    monkeypatch.setattr("pyshark.config.fp_config_path", tmp_path / "config.ini")
    path = ROOT / "captures" / "torch" / "dyn.pcap.gz"
    done = decode("--reader", "pyshark", "--format", "jsonl", "-", stdin=path.read_bytes())
    assert done.code == 0, done.err
    assert comparable(done.objects) == comparable(decode("--format", "jsonl", path).objects)
    done = decode("--reader", "pyshark", "--tshark-option", "nonsense:1", path)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "nonsense:1" in done.err
    done = rpcinspect("export", "pcapng", "--reader", "pyshark", path, "-o", tmp_path / "out.pcapng")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "convert it first" in done.err
    assert not ran.exists()


# --- what the user has set ---


def test_filter_and_decode_as_count(tmp_path: Path, file_capture: Callable[..., Any]) -> None:
    """A tunnel at a port that nobody knows; of its packets the first ones."""
    plain, hidden = [], []
    for payload, flow, numbers, time_ns in conversation():
        body = packet(payload, str(flow.source), str(flow.destination), link_type=101, **numbers)
        outer = ethernet(ipv4(udp(vxlan(ethernet(body)), 5555), *OUTER, protocol=17))
        plain.append(Captured(ethernet(body), time_ns))
        hidden.append(Captured(outer, time_ns))
    (tmp_path / "plain.pcap").write_bytes(pcap_file(plain[:450]))
    path = tmp_path / "hidden.pcap"
    path.write_bytes(pcap_file(hidden))
    given = file_capture(path, decode_as={"udp.port==5555": "vxlan"}, display_filter="frame.number <= 450")
    read = lines(PysharkCapture(given))
    assert comparable(read) == comparable(lines(tmp_path / "plain.pcap"))
    assert messages(read)
    assert lines(path)[-1]["messages"] == 0


def refused(given: Any) -> str:
    with pytest.raises(CaptureError) as caught:
        ri.open(given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_mistakes_are_one_line(file_capture: Callable[..., Any], tmp_path: Path) -> None:
    assert "must be a field or function, not nonsense" in refused(
        file_capture(CHAIN, display_filter="nonsense == 1")
    )
    assert 'Unknown protocol -- "nonsense"' in refused(
        file_capture(CHAIN, decode_as={"tcp.port==1": "nonsense"})
    )
    assert "leave it out" in refused(file_capture(CHAIN, output_file=str(tmp_path / "out.pcap")))
    text = tmp_path / "file.pcap"
    text.write_text("no capture at all\n")
    assert "the file isn't a capture file" in refused(file_capture(text))
    gone = file_capture(text)
    text.unlink()
    assert "file.pcap: No such file" in refused(gone)
    with pytest.raises(TypeError, match="int is neither a path nor a capture object"):
        ri.open(5)  # type: ignore[arg-type]


def test_other_modes_say_what_to_use() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    name = str(CHAIN)
    for how in (
        {},
        {"only_summaries": True},
        {"use_json": True},
        {"use_ek": True},
        {"use_ek": True, "include_raw": True},
    ):
        told = refused(pyshark.FileCapture(name, eventloop=loop, **how))
        assert told.endswith("use FileCapture(…, use_json=True, include_raw=True)")
    memory = pyshark.InMemCapture(use_json=True, include_raw=True, eventloop=loop)
    assert "InMemCapture can't be read; save its packets and use FileCapture(…, use_json" in refused(memory)
    far = pyshark.RemoteCapture("host", "eth0", use_json=True, include_raw=True, eventloop=loop)
    assert "a pyshark RemoteCapture can't be read" in refused(far)
    live = pyshark.LiveCapture("lo", eventloop=loop)
    assert refused(live).endswith("use LiveCapture(…, use_json=True, include_raw=True)")
    live.use_json = live.include_raw = True
    assert refused(live) == "lo: this LiveCapture keeps no packets; call its sniff(timeout=SECONDS) first"


IN_A_NOTEBOOK = f"""
import asyncio, os, pyshark
import rpcinspect as ri

form = {{"use_json": True, "include_raw": True}}

kept = pyshark.FileCapture({str(CHAIN)!r}, **form)
kept.load_packets(packet_count=40)
with ri.open(kept) as run:
    print(run.captures[0].packets, run.captures[0].path == {str(CHAIN)!r})
kept.close()

async def cell():
    with ri.open(pyshark.FileCapture({str(CHAIN)!r}, **form)) as run:
        print(run, run.messages[6].tensors[0].shape)
        first, *more = ri.to_pyshark(run, message=6)
        print(first.torchrpc.function, len(more))

asyncio.run(cell())
try:
    print(os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("no child")
"""


def test_in_a_running_loop_and_of_packets_that_were_loaded() -> None:
    """As in notebooks, where pyshark itself can't run."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_NOTEBOOK],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    kept, run, packets, children = done.stdout.splitlines()
    assert run == "<Run of 2 workers, 24 messages> (3, 4)"
    assert kept == "40 True"
    assert packets == "basic_chain.scale 6"
    assert children == "no child"


# --- what fails beside us ---


def test_nothing_is_left_of_tshark(
    tmp_path: Path, file_capture: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where it does not end nor where we are interrupted; what it prints else is counted."""
    program = tmp_path / "tshark"
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\ncat {tmp_path}/output\nexec sleep 600\n")
    program.chmod(0o755)
    found = subprocess.run(
        ["tshark", "-n", "-r", str(CHAIN), "-T", "json", "-x", "-c", "40"], check=True, capture_output=True
    )
    strange = b'[\n  {"_source": {"layers": {"frame": []}}\n  },\n  \xff"\n  },\n'
    (tmp_path / "output").write_bytes(strange + found.stdout[2:])
    monkeypatch.setattr("rpcinspect.capture.tshark.BATCH", 1 << 12)
    given = PysharkCapture(file_capture(CHAIN, tshark_path=str(program)))

    def gone() -> bool:
        pid = int((tmp_path / "pid").read_text())
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    with CaptureReader(given) as reader:
        blocks = reader.blocks()
        while reader.packets < 30:
            next(blocks)
    assert gone()
    (tmp_path / "pid").unlink()
    monkeypatch.setattr("rpcinspect.capture.pyshark_packets.PysharkFile._batch", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        CaptureReader(given)
    assert not (tmp_path / "pid").exists() or gone()


def _interrupted(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_pyshark_or_tshark_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("rpcinspect.capture.tshark.PLACES", ())
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        done = decode("--reader", "pyshark", CHAIN)
    assert (done.code, done.out, len(done.err.splitlines())) == (3, "", 1)
    assert "--reader pyshark needs tshark; install it (Debian" in done.err
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyshark"]:
        monkeypatch.setitem(sys.modules, name, None)
    done = decode("--reader", "pyshark", CHAIN)
    assert (done.code, done.out, len(done.err.splitlines())) == (3, "", 1)
    assert "can't be used without pyshark: pip install 'rpcinspect[pyshark]'; rpcinspect doctor" in done.err
