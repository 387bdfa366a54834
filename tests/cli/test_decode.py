"""`rpcinspect decode` as its users meet it: inputs of every kind, options and their combinations."""

from __future__ import annotations

import gzip
import json
import os
import random
import stat
import struct
from pathlib import Path
from typing import Any

import pytest
import zstandard

from rpcinspect.cli.decode import DecodeCommand
from rpcinspect.errors import CaptureError, OutputError
from tests.checks.code_captures import CAUSED
from tests.cli.runner import CAPTURES, CHAIN, HIDDEN, Ran, decode, visible
from tests.places import content

BOOM = CAPTURES / "bwd_boom.pcap.gz"
PROFILED = CAPTURES / "profiled_legacy.pcap"


def packets_of(path: Path) -> tuple[bytes, list[bytes]]:
    """Header and records of a little-endian pcap file, by its length fields alone."""
    data = path.read_bytes()
    records, at = [], 24
    while at < len(data):
        (captured,) = struct.unpack_from("<I", data, at + 8)
        records.append(data[at : at + 16 + captured])
        at += 16 + captured
    return data[:24], records


def messages(ran: Ran) -> list[str]:
    """Message lines without what depends on how the capture was cut into files."""
    assert ran.code == 0, ran.err
    lines = [line for line in ran.objects if line["kind"] == "message"]
    for line in lines:
        for key in ("location", "pipe"):
            del line[key]
    return [json.dumps(line) for line in lines]


# --- the table ----------------------------------------------------------------------------------------------


def test_table_has_a_line_per_message_and_a_summary() -> None:
    ran = decode(CHAIN)
    lines = ran.out.splitlines()
    assert ran.code == 0
    assert ran.err == ""
    assert lines[0].split() == ["#", "seconds", "from", "→", "to", "message", "what", "happened"]
    assert [int(line.split()[0]) for line in lines[1:13]] == list(range(6, 18))
    assert "basic_chain.scale(tensor#0[3,4] float32 grad, tensor#1[4] float32 grad, gain=2.0)" in lines[1]
    assert lines[2].split()[5:7] == ["FORWARD_AUTOGRAD_RESP", "#6"]
    assert "24 messages in" in lines[14]
    assert "12 housekeeping messages hidden; --all shows them" in lines
    assert not any(line != line.rstrip() for line in lines)


def test_all_shows_housekeeping_too() -> None:
    lines = decode(CHAIN, "--all").out.splitlines()
    assert [int(line.split()[0]) for line in lines[1:25]] == list(range(24))
    assert "_gather_to_leader" in lines[1]
    assert not any("hidden" in line for line in lines)


def test_errors_are_seen() -> None:
    out = decode(BOOM).out
    assert "✗ Error on Node 1: gradient exploded on purpose" in out
    assert "✗ Error on Node 2: Error on Node 1: gradient exploded on purpose" in out


def test_nothing_to_decode_is_an_answer_with_a_remedy() -> None:
    ran = decode(HIDDEN)
    assert ran.code == 0
    assert "no messages in" in ran.out
    assert "error: invisible-transport  2 of 2 pipes: messages are moved by the transport shm" in ran.out
    assert '_transports=["uv"], _channels=["basic"]' in ran.out
    ran = decode(HIDDEN, "--format", "jsonl")
    assert "No RPC messages: 2 of 2 pipes" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_no_rpc_at_all_is_an_answer_too(tmp_path: Path) -> None:
    header, records = packets_of(CHAIN)
    (tmp_path / "none.pcap").write_bytes(header)
    assert "the capture holds no packets" in decode(tmp_path / "none.pcap").out
    (tmp_path / "store.pcap").write_bytes(header + b"".join(records[:100]))
    ran = decode(tmp_path / "store.pcap")
    assert (ran.code, "processes met at a TCPStore" in ran.out) == (0, True)
    (tmp_path / "syn.pcap").write_bytes(header + records[0])
    assert "the capture holds no TCP payload" in decode(tmp_path / "syn.pcap").out


# --- inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["gzip", "zstd", "stdin", "gzip on stdin"])
def test_compressed_and_piped_inputs_give_the_same(form: str, tmp_path: Path) -> None:
    plain, path = CHAIN.read_bytes(), tmp_path / "capture"  # the name says nothing
    expected = messages(decode(CHAIN, "--format", "jsonl"))
    if form == "zstd":
        path.write_bytes(zstandard.compress(plain))
    else:
        path.write_bytes(gzip.compress(plain))
    if "stdin" in form:
        data = plain if form == "stdin" else path.read_bytes()
        assert messages(decode("-", "--format", "jsonl", stdin=data)) == expected
    else:
        assert messages(decode(path, "--format", "jsonl")) == expected


