"""What tshark reads is what the native reader reads, and nothing that tshark does brings us down."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.capture import CaptureReader, PacketBlock, Reading, TcpBlock
from rpcinspect.capture.reader import WLAN
from rpcinspect.capture.tshark import find_program
from rpcinspect.errors import CaptureError, RpcInspectError, UnknownFormatError
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.tcp.segment import Flow, Segmenter
from rpcinspect.views.jsonl.lines import JsonLines
from tests.builders import Captured, ethernet, ipv4, ipv6, link_frame, packet, pcap_file, pcapng_file
from tests.cli.runner import decode
from tests.decoded import Json, parse
from tests.forks import command, ran
from tests.places import recordings
from tests.thorough import representative, some

ROOT = Path(__file__).resolve().parent.parent.parent
CHAIN = ROOT / "captures" / "basic_chain.pcap"

TSHARK = Reading(reader="tshark")
NATIVE = Reading(reader="native")

needs_tshark = pytest.mark.skipif(find_program("tshark") is None, reason="tshark is not installed")


def lines(path: Path | str, reading: Reading) -> list[Json]:
    """The whole output, as `--format jsonl` has it."""
    options = Options(reading=reading)
    with tempfile.TemporaryFile() as spool, Decoding([str(path)], options) as decoding:
        view = JsonLines(spool, decoding.bytes, hashes=True)
        for record in decoding.records():
            view.feed([record])
        return list(parse(b"".join(view.finish(decoding.session))))


def comparable(output: list[Json], *, without: tuple[str, ...] = ()) -> list[Json]:
    """The output without what names the file, its format and who read it."""
    own = {"path", "format", "reader", "compression", "bytes", *without}
    return [
        {name: value for name, value in line.items() if line["kind"] != "capture" or name not in own}
        for line in output
    ]


def same(one: Path, other: Path | None = None) -> list[Json]:
    """Asserts that tshark's output for one is the native one for the other; gives it."""
    read = lines(one, TSHARK)
    assert read[0]["reader"] == "tshark"
    assert comparable(read) == comparable(lines(other or one, NATIVE))
    return read


def messages(output: list[Json]) -> list[Json]:
    """Its messages."""
    return [line for line in output if line["kind"] == "message"]


# --- the same as the native reader ---


STRESS = recordings("torch", like="stress_*.pcap*")
TORCH = [path for path in recordings("torch") if path not in STRESS]


@needs_tshark
@pytest.mark.parametrize("path", some(TORCH, 2), ids=lambda path: path.name)
def test_captures_of_torch(path: Path) -> None:
    """Quick, each second one."""
    same(path)


@needs_tshark
@pytest.mark.slow
@pytest.mark.parametrize("path", representative(STRESS), ids=lambda path: path.name)
def test_captures_of_torch_under_stress(path: Path) -> None:
    assert messages(same(path))


@needs_tshark
@pytest.mark.slow
@pytest.mark.parametrize("path", some(recordings("."), 3), ids=lambda path: path.name)
def test_bundled_captures(path: Path) -> None:
    """Quick, each third one; all were captured by the same sniffers as those above."""
    same(path)


Frame = Callable[[bytes, str, str, dict[str, int]], bytes]


@cache
def conversation() -> tuple[tuple[bytes, Flow, dict[str, int], int], ...]:
    """The segments of a small job: payload, flow, numbers of the TCP header, time."""
    segmenter, found = Segmenter(), []
    with CaptureReader(str(CHAIN), 0, NATIVE) as reader:
        for block in reader.blocks():
            rows = segmenter.feed(block)
            for row in range(len(rows)):
                numbers = {
                    "sequence": int(rows.sequence[row]),
                    "acknowledgment": int(rows.acknowledgment[row]),
                    "flags": int(rows.flags[row]),
                }
                payload = reader.pread(int(rows.offset[row]), int(rows.captured[row]))
                found.append((payload, segmenter.flows[rows.flow[row]], numbers, int(rows.time_ns[row])))
    return tuple(found)


