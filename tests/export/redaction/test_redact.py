"""Whole captures, redacted: nothing secret is left, everything else is as it was."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rpcinspect.views.text.detail import detail
from tests.cli.runner import rpcinspect
from tests.decoded import decode
from tests.export.redaction.redacting import CAPTURES, decoded, redacted, skeleton
from tests.places import content, recordings
from tests.thorough import representative
from tests.views.opened import file_console, opened

VAULT = CAPTURES / "redaction/vault.pcap.gz"
HUGE = 300_000
"""Bytes of captures that are left out."""
SMALL = [
    *("basic_chain.pcap", "bwd_boom.pcap.gz", "dtype_zoo.pcap.gz", "ps_race.pcap.gz", "rref_relay.pcap.gz"),
    *("profiled_legacy.pcap", "reinit.pcap.gz", "views_alias.pcap.gz", "devmap_cpu.pcap.gz"),
    *("faults/dies.pcap.gz", "faults/leaks.pcap.gz", "faults/unfit.pcap.gz", "logs/killed.pcap.gz"),
    *("transport_matrix_uv_only.pcap.gz", "pairs/error_nested.pcap.gz", "redaction/vault.pcap.gz"),
]


@pytest.mark.parametrize("network", [True, False], ids=["pcap", "log"])
@pytest.mark.parametrize("name", SMALL)
def test_bundled_captures_tell_the_same(name: str, network: bool, tmp_path: Path) -> None:
    path = CAPTURES / name
    after = decoded(redacted(path, network=network), tmp_path)
    assert skeleton(after) == skeleton(decode(path))


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["torch", "torch-suite", "versions"])
def test_other_captures_tell_the_same(folder: str, tmp_path: Path) -> None:
    """Quick, each fourth of torch's tests."""
    for path in representative(recordings(folder)):
        if path.stat().st_size > HUGE:
            continue
        before = skeleton(decode(path))
        after = skeleton(decoded(redacted(path, network=False), tmp_path))
        del before["problems"], after["problems"]  # packets have some of their own
        assert after == before, path.name


def truth() -> dict[str, list[float]]:
    lines = (CAPTURES / "redaction/vault.truth").read_text().splitlines()
    events = [json.loads(line.removeprefix("TRUTH ")) for line in lines]
    [found] = [event for event in events if event["event"] == "secrets"]
    return found