def test_standard_input_is_called_so() -> None:
    packets = f"(pcap, {len(packets_of(CHAIN)[1])} packets"
    assert f"24 messages in standard input {packets}" in decode("-", stdin=CHAIN.read_bytes()).out
    one = decode("-", "--message", "6", stdin=CHAIN.read_bytes()).out
    (whole,) = decode(CHAIN, "--message", "6", "--format", "jsonl").objects
    assert f"place: standard input, packet {whole['location']['packet']}," in one
    assert "/dev/fd" not in one


@pytest.mark.parametrize("cut", ["halves", "every other packet", "overlapping", "twice", "shuffled"])
def test_several_files_are_one_session(cut: str, tmp_path: Path) -> None:
    header, records = packets_of(CHAIN)
    half, third = len(records) // 2, len(records) // 3
    shuffled = random.Random(7).sample(records, len(records))
    parts = {
        "halves": [records[:half], records[half:]],
        "every other packet": [records[::2], records[1::2]],
        "overlapping": [records[: 2 * third], records[third:]],
        "twice": [records, records],
        "shuffled": [shuffled[:half], shuffled[half:]],
    }[cut]
    paths = [tmp_path / f"{number}.pcap" for number in range(2)]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(header + b"".join(part))
    whole = decode(CHAIN, "--format", "jsonl")
    for order in (paths, paths[::-1]):
        joined = decode(*order, "--format", "jsonl")
        assert messages(joined) == messages(whole)
        assert joined.objects[-1]["bytes"] == whole.objects[-1]["bytes"]
        assert joined.objects[-1]["problems"] == 0


def test_several_files_are_listed(tmp_path: Path) -> None:
    out = decode(CHAIN, CHAIN).out
    assert "24 messages in 2 captures\n" in out
    assert out.count(f"  {CHAIN} (pcap, {len(packets_of(CHAIN)[1])} packets, ") == 2


def test_truncated_file_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(CHAIN.read_bytes()[:45_001])
    ran = decode(cut)
    assert ran.code == 0
    assert "basic_chain.scale(" in ran.out
    assert "problem: capture: the file ends within a packet: " in ran.out
    assert decode(cut, "--strict").code == 3


@pytest.mark.parametrize(
    "data", [b"", b"hello, world\n", CHAIN.read_bytes()[:10]], ids=["empty", "text", "cut"]
)
@pytest.mark.parametrize("options", [(), ("--format", "jsonl"), ("--message", "0"), ("--roundtrip",)])
def test_what_is_no_capture_is_one_line(data: bytes, options: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    for ran in (decode(path, *options), decode("-", *options, stdin=data)):
        assert (ran.code, ran.out) == (3, "")
        assert len(ran.err.splitlines()) == 1
        assert ran.err.startswith("rpcinspect: ")


def test_unreadable_inputs_are_one_line_each(tmp_path: Path) -> None:
    secret = tmp_path / "secret.pcap"
    secret.write_bytes(CHAIN.read_bytes())
    secret.chmod(0)
    denied = os.access(secret, os.R_OK)  # root may read anything
    for name in (
        "/dev/null",
        tmp_path,
        tmp_path / "absent",
        tmp_path / "a\x1b[31m\nb",
        *([] if denied else [secret]),
    ):
        ran = decode(name)
        assert (ran.code, ran.out, len(ran.err.splitlines())) == (3, "", 1)
        assert visible(ran.err)
    secret.chmod(stat.S_IRUSR | stat.S_IWUSR)
    assert decode(CHAIN, tmp_path / "absent").code == 3


# --- options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        "--stream --message 3",
        "--stream --roundtrip",
        "--stream -w NEW",
        "--message 3 -w NEW",
        "--calls --message 3",
        "--calls --stream",
        "-w NEW -o NEW",
        "--message 3 --roundtrip",
        "--roundtrip --format jsonl",
        "--roundtrip --format json",
        "--stream --format json",
        "-",
    ],
)
def test_senseless_combinations_are_one_line(options: str, tmp_path: Path) -> None:
    words = [str(tmp_path / "new") if word == "NEW" else word for word in options.split()]
    extra = ["-"] if options == "-" else [str(CHAIN)]
    ran = decode(*extra, *words)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert ran.err.startswith("rpcinspect: ")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--wrong", "No such option"),
        ("--message -1", "'--message'"),
        ("--message x", "'--message'"),
        ("--format xml", "'xml' is not one of"),
        ("--message", "requires an argument"),
    ],
)
def test_wrong_options_are_told(options: str, complaint: str) -> None:
    ran = decode(CHAIN, *options.split())
    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.err  # the rest of the words is typer's