def rewritten(path: Path, frame: Frame, link_type: int = 1, *, six: bool = False) -> Path:
    """The conversation in other frames, between the same ports."""
    hosts = ("[::1]", "[::1]") if six else ("127.0.0.1", "127.0.0.1")
    packets = [
        Captured(
            frame(
                payload,
                f"{hosts[0]}:{flow.source.port}",
                f"{hosts[1]}:{flow.destination.port}",
                numbers,
            ),
            time_ns,
        )
        for payload, flow, numbers, time_ns in conversation()
    ]
    path.write_bytes(pcap_file(packets, link_type=link_type))
    return path


def plain(link_type: int) -> Frame:
    """Frames of one link type."""

    def frame(payload: bytes, source: str, destination: str, numbers: dict[str, int]) -> bytes:
        return packet(payload, source, destination, link_type=link_type, **numbers)

    return frame


def ip_packet(payload: bytes, source: str, destination: str, numbers: dict[str, int]) -> bytes:
    """Without a link layer."""
    return packet(payload, source, destination, link_type=101, **numbers)


def tagged(*tags: tuple[int, int]) -> Frame:
    """Ethernet frames with VLAN tags."""
    return lambda *one: ethernet(ip_packet(*one), tags=tags)


def udp(body: bytes, port: int) -> bytes:
    """A UDP datagram."""
    return port.to_bytes(2, "big") * 2 + (8 + len(body)).to_bytes(2, "big") + bytes(2) + body


def vxlan(*one: Any) -> bytes:
    """Ethernet in UDP between two hosts."""
    inner = bytes.fromhex("08000000 00002a00") + ethernet(ip_packet(*one))
    return ethernet(ipv4(udp(inner, 4789), "172.16.0.1", "172.16.0.2", protocol=17))


def in_ipv4(*one: Any) -> bytes:
    """IPv4 in IPv4."""
    return ethernet(ipv4(ip_packet(*one), "172.16.0.1", "172.16.0.2", protocol=4))


def in_ipv6(*one: Any) -> bytes:
    """IPv4 in IPv6."""
    return ethernet(ipv6(ip_packet(*one), "fd00::1", "fd00::2", protocol=4))


@needs_tshark
@pytest.mark.parametrize(
    ("frame", "link_type", "six"),
    [
        pytest.param(plain(1), 1, False, id="ethernet"),
        pytest.param(plain(1), 1, True, id="ethernet, IPv6"),
        pytest.param(tagged((0x8100, 5)), 1, False, id="vlan"),
        pytest.param(tagged((0x88A8, 5), (0x8100, 6)), 1, False, id="two vlans"),
        pytest.param(plain(0), 0, False, id="null"),
        pytest.param(plain(0), 0, True, id="null, IPv6"),
        pytest.param(plain(12), 12, False, id="raw, 12"),
        pytest.param(plain(101), 101, True, id="raw, 101, IPv6"),
        pytest.param(plain(108), 108, False, id="loop"),
        pytest.param(plain(113), 113, False, id="cooked"),
        pytest.param(plain(113), 113, True, id="cooked, IPv6"),
        pytest.param(plain(228), 228, False, id="raw IPv4"),
        pytest.param(plain(229), 229, True, id="raw IPv6"),
        pytest.param(plain(276), 276, False, id="cooked 2"),
    ],
)
def test_link_types(frame: Frame, link_type: int, six: bool, tmp_path: Path) -> None:
    path = rewritten(tmp_path / "run.pcap", frame, link_type, six=six)
    assert len(messages(same(path))) == 24


@needs_tshark
@pytest.mark.parametrize("frame", [vxlan, in_ipv4, in_ipv6])
def test_tunnels(frame: Frame, tmp_path: Path) -> None:
    """What is in a tunnel is read as if there were none."""
    straight = rewritten(tmp_path / "straight.pcap", plain(1))
    same(rewritten(tmp_path / "tunnel.pcap", frame), straight)


