"""Damaged copies of captures, held against the intact one.

In: a capture that has all its packets. `Original` decodes it once; that decode is the truth here, and other
tests hold it to what the workers printed. `judge` leaves packets out, decodes what is left and counts what
became of every message and tensor:

    original = Original(path)
    verdict = original.judge(keep_head_cut(len(original), 0.35))
    verdict.counts["message lost"], verdict.faults

Which bytes a copy still has is computed from the packets alone (tests/carriers.py): a byte is there if any
packet that carried it was kept. A message is recognised by its direction and its id, which an agent gives out
once. Tensors are filled with random bytes before anything is lost: those of a real job are often equal, and
one in the place of another would not be seen.
"""

from __future__ import annotations

import os
import random
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from rpcinspect.pipeline import Decoding, Options
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.tensorpipe.records import Placement, TpTensor
from tests.carriers import Carriers, Needs, packets_of
from tests.places import OTHER_JOBS, all_foreign, recordings

Keep = Sequence[bool]
"""For each packet of a capture, whether the copy has it."""

# --- how packets are lost ---


def keep_head_cut(packets: int, share: float) -> list[bool]:
    """The capture was started late: the first `share` of the packets is not there."""
    first = int(packets * share)
    return [at >= first for at in range(packets)]


def keep_tail_cut(packets: int, share: float) -> list[bool]:
    """The capture was stopped early: the last `share` is not there."""
    end = packets - int(packets * share)
    return [at < end for at in range(packets)]


def keep_both_cut(packets: int, share: float) -> list[bool]:
    """`share` is not there at each end."""
    first = int(packets * share)
    return [first <= at < packets - first for at in range(packets)]


def keep_random(packets: int, share: float, seed: int) -> list[bool]:
    """Each packet is lost by itself with this probability."""
    draw = random.Random(seed).random
    return [draw() >= share for _ in range(packets)]


def keep_bursts(packets: int, share: float, seed: int, *, mean: int = 20) -> list[bool]:
    """Packets are lost in runs of this mean length, as a kernel drops them whose buffer is full."""
    rnd = random.Random(seed)
    keep: list[bool] = []
    while len(keep) < packets:
        keep += [True] * (1 + int(rnd.expovariate(share / mean / (1 - share))))
        keep += [False] * (1 + int(rnd.expovariate(1 / mean)))
    return keep[:packets]


# --- truth ---


Key = tuple[str, int]
"""Direction and id of a message."""


class TensorTruth(Struct, frozen=True):
    """A tensor whose bytes are in the intact capture."""

    data: bytes
    needs: Needs


class MessageTruth(Struct, frozen=True):
    """A message of the intact capture."""

    from_client: bool
    descriptor: bytes
    payloads: tuple[bytes, ...]
    needs: Needs
    tensors: tuple[TensorTruth | None, ...]
    """None: empty, or not on the network."""


def key_of(record: RpcRecord) -> Key:
    return str(record.tp.flow), record.rpc.message.id


class Verdict(Struct):
    """What became of the messages and tensors of one or more copies."""

    counts: Counter[str] = field(default_factory=Counter)
    """By what `MESSAGES` and `TENSORS` explain."""
    faults: list[str] = field(default_factory=list)
    """Everything that is wrong, or lost although its bytes are there."""

    def __iadd__(self, other: Verdict) -> Verdict:
        self.counts += other.counts
        self.faults += other.faults
        return self

    def share(self, part: str, *whole: str) -> float:
        """Per cent; 100 of nothing."""
        total = sum(self.counts[name] for name in whole)
        return 100 * self.counts[part] / total if total else 100.0


MESSAGES = {
    "message out": "all its bytes are there, and it came out right",
    "message lost": "all its bytes are there, but it did not come out, or not whole",
    "message rebuilt": "bytes are missing, but it came out whole and right",
    "message partial": "bytes are missing, and it came out with what is left",
    "message cut": "bytes are missing, and it did not come out",
    "message wrong": "it came out with bytes that it never had, or was never sent",
}
TENSORS = {
    "tensor right": "all its bytes are there: certain, and the right ones",
    "tensor uncertain": "all its bytes are there: uncertain",
    "tensor missing": "all its bytes are there: said to be missing",
    "tensor cut": "bytes are missing, and it is not said to be whole",
    "tensor wrong": "said to be certain, with bytes that are not its own",
}
"""Of messages that came out. Empty tensors, and those that never were on the network, are not counted."""


