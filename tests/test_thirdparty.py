"""Captures of other projects: how each of them ends, and their streams beside tshark's.

tshark's `follow` shows a stream in its own way, and where the bytes differ from ours is said here:

* it has no mark for what a snap length cut off, and none for what is missing at the end;
* it ends a stream at a gap that nobody acknowledged, whatever was captured behind it;
* before the first captured byte of a stream without a SYN it puts a gap where the other side's
  acknowledgments told an earlier beginning; ours begins with the lowest captured byte;
* `DIFFERENT` lists the files for which it is something else.
"""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rpcinspect import exit_codes
from tests.cli.runner import decode
from tests.places import foreign, recorded
from tests.tensorpipe.reading import OneWay, read_streams
from tests.thorough import each_kind

NO_CAPTURE = "pcap version 1.4 is not known"  # 1.4 does not exist
NO_PACKETS = "No RPC messages: the capture holds no packets."
NO_TCP = "No RPC messages: the capture holds no TCP payload."
TCP = "No RPC messages: the capture's TCP payload ("

ENDINGS: dict[str, str] = {
    **dict.fromkeys(
        (
            "be_ns__PcapPlusPlus__nanosecs_big_endian.pcap",
            "gap__suricata-verify__dc06_input.pcap",
            "gap__suricata-verify__ff8d_input.pcap",
            "gap__suricata-verify__input.pcap",
            "gap__suricata-verify__tcp-leading-gap.pcap",
            "gre__tcpdump__pptp.pcap",
            "gre__zeek__tunnel-direct-bypass.pcap",
            "gzip_tcp__scapy__dcerpc_msdrsr_cracknames.pcapng.gz",
            "gzip_tcp__scapy__dcerpc_msnrpc.pcapng.gz",
            "gzip_tcp__scapy__dcerpc_privacy_krb.pcapng.gz",
            "gzip_tcp__scapy__http_head.pcapng.gz",
            "iplen0_tso_tcp__tcpdump__ipv4_tcp_http_xml_tso.pcap",
            "iplen0_tso_tcp__tcpflow__bug7.pcap",
            "ipv4_frag_tcp__tcpdump__bgp-bgp_capabilities_print-oobr-2.pcap",
            "ipv4_frag_tcp__tcpdump__bgp_pmsi_tunnel-oobr.pcap",
            "ipv4_frag_tcp__tcpdump__rpki-rtr-oobr.pcap",
            "ipv4_frag_tcp__zeek__fragmented-4.pcap",
            "ipv6_tcp__suricata-verify__input.pcap",
            "keepalive__arkime__websocket.pcap",
            "keepalive__nDPI__h323.pcap",
            "ng_multi_iface_tcp__PcapPlusPlus__gtpv2.pcap",
            "ng_multi_iface_tcp__nDPI__knxip.pcapng",
            "null_tcp__arkime__smtp-html.pcap",
            "null_tcp__tcpdump__tcp_rst_diag_payload-trunc.pcap",
            "null_tcp__tcpdump__tcp_rst_diag_payload.pcap",
            "out_of_order__arkime__http-tcp-seq-issue.pcap",
            "out_of_order__tcpflow__test5-lines-randomized.pcap",
            "out_of_order__zeek__fuzz-1011.pcap",
            "out_of_order__zeek__hrr.pcap",
            "partial_overlap__suricata-verify__08c3_input.pcap",
            "partial_overlap__suricata-verify__3baa_input.pcap",
            "partial_overlap__suricata-verify__4175_input.pcap",
            "partial_overlap__suricata-verify__bf9d_input.pcap",
            "partial_overlap__suricata-verify__c9e6_input.pcap",
            "partial_overlap__suricata-verify__f090_input.pcap",
            "partial_overlap__suricata-verify__input.pcap",
            "raw101_tcp__suricata-verify__039d_input.pcap",
            "raw12__PcapPlusPlus__four_ipv6_http_streams.pcap",
            "raw12__PcapPlusPlus__many_interfaces-1.pcapng",
            "rexmit_different_data__PcapPlusPlus__Bgp_open_malformed.pcap",
            "rexmit_different_data__PcapPlusPlus__Smtp.pcap",
            "rexmit_different_data__suricata-verify__tcp-overlap.pcap",
            "rexmit_different_data__tcpdump__bgp-shutdown-communication.pcapng",
            "rexmit_different_data__tcpdump__kday3.pcap",
            "rexmit_different_data__tcpdump__kday4.pcap",
            "rexmit_different_data__tcpdump__kday7.pcap",
            "rexmit_different_data__tcpdump__of10_inv_OFPST_FLOW.pcap",
            "rexmit_same__suricata-verify__no-3whs.pcap",
            "rexmit_same__tcpdump__bgp-infinite-loop.pcap",
            "seq_wrap__PcapPlusPlus__one_tcp_stream_max_seq.pcap",
            "sll2_tcp__zeek__openjdk-25.0.2-zeek.org.pcap",
            "sll_tcp__tcpdump__bgp-orf.pcapng",
            "snaplen_cut_tcp__tcpdump__bgp_mvpn_6_and_7_oobr.pcap",
            "snaplen_cut_tcp__tcpdump__tcp_rst_data-trunc.pcap",
            "time_backwards_tcp__arkime__y2038-bgp.pcap",
            "time_backwards_tcp__zeek__variant-03-cl_negative.pcap",
            "time_backwards_tcp__zeek__variant-09-te_obs_fold.pcap",
            "urgent__suricata-verify__tcp-urgent1.pcap",
            "urgent__tcpdump__hoobr_nfs_printfh.pcap",
            "vlan_tcp__suricata-verify__9e6e_input.pcap",
        ),
        TCP,
    ),
    **dict.fromkeys(
        (
            "caplen_gt_len__tcpdump__pim_header_asan-2.pcap",
            "caplen_gt_len__tcpdump__rsvp-rsvp_obj_print-oobr.pcap",
            "dlt228_229_tcp__suricata-verify__input.pcap",
            "fcs_high_bits__tcpdump__heap-overflow-2.pcap",
            "ip_options_tcp__suricata-verify__input.pcap",
            "ip_options_tcp__suricata-verify__test.pcap",
            "ipv6_exthdr_tcp__zeek__ip6-hoa-tcp-good-chksum.pcap",
            "ipv6_frag__libpcap__ipv6_ext_headers.pcap",
            "ipv6_frag__suricata-verify__frag-26.pcap",
            "ipv6_frag__tcpdump__ipv6_frag6_negative_len.pcap",
            "kuznetzov__pcap-parser__modified-format.pcap",
            "le_ns__PcapPlusPlus__nanosecs.pcap",
            "le_ns__tcpdump__tcp-handshake-nano.pcap",
            "mpls__tcpdump__mpls-label-heapoverflow.pcap",
            "ng_le_be_sections__pcapng-test-generator__test202.pcapng",
            "ng_multi_iface_tcp__gopacket__epb.pcapng",
            "ng_multi_iface_tcp__nDPI__custom_rules_same-ip_multiple_ports.pcapng",
            "ng_simple_packet__pcapng-test-generator__test101.pcapng",
            "ng_simple_packet__pcapng-test-generator__test201.pcapng",
            "ng_tsoffset__gopacket__test008.pcapng",
            "pcap_v1.4_v2.5__libpcap__pcap-invalid-version-2.pcap",
            "pppoe__PcapPlusPlus__PPPoESession.pcap",
            "raw101_tcp__suricata-verify__input.pcap",
            "sll2_tcp__PcapPlusPlus__Sll2Packet.pcap",
            "sll_tcp__tcpdump__mptcp-aa-echo.pcap",
            "snaplen_cut_tcp__tcpdump__heapoverflow-tcp_print.pcap",
            "truncated_file__dpkt__truncated_dns_2.pcap",
            "truncated_file__joincap__unexpected_eof_on_second_packet.pcap",
            "truncated_file__scapy__bad_rsn_parsing_overrides_ssid.pcap",
            "truncated_file__suricata-verify__fuzz.pcap",
            "tuple_reuse__suricata-verify__908b_input.pcap",
            "tuple_reuse__suricata-verify__input.pcap",
            "vlan_tcp__suricata-verify__5784_input.pcap",
            "vlan_tcp__suricata-verify__input.pcap",
            "zero_len_pkt__tcpdump__icmp6_mobileprefix_asan.pcap",
        ),
        NO_TCP,
    ),
    **dict.fromkeys(
        (
            "fcs_high_bits__libpcap__linktype-reserved-field-not-zero.pcap",
            "ng_be__pcapng-test-generator__test003.pcapng",
            "ng_be__pcapng-test-generator__test013.pcapng",
            "ng_be__pcapng-test-generator__test015.pcapng",
        ),
        NO_PACKETS,
    ),
    **dict.fromkeys(
        ("pcap_v1.4_v2.5__libpcap__pcap-invalid-version-1.pcap",),
        NO_CAPTURE,
    ),
}
"""Every file → what is said: why there are no messages (exit code 0), or that it is no capture (3)."""