@needs_tshark
@pytest.mark.parametrize("link_type", sorted(WLAN))
@pytest.mark.parametrize("make", [pcap_file, pcapng_file])
def test_auto_hands_802_11_to_tshark(link_type: int, make: Callable[..., bytes], tmp_path: Path) -> None:
    path = rewritten(tmp_path / "run.pcap", plain(link_type), link_type)
    if make is pcapng_file:
        with CaptureReader(str(path), 0, NATIVE) as reader:
            frames = [
                Captured(reader.pread(offset, caplen), time_ns)
                for block in reader.blocks()
                if isinstance(block, PacketBlock)
                for offset, caplen, time_ns in zip(
                    block.offset.tolist(), block.caplen.tolist(), block.time_ns.tolist(), strict=True
                )
            ]
        path.write_bytes(make(frames, link_type=link_type))
    output = lines(path, Reading())
    assert output[0]["reader"] == "tshark"
    assert comparable(output) == comparable(lines(rewritten(tmp_path / "ethernet.pcap", plain(1)), NATIVE))
    assert decode("--reader", "native", path).err.count("no packet could be read") == 1


def test_802_11_needs_tshark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = rewritten(tmp_path / "run.pcap", plain(127), 127)
    monkeypatch.setattr("rpcinspect.capture.tshark.PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    done = decode(path)
    assert (done.code, done.out, len(done.err.splitlines())) == (3, "", 1)
    assert "802.11 frames (link type 127)" in done.err
    assert "apt install tshark" in done.err


@needs_tshark
def test_fragments(tmp_path: Path) -> None:
    """The packet number is that of the last fragment: no segment was there before."""
    packets = []
    for payload, flow, numbers, time_ns in conversation():
        segment = packet(payload, str(flow.source), str(flow.destination), link_type=101, **numbers)[20:]
        hosts = flow.source.host, flow.destination.host
        rest, at = segment, 0
        while len(rest) > 256:
            packets.append(Captured(link_frame(1, ipv4(rest[:256], *hosts, fragment=0x2000 | at)), time_ns))
            rest, at = rest[256:], at + 32
        packets.append(Captured(link_frame(1, ipv4(rest, *hosts, fragment=at)), time_ns))
    (tmp_path / "pieces.pcap").write_bytes(pcap_file(packets))
    whole = rewritten(tmp_path / "whole.pcap", plain(1))

    def told(path: Path, reading: Reading) -> list[Json]:
        return [message | {"location": None} for message in messages(lines(path, reading))]

    assert told(tmp_path / "pieces.pcap", TSHARK) == told(whole, NATIVE)


@needs_tshark
def test_cut_packets(tmp_path: Path) -> None:
    """Bytes beyond the snap length are missing, not absent."""
    packets = []
    for payload, flow, numbers, time_ns in conversation():
        frame = packet(payload, str(flow.source), str(flow.destination), **numbers)
        packets.append(Captured(frame[:150], time_ns, length=len(frame)))
    path = tmp_path / "cut.pcap"
    path.write_bytes(pcap_file(packets))
    output = same(path)
    assert output[-1]["bytes"]["missing"] > 0


# --- formats that only tshark knows ---


def snoop(tmp_path: Path) -> Path:
    """The capture in the format of Solaris."""
    editcap = find_program("editcap")
    if editcap is None:
        pytest.skip("editcap is not installed")
    path = tmp_path / "-run.snoop"
    command = [editcap, "-F", "snoop", str(CHAIN), f"./{path.name}"]
    subprocess.run(command, check=True, cwd=tmp_path, timeout=60, capture_output=True)
    return path


@needs_tshark
def test_auto_hands_unknown_formats_to_tshark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = snoop(tmp_path)
    monkeypatch.chdir(tmp_path)
    expected = comparable(lines(CHAIN, NATIVE))
    assert comparable(lines(path.name, Reading())) == expected, "a name that starts with a dash"
    packed = tmp_path / "run.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    output = lines(packed, Reading())
    assert comparable(output) == expected
    assert (output[0]["reader"], output[0]["bytes"]) == ("tshark", path.stat().st_size)


@needs_tshark
@pytest.mark.parametrize("more", [[], ["--message", "8"]], ids=["read once", "read twice"])
def test_standard_input(more: list[str], tmp_path: Path) -> None:
    path = snoop(tmp_path)
    words = ("decode", "--format", "jsonl", *more, "-")
    with path.open("rb") as file:
        done = ran(*words, stdin=file)
    piped = ran(*words, given=path.read_bytes(), stdin=subprocess.PIPE)
    assert (done.returncode, piped.returncode) == (0, 0)
    assert done.stdout == piped.stdout
    assert len(messages(list(parse(done.stdout)))) == (1 if more else 24)


@needs_tshark
def test_native_does_not_ask_tshark(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormatError, match="but a snoop file"):
        lines(snoop(tmp_path), NATIVE)


@needs_tshark
@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param(b"no capture at all\n", "can't read it either", id="text"),
        pytest.param(b'{"a": 1}\n', "finds no TCP in it", id="what tshark takes for a document"),
        pytest.param(bytes(500), "and tshark", id="zeros"),
    ],
)
def test_auto_takes_no_other_file_for_a_capture(content: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UnknownFormatError, match=told) as caught:
        lines(path, Reading())
    assert "not a pcap, pcapng or rpclog file" in str(caught.value)
    assert "\n" not in str(caught.value)