class Original:
    """An intact capture: its packets, and what was said in it."""

    def __init__(self, path: Path) -> None:
        self.name = path.name.split(".pcap")[0]
        self.header, self.packets = packets_of(path)
        self.channels: set[str] = set()
        """Names of the channels that its tensors use."""
        carriers = Carriers(self.packets)
        offsets = [packet.offset for packet in self.packets]
        self.messages: dict[Key, MessageTruth] = {}
        self._marked: dict[int, bytearray] = {}
        """Records of packets in which tensors were filled."""
        with Decoding([str(path)]) as decoding:
            for record in decoding.records():
                key, truth = key_of(record), self._truth(record, carriers, offsets)
                assert key not in self.messages, f"{self.name}: {key} twice"
                self.messages[key] = truth
                if any(truth.tensors):
                    self.channels |= {channel for _, channel in record.tp.pipe.channels}
        for number, marked in self._marked.items():
            self.packets[number] = replace(self.packets[number], record=bytes(marked))

    def __len__(self) -> int:
        return len(self.packets)

    def _truth(self, record: RpcRecord, carriers: Carriers, offsets: list[int]) -> MessageTruth:
        tp = record.tp
        assert tp.payload_missing is None, "the capture lacks bytes of its own messages"
        stream = self.packets[tp.packet - 1].stream
        assert stream is not None
        assert stream[0] == str(tp.flow)
        needs = carriers.needs(stream, tp.offset, tp.offset + tp.length)
        tensors: list[TensorTruth | None] = []
        for tensor in tp.tensors:
            if tensor.extent is None or not tensor.extent.length:
                assert tensor.placement is not Placement.UNCERTAIN, "a tensor has no certain place"
                tensors.append(None)
                continue
            assert not tensor.extent.missing, "the capture lacks bytes of its own tensors"
            groups: list[tuple[int, ...]] = []
            data = random.Random(str((key_of(record), len(tensors)))).randbytes(tensor.extent.length)
            at = 0
            for _, offset, length in tensor.extent.pieces:
                packet = self.packets[bisect_right(offsets, offset) - 1]
                assert packet.stream is not None
                start = packet.start + offset - packet.offset
                needs_of_piece = carriers.needs(packet.stream, start, start + length)
                self._fill({n for group in needs_of_piece for n in group}, start, data[at : at + length])
                groups += needs_of_piece
                at += length
            tensors.append(TensorTruth(data, tuple(groups)))
        return MessageTruth(tp.from_client, tp.descriptor_body, tp.payloads, tuple(needs), tuple(tensors))

    def _fill(self, carriers: Iterable[int], start: int, data: bytes) -> None:
        """Writes bytes of a stream into every packet that carries them."""
        for number in carriers:
            packet = self.packets[number]
            low, high = max(start, packet.start), min(start + len(data), packet.end)
            record = self._marked.setdefault(number, bytearray(packet.record))
            at = packet.at - packet.start
            record[at + low : at + high] = data[low - start : high - start]

    def copy(self, keep: Keep) -> bytes:
        """A pcap file with the packets that are kept."""
        records = [packet.record for packet, kept in zip(self.packets, keep, strict=True) if kept]
        return self.header + b"".join(records)

    def judge(self, keep: Keep, label: str = "", options: Options | None = None) -> Verdict:
        """Decodes a damaged copy and compares every message and tensor; `label` names the copy in faults."""
        return self.judge_file(self.copy(keep), keep, label, options)

    def judge_file(self, data: bytes, keep: Keep, label: str = "", options: Options | None = None) -> Verdict:
        """The same for a file with the packets that are kept, in whatever form."""
        handle, name = tempfile.mkstemp(suffix=".pcap")
        verdict = Verdict()
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            found: set[Key] = set()
            with Decoding([name], options) as decoding:
                for record in decoding.records():
                    self._judge_record(record, decoding, keep, found, verdict)
        finally:
            os.unlink(name)
        for key, truth in self.messages.items():
            if key not in found:
                there = _there(truth.needs, keep)
                verdict.counts["message lost" if there else "message cut"] += 1
                if there:
                    verdict.faults.append(f"message {key}: lost")
        verdict.faults = [f"{self.name} {label}: {fault}" for fault in verdict.faults]
        return verdict

    def _judge_record(
        self, record: RpcRecord, decoding: Decoding, keep: Keep, found: set[Key], verdict: Verdict
    ) -> None:
        tp, key = record.tp, key_of(record)
        truth = self.messages.get(key)
        why = "was never sent" if truth is None else "came out twice" if key in found else None
        if truth is not None and why is None:
            why = _message_fault(record, truth)
        if truth is None or why is not None:
            verdict.counts["message wrong"] += 1
            verdict.faults.append(f"message {key}: {why}")
            return
        found.add(key)
        there, whole = _there(truth.needs, keep), tp.payload_missing is None
        if there and not whole:
            verdict.faults.append(f"message {key}: bytes that are there are said to be missing")
        kinds = ("out", "lost") if there else ("rebuilt", "partial")
        verdict.counts[f"message {kinds[0] if whole else kinds[1]}"] += 1
        for index, (tensor, its) in enumerate(zip(tp.tensors, truth.tensors, strict=True)):
            if its is not None:
                kind = _judge_tensor(tensor, its, decoding, keep)
                verdict.counts[f"tensor {kind}"] += 1
                if kind == "wrong":
                    verdict.faults.append(f"message {key}: tensor {index} is wrong")