def test_the_table_is_complete() -> None:
    assert sorted(ENDINGS) == sorted(path.name for path in foreign("thirdparty").glob("*.pcap*"))


@pytest.mark.parametrize("name", ENDINGS)
def test_every_file_ends_well(name: str) -> None:
    done = decode(foreign(f"thirdparty/{name}"), "--format", "jsonl")
    expected = ENDINGS[name]
    assert done.code == (exit_codes.UNREADABLE if expected == NO_CAPTURE else exit_codes.OK)
    line, *more = done.err.splitlines()
    assert expected in line
    assert [text for text in more if "link type 106" not in text] == []  # of which there is one file
    assert not any(one["kind"] == "message" for one in done.objects)


# --- streams ---


@dataclass
class Followed:
    """One stream as tshark shows it."""

    nodes: list[str] = field(default_factory=list)
    chunks: tuple[list[bytes], list[bytes]] = field(default_factory=lambda: ([], []))

    def flows(self) -> tuple[str, str]:
        """Texts of the two directions, the first node's first."""
        first, second = map(_endpoint, self.nodes)
        return f"{first}>{second}", f"{second}>{first}"


Bytes = list[int | None]
"""Bytes of a stream, None where one is missing."""

MISSING = re.compile(rb"\[(\d+) bytes missing in capture file\]\0?")