@needs_tshark
def test_errors_of_tshark_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"no capture at all\n")
    with pytest.raises(CaptureError, match=r"file: tshark can't read it: the file isn't a capture file"):
        lines(path, TSHARK)
    with pytest.raises(RpcInspectError, match="nonsense:1") as caught:
        lines(CHAIN, Reading(preferences=("nonsense:1",)))
    assert not isinstance(caught.value, CaptureError), "a mistake of the user's, not of the file"


@needs_tshark
def test_preferences_reach_tshark() -> None:
    """With any, `auto` means tshark; and they count more than ours."""
    output = lines(CHAIN, Reading(preferences=("tcp.relative_sequence_numbers:TRUE",)))
    assert output[0]["reader"] == "tshark"
    assert comparable(output) == comparable(lines(CHAIN, NATIVE))


@needs_tshark
def test_a_file_without_packets(tmp_path: Path) -> None:
    path = tmp_path / "empty.pcap"
    path.write_bytes(pcap_file([]))
    with CaptureReader(str(path), 0, TSHARK) as reader:
        assert list(reader.blocks()) == []
    assert (reader.packets, reader.problems) == (0, [])


@needs_tshark
def test_a_file_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(CHAIN.read_bytes()[:45_001])
    output = lines(path, TSHARK)
    problem, *others = output[-1]["problem_list"]
    assert problem["layer"] == "capture"
    assert problem["reason"].startswith("tshark: the file appears to have been cut short")
    native = lines(path, NATIVE)
    assert messages(output) == messages(native)
    assert others == native[-1]["problem_list"][1:], "such as a message that the cut goes through"


# --- a tshark that misbehaves ---


@cache
def real_output() -> bytes:
    """What tshark prints for the capture; written by hand where it is not installed."""
    rows = []
    for number, (payload, flow, numbers, time_ns) in enumerate(conversation(), 1):
        seconds, rest = divmod(time_ns, 10**9)
        fields = [flow.source.host, flow.destination.host, "", "", str(flow.source.port)]
        fields += [str(flow.destination.port), "eth:ethertype:ip:tcp", str(number), f"{seconds}.{rest:09}"]
        fields += [str(numbers["sequence"]), str(numbers["acknowledgment"]), hex(numbers["flags"])]
        rows.append("\t".join([*fields, str(len(payload)), payload.hex()]))
    return "\n".join([*rows, ""]).encode()