def _there(needs: Needs, keep: Keep) -> bool:
    return all(any(keep[number] for number in group) for group in needs)


def _message_fault(record: RpcRecord, truth: MessageTruth) -> str | None:
    """What of a message is not what was sent, if anything. Of a cut payload, its beginning must be right."""
    tp = record.tp
    if tp.from_client != truth.from_client:
        return "goes the other way"
    if tp.descriptor_body != truth.descriptor:
        return "another descriptor"
    missing = tp.payload_missing or (0,) * len(tp.payloads)
    for index, (got, sent, lost) in enumerate(zip(tp.payloads, truth.payloads, missing, strict=True)):
        if not (sent.startswith(got) if lost else sent == got):
            return f"other bytes in payload {index}"
    return None


def _judge_tensor(tensor: TpTensor, truth: TensorTruth, decoding: Decoding, keep: Keep) -> str:
    there, extent = _there(truth.needs, keep), tensor.extent
    if tensor.placement is not Placement.CERTAIN or extent is None:
        return tensor.placement.value if there else "cut"
    expected = bytearray(truth.data)
    for start, end in extent.missing:
        expected[start:end] = bytes(end - start)
    if extent.read(decoding.bytes) != expected or (not there and not extent.missing):
        return "wrong"
    if there:
        return "missing" if extent.missing else "right"
    return "cut"


# --- the matrix ---


class Damage(Struct, frozen=True):
    """One way of damaging a capture: a row of the matrix."""

    name: str
    keep: Callable[[int, int], list[bool]]
    """(packets, seed) → which are kept."""
    drawn: bool = True
    """Whether the seed matters."""

    def verdicts(self, original: Original, seeds: int) -> Verdict:
        """Of one copy for each seed; of one alone where nothing is drawn."""
        return pooled(
            original.judge(self.keep(len(original), seed), f"{self.name}, seed {seed}")
            for seed in range(seeds if self.drawn else 1)
        )


def _fixed(what: str, cut: Callable[[int, float], list[bool]], *shares: float) -> list[Damage]:
    return [
        Damage(f"{what} {share:.0%}".replace("%", " %"), lambda n, _, s=share: cut(n, s), drawn=False)  # type: ignore[misc]
        for share in shares
    ]


HEAD_CUTS = _fixed("head", keep_head_cut, 0.2, 0.35, 0.5, 0.65, 0.8)
LOSSES = [
    Damage("loss 0.5 %", lambda packets, seed: keep_random(packets, 0.005, seed)),
    Damage("loss 5 %", lambda packets, seed: keep_random(packets, 0.05, seed)),
    Damage("loss 5 % in bursts", lambda packets, seed: keep_bursts(packets, 0.05, seed)),
]
OTHER_CUTS = [*_fixed("tail", keep_tail_cut, 0.2, 0.5, 0.8), *_fixed("both ends", keep_both_cut, 0.2, 0.35)]
DAMAGES = [*HEAD_CUTS, *OTHER_CUTS, *LOSSES]

NOT_INTACT = ("snap300", "stress_lossy")


def intact_captures() -> list[Path]:
    """The captures that hold all packets; of the workloads, those that lie in no folder of their own."""
    found = [*recordings(".", *OTHER_JOBS), *all_foreign("examples")]
    return [path for path in found if path.name.split(".")[0] not in NOT_INTACT]


def pooled(verdicts: Iterable[Verdict]) -> Verdict:
    """All of them together."""
    total = Verdict()
    for verdict in verdicts:
        total += verdict
    return total