def _endpoint(text: str) -> str:
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def follow(path: Path, count: int) -> list[Followed]:
    """The first streams of a file, in the order of their numbers; those that there are not have no bytes."""
    streams = [Followed() for _ in range(count)]
    taps = [part for number in range(count) for part in ("-z", f"follow,tcp,raw,{number}")]
    command = ["tshark", "-n", "-q", "-r", str(path), *taps]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    current = Followed()
    for line in done.stdout.splitlines():
        if line.startswith("Filter: tcp.stream eq "):
            current = streams[int(line.split()[-1])]
        elif line.startswith("Node "):
            current.nodes.append(line.split(": ", 1)[1])
        elif line and not line.startswith(("=", "Follow: ")):
            current.chunks[line.startswith("\t")].append(bytes.fromhex(line))
    return streams


def seen_by_tshark(chunks: list[bytes]) -> Bytes:
    found: Bytes = []
    for chunk in chunks:
        gap = MISSING.fullmatch(chunk)
        found += [None] * int(gap[1]) if gap else list(chunk)
    return found


def seen_by_us(stream: OneWay | None) -> Bytes:
    if stream is None:
        return []
    found: Bytes = list(stream.content)
    for start, end in stream.holes:
        found[start:end] = [None] * (end - start)
    return found


def trimmed(content: Bytes) -> Bytes:
    """Without what is missing before the first byte and behind the last."""
    there = [at for at, byte in enumerate(content) if byte is not None]
    return content[there[0] : there[-1] + 1] if there else []


def pairs(path: Path) -> Iterator[tuple[str, OneWay | None, Bytes]]:
    """(flow, our stream, tshark's bytes) of every direction that either has bytes of.

    Connections between the same two endpoints are matched in their order.
    """
    talks = read_streams([path]).talks
    ours: dict[frozenset[str], list[dict[str, OneWay | None]]] = defaultdict(list)
    for talk in talks:
        ours[frozenset(talk)].append(talk)
    for followed in follow(path, len(talks) + 1):
        flows = followed.flows()
        known = ours[frozenset(flows)]
        talk = known.pop(0) if known else {}
        for flow, chunks in zip(flows, followed.chunks, strict=True):
            yield flow, talk.get(flow), seen_by_tshark(chunks)
    for rest in ours.values():
        for talk in rest:
            for flow, stream in talk.items():
                yield flow, stream, []


def difference(stream: OneWay | None, theirs: Bytes) -> str | None:
    """What is not equal, in words; None if only what tshark leaves out everywhere."""
    whole = seen_by_us(stream)
    ours, theirs = trimmed(whole), trimmed(theirs)
    if ours == theirs:
        return None
    if stream is not None and stream.cut_bytes and [byte for byte in ours if byte is not None] == theirs:
        return None
    if stream is not None and ours[: len(theirs)] == theirs:
        ended = len(whole) - len(whole[next(_there(whole)) :]) + len(theirs) if theirs else 0
        if whole[ended] is None and (stream.acked is None or stream.acked <= next(_there(whole, ended))):
            return None
    return f"{len(ours)} and {len(theirs)} bytes, missing are {ours.count(None)} and {theirs.count(None)}"


def _there(content: Bytes, start: int = 0) -> Iterator[int]:
    """Where there are bytes."""
    return (at for at in range(start, len(content)) if content[at] is not None)