def test_message_beyond_the_last() -> None:
    ran = decode(CHAIN, "--message", 99999)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "rpcinspect: there is no message 99999, the last is 23\n"
    assert "nor any other" in decode(HIDDEN, "--message", 0).err


@pytest.mark.parametrize("index", [0, 6, 11, 23])
def test_message_as_json_is_the_line_of_the_whole_output(index: int) -> None:
    whole = [line for line in decode(CHAIN, "--format", "jsonl").objects if line["kind"] == "message"]
    assert decode(CHAIN, "--format", "jsonl", "--message", index).objects == [whole[index]]


def test_every_message_of_a_capture_can_be_shown_in_full() -> None:
    for index in range(38):
        ran = decode(PROFILED, "--message", index)
        assert ran.code == 0
        assert ran.out.startswith(f"message {index}: ")
        assert "bytes of message id: " in ran.out


def test_output_goes_to_a_file_without_styles(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    ran = decode(BOOM, "-o", path)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"rpcinspect: wrote {path}, {path.stat().st_size:,} bytes\n"
    assert path.read_text() == decode(BOOM).out
    assert decode(BOOM, "--format", "jsonl", "-o", path).out == ""
    assert path.read_text() == decode(BOOM, "--format", "jsonl").out


def test_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    for target in (tmp_path, tmp_path / "absent" / "x", Path("/dev/full")):
        for options in ((), ("--format", "jsonl"), ("--message", "6"), ("--roundtrip",)):
            ran = decode(CHAIN, "-o", target, *options)
            assert (ran.code, ran.out) == (2, "")
            assert ran.err.startswith(f"rpcinspect: {target}: can't be written: ")
            assert len(ran.err.splitlines()) == 1


def test_output_never_overwrites_an_input_nor_what_a_mistyped_one_would_replace(tmp_path: Path) -> None:
    capture = tmp_path / "run.pcap"
    capture.write_bytes(CHAIN.read_bytes())
    (tmp_path / "link").symlink_to(capture)
    assert decode(capture, "-o", tmp_path / "link").code == 2
    assert capture.read_bytes() == CHAIN.read_bytes()
    kept = tmp_path / "earlier.txt"
    kept.write_text("precious")
    assert decode(tmp_path / "absent", "-o", kept).code == 3
    assert kept.read_text() == "precious"


def test_check_and_strict() -> None:
    assert decode(CHAIN, "--check", "--strict").code == 0
    assert decode(HIDDEN, "--check").code == 1
    assert decode(HIDDEN, "--check", "--format", "jsonl").code == 1
    assert decode(HIDDEN).code == 0


@pytest.mark.parametrize("form", ["table", "jsonl"])
def test_a_capture_without_rpc_is_an_error(form: str, tmp_path: Path) -> None:
    for case in CAUSED["no-rpc", "error"]:
        path = case.path(tmp_path)
        ran = decode(path, "--check", "--format", form)
        assert ran.code == 1
        assert decode(path, "--format", form).code == 0
        assert (ran.out + ran.err).count("No RPC messages: ") == (1 if form == "table" else 2)


def test_roundtrip_reports_in_words() -> None:
    ran = decode(CHAIN, "--roundtrip")
    assert (ran.code, ran.out) == (0, "24 of 24 messages came out byte for byte (100 %)\n")


def test_no_hash_leaves_hashes_out() -> None:
    lines = decode(CHAIN, "--format", "jsonl", "--no-hash").objects
    tensors = [t for line in lines if line["kind"] == "message" for t in line["tensors"]]
    assert tensors
    assert {t["sha256"] for t in tensors} == {None}


def test_stream_counts_completions_in_their_order() -> None:
    ran = decode(BOOM, "--stream", "--format", "jsonl")
    lines = ran.objects
    assert [line["kind"] for line in lines[:32]] == ["message"] * 32
    assert [line["index"] for line in lines[:32]] == list(range(32))
    ends = [line["end_time_ns"] for line in lines[:32]]
    assert ends == sorted(ends)
    assert lines[-1]["kind"] == "summary"
    requests = {line["index"]: line for line in lines[:32] if line["request"]}
    assert {line["id"] for line in lines[:32] if line["answers"] is not None} == {
        m["id"] for m in requests.values()
    }


def test_stream_as_table_shows_what_the_plain_table_shows() -> None:
    def what(out: str) -> list[str]:
        return sorted(
            line.split("  ")[-1] for line in out.splitlines() if "gradients " in line or "(" in line
        )

    assert what(decode(BOOM, "--stream").out) == what(decode(BOOM).out)


def test_errors_of_python_callers_are_exceptions(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="No such file"):
        DecodeCommand(files=[str(tmp_path / "absent")]).run()
    with pytest.raises(OutputError, match="can't be written"):
        DecodeCommand(files=[str(CHAIN)], output=tmp_path).run()


# --- hostile text -------------------------------------------------------------------------------------------

SUBSTITUTES: dict[str, tuple[str, dict[bytes, bytes]]] = {
    "terminal commands": (
        "basic_chain.pcap",
        {b"worker0": b"\x1b[31mAB", b"basic_chain": b"\x1b]0;pwned\x07\n"},
    ),
    "bidi and controls": (
        "basic_chain.pcap",
        {b"worker0": "\u202eabcd".encode(), b"basic_chain": b"a\nb\rc\x00\x7f\xc2\x9b\x08x"},
    ),
    "not UTF-8": (
        "basic_chain.pcap",
        {b"worker0": b"\xff\xfe\x80\x1bkem", b"basic_chain": b"\xc0\x80chain___\n"},
    ),
    "error text": (
        "bwd_boom.pcap.gz",
        {b"gradient exploded on purpose": b"\x1b[2J\n\x07\x1b]8;;http://evil\x07 xxxx"},
    ),
    "addresses": ("basic_chain.pcap", {b"127.0.0.1": b"\x1b[31m\n\x07ab"}),
    "devices, channels, transports": (
        "basic_chain.pcap",
        {b"cpu": b"\x1b\x07\n", b"basic": b"\x1b[31m", b"uv": b"\x1b\n"},
    ),
    "profiler events": (
        "profiled_legacy.pcap",
        {b"aten::mul": b"at\x1b[31m\xffl", b"__start_profile": b"\xe2\x80\xae_start_pro\n\x07"},
    ),
    "operators": ("profiled_legacy.pcap", {b"aten::add": b"at\x1b[31mdd", b"plus_one": b"pl\x9b\x1b\n\rne"}),
}


@pytest.mark.parametrize("case", SUBSTITUTES)
@pytest.mark.parametrize(
    "options",
    [
        "--all",
        "--format jsonl",
        "--format json",
        "--stream",
        "--stream --format jsonl",
    ],
)
def test_hostile_text_reaches_no_terminal(case: str, options: str, tmp_path: Path) -> None:
    path = hostile(case, tmp_path)
    ran = decode(path, *options.split())
    assert ran.code == 0
    assert visible(ran.out + ran.err)
    if "jsonl" in options:
        assert ran.objects[-1]["kind"] == "summary"
    elif "format" in options:
        assert json.loads(ran.out)


@pytest.mark.parametrize("case", ["terminal commands", "not UTF-8", "error text", "profiler events"])
def test_hostile_text_in_full_reaches_no_terminal(case: str, tmp_path: Path) -> None:
    path = hostile(case, tmp_path)
    for index in (0, 4, 6, 7, 18, 19):
        ran = decode(path, "--message", index)
        assert ran.code == 0
        assert visible(ran.out)


def hostile(case: str, tmp_path: Path) -> Path:
    """A capture with texts replaced by others of the same length."""
    name, substitutes = SUBSTITUTES[case]
    data = content(name)
    for text, evil in substitutes.items():
        assert len(text) == len(evil)
        assert text in data
        data = data.replace(text, evil)
    path = tmp_path / "hostile.pcap"
    path.write_bytes(data)
    return path


def test_json_of_hostile_names_is_still_the_name(tmp_path: Path) -> None:
    workers: list[Any] = [
        line["name"]
        for line in decode(hostile("terminal commands", tmp_path), "--format", "jsonl").objects
        if line["kind"] == "worker"
    ]
    assert "\x1b[31mAB" in workers
    lines = decode(hostile("not UTF-8", tmp_path), "--format", "jsonl").objects
    assert "\\xff\\xfe\\x80\x1bkem" in [line["name"] for line in lines if line["kind"] == "worker"]