@pytest.fixture
def impostor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a program called tshark, a shell script, before all others; its number is in the file `pid`."""

    def make(script: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "lines").write_bytes(real_output())
        program = folder / "tshark"
        program.write_text(f'#!/bin/sh\ncd "{folder}"\necho $$ > pid.new\nmv pid.new pid\n{script}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return folder / "pid"

    return make


def ended(pid_file: Path, seconds: float = 20) -> bool:
    """Whether the program is gone, soon."""
    pid = int(pid_file.read_text())
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_the_lines_alone_decide(impostor: Callable[[str], Path]) -> None:
    impostor("cat lines")
    assert comparable(lines(CHAIN, TSHARK)) == comparable(lines(CHAIN, NATIVE))


def test_it_dies_midway(impostor: Callable[[str], Path]) -> None:
    impostor("head -c 60000 lines; kill -9 $$")
    output = lines(CHAIN, TSHARK)
    problem = output[-1]["problem_list"][0]
    assert problem["reason"].startswith("tshark: ended by signal 9, after packet ")
    assert messages(output)


def test_it_complains_without_end(impostor: Callable[[str], Path]) -> None:
    impostor("head -c 3000000 /dev/zero >&2; cat lines; exit 7")
    output = lines(CHAIN, TSHARK)
    assert comparable(output)[:-1] == comparable(lines(CHAIN, NATIVE))[:-1]
    assert output[-1]["problem_list"][0]["reason"].startswith("tshark: ended with code 7")


def test_it_prints_something_else(impostor: Callable[[str], Path]) -> None:
    impostor("echo hello; cat lines; echo; printf 'the end'")
    output = lines(CHAIN, TSHARK)
    assert comparable(output)[:-1] == comparable(lines(CHAIN, NATIVE))[:-1]
    assert output[-1]["problem_list"][0]["reason"] == "2 lines of tshark's output are not packets"


def test_a_line_without_an_end(impostor: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpcinspect.capture.tshark.MAX_LINE", 1 << 20)
    pid = impostor("cat lines; cat /dev/zero")
    output = lines(CHAIN, TSHARK)
    assert messages(output) == messages(lines(CHAIN, NATIVE))
    assert "has no end" in output[-1]["problem_list"][0]["reason"]
    assert ended(pid)


def test_nothing_is_left_of_it_when_we_end_first(
    impostor: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rpcinspect.capture.tshark.BATCH", 1 << 12)
    pid = impostor("cat lines; exec sleep 600")
    with CaptureReader(str(CHAIN), 0, TSHARK) as reader:
        assert isinstance(next(reader.blocks()), TcpBlock)
    assert ended(pid)
    monkeypatch.setattr("rpcinspect.capture.tshark.Tshark._batch", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        CaptureReader(str(CHAIN), 0, TSHARK)
    assert ended(pid)


def _interrupted(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_nothing_is_left_of_it_when_nobody_reads_on(impostor: Callable[[str], Path]) -> None:
    """As with `| head -1`. The pipe is too small for what the first packets tell; later ones are copies."""
    pid = impostor("while cat lines; do :; done")
    words = ("decode", "--reader", "tshark", "--stream", "--format", "jsonl", CHAIN)
    pipe = subprocess.PIPE
    with command(*words, bufsize=0, stdout=pipe, stderr=pipe, pipesize=4096) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        try:
            process.wait(60)
        finally:
            process.kill()
    assert ended(pid)


def test_it_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    strange = tmp_path / "run.snoop"
    strange.write_bytes(b"snoop\0\0\0" + bytes(100))
    monkeypatch.setattr("rpcinspect.capture.tshark.PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    for arguments in ((strange,), ("--reader", "tshark", CHAIN)):
        done = decode(*arguments)
        assert (done.code, done.out) == (3, "")
        assert len(done.err.splitlines()) == 1
        assert "apt install tshark" in done.err
        assert "brew install wireshark" in done.err
    assert decode("--reader", "native", strange).err.count("install") == 0
    assert decode(CHAIN).code == 0, "nothing else needs it"


def test_link_types_that_nobody_reads_are_named(tmp_path: Path) -> None:
    path = tmp_path / "strange.pcap"
    path.write_bytes(pcap_file([Captured(bytes(60))] * 3, link_type=147))
    for more in ((), ("--format", "jsonl")):
        done = decode(path, *more)
        assert done.code == 0
        assert "no packet could be read: link type 147; try --reader tshark" in done.err


def test_the_shell_has_no_part_in_it(tmp_path: Path, impostor: Callable[[str], Path]) -> None:
    impostor('printf "%s\\n" "$@" > arguments; cat lines')
    odd = tmp_path / "a $(touch bad); 'b\".pcap"
    shutil.copy(CHAIN, odd)
    lines(odd, Reading(preferences=("x:$(touch bad)",)))
    arguments = (tmp_path / "bin" / "arguments").read_text().splitlines()
    assert arguments[arguments.index("-r") + 1] == str(odd)
    assert arguments[-2:] == ["-o", "x:$(touch bad)"]
    assert not list(tmp_path.rglob("bad"))