TORCH = ("two", "kitchen", "snap300", "chan_mpt", "hosts4", "rref", "stress_lossy")
WITH_STREAMS = [
    *(f"torch/{name}.pcap" for name in TORCH),
    *(f"thirdparty/{name}" for name, ending in ENDINGS.items() if ending == TCP),
]


DIFFERENT = {
    # a first fragment whose rest is missing: tshark shows nothing of it, we what is there
    "ipv4_frag_tcp__tcpdump__bgp-bgp_capabilities_print-oobr-2.pcap": [
        "158 and 0 bytes, missing are 0 and 0"
    ],
    "ipv4_frag_tcp__tcpdump__bgp_pmsi_tunnel-oobr.pcap": ["46 and 0 bytes, missing are 0 and 0"],
    "ipv4_frag_tcp__tcpdump__rpki-rtr-oobr.pcap": ["10 and 0 bytes, missing are 0 and 0"],
    # fragments that overlap with other bytes: tshark keeps the last copy, we the first and report both
    "ipv4_frag_tcp__zeek__fragmented-4.pcap": ["69 and 69 bytes, missing are 0 and 0"],
    # the SYN was captured last: tshark makes a second stream of it and cuts the first
    "out_of_order__tcpflow__test5-lines-randomized.pcap": [
        "120 and 0 bytes, missing are 0 and 0",
        "1884 and 424 bytes, missing are 0 and 0",
    ],
    # no SYN, and later packets with lower numbers: tshark begins with the first packet, we with the lowest
    "out_of_order__zeek__fuzz-1011.pcap": ["2279538 and 209 bytes, missing are 2278911 and 0"],
}
"""File → how the trimmed streams differ, ours first."""


def kind(name: str) -> str:
    """What is odd about a capture, by its name; each that tshark shows differently is one of its own."""
    return name if Path(name).name in DIFFERENT else name.partition("__")[0]


@pytest.mark.parametrize("name", each_kind(WITH_STREAMS, kind))
def test_streams_are_those_of_tshark(name: str) -> None:
    """Quick, one capture of each kind."""
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    path = recorded(name) if name.startswith("torch/") else foreign(name)
    found = [difference(stream, theirs) for _, stream, theirs in pairs(path)]
    assert [text for text in found if text] == DIFFERENT.get(path.name, [])


DROPPED = re.compile(r"the one in packet (\d+) dropped")


def test_copies_that_differ_are_reported() -> None:
    """The files that whoever collected them calls so, and a few more; tshark shows the first copy, too."""
    folder = foreign("thirdparty")
    found: dict[str, list[int]] = {}
    for name in ENDINGS:
        for one in decode(folder / name, "--format", "jsonl").objects:
            if one["kind"] == "finding" and one["code"] == "conflicting-overlap":
                packets = found.setdefault(name, [])
                packets += [int(number) for number in DROPPED.findall(one["text"])]
    with (folder / "INDEX.tsv").open() as index:
        rows = list(csv.DictReader(index, delimiter="\t"))
    assert {row["file"] for row in rows if row["attribute"] == "rexmit_different_data"} <= set(found)
    assert found == CONFLICTS


CONFLICTS = {
    "ipv4_frag_tcp__zeek__fragmented-4.pcap": [5],
    "partial_overlap__suricata-verify__08c3_input.pcap": [3],
    "partial_overlap__suricata-verify__3baa_input.pcap": [3],
    "partial_overlap__suricata-verify__4175_input.pcap": [3],
    "partial_overlap__suricata-verify__bf9d_input.pcap": [3],
    "partial_overlap__suricata-verify__c9e6_input.pcap": [3],
    "partial_overlap__suricata-verify__f090_input.pcap": [3],
    "partial_overlap__suricata-verify__input.pcap": [3],
    "rexmit_different_data__PcapPlusPlus__Bgp_open_malformed.pcap": [2, 3, 3, 4],
    "rexmit_different_data__PcapPlusPlus__Smtp.pcap": [7, 8],
    "rexmit_different_data__suricata-verify__tcp-overlap.pcap": [6],
    "rexmit_different_data__tcpdump__bgp-shutdown-communication.pcapng": [2],
    "rexmit_different_data__tcpdump__kday3.pcap": [9],
    "rexmit_different_data__tcpdump__kday4.pcap": [9, 13],
    "rexmit_different_data__tcpdump__kday7.pcap": [9, 13],
    "rexmit_different_data__tcpdump__of10_inv_OFPST_FLOW.pcap": [2],
}
"""File → packets of which a finding says that their bytes differ from those of an earlier one."""