def forms() -> Iterator[tuple[str, bytes]]:
    """Every secret of the job, in every form that it could be left in."""
    said = truth()
    mark = str(said["mark"]).encode()
    yield "plain", mark
    for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        yield encoding, mark.decode().encode(encoding)
    yield "hex", mark.hex().encode()
    yield "backwards", mark[::-1]
    for skip in range(3):  # base64 of it at each place of a longer text
        encoded = base64.b64encode(bytes(skip) + mark)
        yield f"base64 {skip}", encoded[4 * skip // 3 + 1 : -4]
    for code in ("<i2", "<i4", "<i8", "<f2", "<f4", "<f8", ">f8"):
        yield code, np.array(list(mark[:5]), dtype=code).tobytes()
    yield "bfloat16", b"".join(struct.pack("<f", c)[2:] for c in mark[:5])
    yield "codes", b"[%b" % ", ".join(str(c) for c in mark[:4]).encode()
    for number in said["numbers"]:
        size = (int(number).bit_length() + 7) // 8
        yield f"{number}", int(number).to_bytes(size, "little")
        yield f"-{number}", (-int(number)).to_bytes(size + 1, "little", signed=True)
        yield f"digits {number}", str(number).encode()
    for number in said["floats"]:
        yield f"{number}", struct.pack("<d", number)
        yield f"big {number}", struct.pack(">d", number)


@pytest.mark.parametrize("network", [True, False], ids=["pcap", "log"])
def test_no_secret_is_left_in_any_form(network: bool, tmp_path: Path) -> None:
    data = redacted(VAULT, network=network)
    original = content(VAULT)
    for form, secret in forms():
        assert secret not in data, form
    assert b"Zq7" not in data.replace(b"\0", b"")
    assert b"vault" not in data
    there = {form for form, secret in forms() if secret in original}
    numbers = {str(number) for number in truth()["numbers"]}
    assert there >= {"plain", "utf-16-le", "<i8", "<f4", "<f8", "bfloat16"} | numbers


def cut(data: bytes, size: int) -> bytes:
    """A capture of microseconds, little-endian, as a sniffer with a snap length has it."""
    out, at = [data[:24]], 24
    while at < len(data):
        time, captured, length = struct.unpack_from("<8sII", data, at)
        out.append(
            struct.pack("<8sII", time, min(captured, size), length) + data[at + 16 :][: min(captured, size)]
        )
        at += 16 + captured
    return b"".join(out)


@pytest.mark.parametrize("network", [True, False], ids=["pcap", "log"])
def test_messages_that_lack_bytes_keep_no_secret(network: bool, tmp_path: Path) -> None:
    path, mark = tmp_path / "cut.pcap", str(truth()["mark"]).encode()
    for size in (400, 600, 800, 1_000):
        path.write_bytes(cut(content(VAULT), size))
        assert mark in path.read_bytes(), size
        data = redacted(path, network=network)
        assert mark not in data, size
        assert b"Zq7" not in data, size


def test_no_secret_is_left_in_what_is_shown_of_it(tmp_path: Path) -> None:
    path = tmp_path / "redacted.rpclog"
    path.write_bytes(redacted(VAULT, network=False))
    for form in ("jsonl", "perfetto"):
        shown = rpcinspect("decode", path, "--format", form).out
        assert "Zq7" not in shown, form
        assert "vault" not in shown
        assert str(truth()["numbers"][1]) not in shown
    with opened(path) as session:
        assert len(session.messages) == 82
        for record in session.messages:  # as `decode --message N --all` does
            console, out = file_console()
            for part in detail(record, session.session, session.bytes, rows=None):
                console.print(part)
            assert out.getvalue()
            assert "Zq7" not in out.getvalue(), record


def test_what_is_compressed_inside_is_gone_too(tmp_path: Path) -> None:
    """Strings of gzip and zlib in the output, whatever they hold."""
    data = redacted(VAULT, network=False)
    assert b"PK\x03\x04" not in data
    assert b"\x1f\x8b\x08" not in data


PAIRS = ["again", "function", "learning_rate", "dtype", "summation", "error", "call_dropped", "renamed"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    for name in ("base", *PAIRS):
        path = CAPTURES / f"pairs/{name}.pcap.gz"
        (folder / f"{name}.pcap").write_bytes(redacted(path, network=True))
    return folder


@pytest.mark.parametrize("name", PAIRS)
def test_runs_part_where_they_parted(name: str, pairs: Path) -> None:
    original = rpcinspect(
        "diff", CAPTURES / "pairs/base.pcap.gz", CAPTURES / f"pairs/{name}.pcap.gz", "--format", "jsonl"
    )
    made = rpcinspect("diff", pairs / "base.pcap", pairs / f"{name}.pcap", "--format", "jsonl")
    assert made.code == original.code
    before, after = original.objects[-1], made.objects[-1]
    assert after["same"] == before["same"]
    places = [None if v["first"] is None else (v["first"]["a"], v["first"]["b"]) for v in (before, after)]
    assert places[0] == places[1]


def test_another_key_gives_other_values() -> None:
    path = CAPTURES / "basic_chain.pcap"
    one, two = (redacted(path, network=True, key=key) for key in (b"1", b"2"))
    assert len(one) == len(two)
    assert one != two
    assert redacted(path, network=True, key=b"1") == one


def test_it_can_be_redacted_again(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(redacted(CAPTURES / "dtype_zoo.pcap.gz", network=True))
    again = decoded(redacted(path, network=True), tmp_path)
    assert skeleton(again) == skeleton(decode(CAPTURES / "dtype_zoo.pcap.gz"))
