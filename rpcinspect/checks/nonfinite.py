"""`nonfinite-tensor`: the first message in cause that carries NaN or infinities, and who made them from what.

A message is first if its sender had received none before it. NaN counts everywhere; infinities count in
gradients and results only, since masks among the arguments of calls are made of them. Of each tensor the
first bytes are read while messages come; once something was found, the rest of earlier ones is, too. Kept are
the rows of messages with such numbers, and the places of longer tensors before the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct

from rpcinspect.checks.check import MAX_INDEXES, Check, MessageDigest
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.errors import RpcInspectError
from rpcinspect.rpc.message import MessageType, is_request
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import logical_bytes, repeated_range
from rpcinspect.session.hosts import host_of, unseen_hosts
from rpcinspect.session.model import NONE, AutogradContext, Edge, Finding
from rpcinspect.session.words import counted, numbers, unique
from rpcinspect.tcp.ranges import CaptureBytes, Extent

FIRST_BYTES = 1 << 12
"""Of each tensor, read while messages come."""
CHUNK = 1 << 20
MAX_LONGER = 50_000
"""Longer tensors whose rest may be read afterwards."""
MAX_AGAIN = 1 << 30
"""Bytes that are read for that, at most."""
MAX_GATHERED = 1 << 24
"""Bytes of a tensor whose elements do not lie one behind the other."""
MAX_OTHERS = 3


class _Numbers(Struct, frozen=True):
    """What a tensor holds."""

    nan: int
    infinite: int
    elements: int


class _Longer(Struct, frozen=True):
    """A tensor of which only the first bytes were read."""

    row: int
    kind: int
    tensor: int
    dtype: str
    extent: Extent


class _Made(Struct, frozen=True):
    """A message that carries such numbers, and whose sender had received none."""

    row: int
    index: int
    job: int
    sender: str
    receiver: str
    tensor: int
    numbers: _Numbers


class NonfiniteTensors(Check):
    def __init__(self, source: CaptureBytes) -> None:
        self._source = source
        self._found: dict[int, tuple[int, _Numbers]] = {}
        """Row → the first such tensor, what it holds."""
        self._longer: list[_Longer] = []
        self._unread: list[int] = []
        """Rows of messages with tensors whose bytes were not captured."""
        self._untold = False
        """There were more of them than are kept."""

    def feed(self, record: RpcRecord, digest: MessageDigest) -> bool:
        descriptors = record.tp.tensors
        if not descriptors:
            return True
        whole = -1
        for meta in record.like.tensors:
            whole += meta.part_of is None
            if meta.dtype not in LAYOUTS or meta.storage is None or meta.storage >= len(descriptors):
                continue
            extent = descriptors[meta.storage].extent
            if 0 in meta.sizes:
                continue
            if extent is None or extent.missing or not extent.pieces:
                self._unread.append(record.row)
                continue
            found = self._look(record, digest, meta, whole, extent)
            if found is not None and _counts(found, digest.kind):
                self._found.setdefault(record.row, (whole, found))
                break
        return True

    def _look(
        self, record: RpcRecord, digest: MessageDigest, meta: TensorMeta, tensor: int, extent: Extent
    ) -> _Numbers | None:
        """Returns what a tensor holds; None where all is finite, as far as it is read now."""
        its = repeated_range(meta, extent.length)
        if its is None:
            return self._gathered(meta, extent)
        start, end, times = its
        part = extent if end - start == extent.length else extent.part(start, end)
        if part.length <= FIRST_BYTES:
            return _numbers(part.read(self._source), meta.dtype, times)
        if not _numbers(part.part(0, FIRST_BYTES).read(self._source), meta.dtype, 1):
            self._note_longer(_Longer(record.row, digest.kind, tensor, meta.dtype, part))
            return None
        return self._all_of(part, meta.dtype, times)

    def _note_longer(self, one: _Longer) -> None:
        if self._found:
            return
        if len(self._longer) < MAX_LONGER:
            self._longer.append(one)
        else:
            self._untold = True

    def _gathered(self, meta: TensorMeta, extent: Extent) -> _Numbers | None:
        if extent.length > MAX_GATHERED:
            return None
        data = extent.read(self._source)
        if _numbers(data, meta.dtype, 1) is None:
            return None
        try:
            return _numbers(logical_bytes(meta, data, max_bytes=MAX_GATHERED), meta.dtype, 1)
        except RpcInspectError:
            return None

    def _all_of(self, part: Extent, dtype: str, times: int = 1) -> _Numbers | None:
        """Returns what all of a longer tensor holds."""
        nan = infinite = elements = 0
        for start in range(0, part.length, CHUNK):
            data = part.part(start, min(start + CHUNK, part.length)).read(self._source)
            found = _numbers(data, dtype, times)
            if found is not None:
                nan, infinite = nan + found.nan, infinite + found.infinite
            elements += _elements(len(data), dtype) * times
        return _Numbers(nan, infinite, elements) if nan or infinite else None

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        if not self._found:
            return
        self._look_behind(evidence)
        made = list(self._made(evidence))
        for job in sorted({one.job for one in made}):
            its = [one for one in made if one.job == job]
            yield self._finding(its[0], its[1:], evidence)

    def _look_behind(self, evidence: CaptureEvidence) -> None:
        """Reads the rest of longer tensors of messages before the first that was found."""
        index = evidence.session.index
        first = min(int(index[row]) for row in self._found)
        left = MAX_AGAIN
        for one in sorted(self._longer, key=lambda one: int(index[one.row])):
            if int(index[one.row]) > first:
                return
            left -= one.extent.length
            if left < 0:
                self._untold = True
                return
            found = self._all_of(one.extent, one.dtype)
            if found is not None and _counts(found, one.kind):
                self._found[one.row] = (one.tensor, found)
                return

    def _made(self, evidence: CaptureEvidence) -> Iterator[_Made]:
        """Yields the first such message of each worker that had received none, in the order of time."""
        session, columns = evidence.session, evidence.session.messages
        has: dict[tuple[int, str], int] = {}
        """(job, worker) → since when it has such numbers, as far as messages show."""
        for row in sorted(self._found, key=lambda row: int(session.index[row])):
            pipe, job = columns.pipe[row], evidence.job(row)
            ends = session.clients[pipe], session.servers[pipe]
            sender, receiver = ends if columns.from_client[row] else ends[::-1]
            if has.get((job, sender), columns.time_ns[row] + 1) > columns.time_ns[row]:
                tensor, found = self._found[row]
                yield _Made(row, int(session.index[row]), job, sender, receiver, tensor, found)
                has[job, sender] = columns.time_ns[row]
            has.setdefault((job, receiver), columns.end_time_ns[row])

    def _finding(self, first: _Made, others: list[_Made], evidence: CaptureEvidence) -> Finding:
        doubt = self._doubt(first, evidence)
        what, used = (doubt, []) if doubt else self._origin(first, evidence)
        later = len(self._of_job(first.job, evidence)) - 1
        text = (
            f"#{first.index} from {first.sender} to {first.receiver} is the first message that carries "
            f"{_named(first.numbers)}: {_share(first)}. {what}"
        )
        if later:
            verb = "carries" if later == 1 else "carry"
            text += f" {counted(later, 'later message')} {verb} such numbers, too."
        if others:
            shown = [f"{one.sender} (#{one.index})" for one in others[:MAX_OTHERS]]
            text += f" As far as the capture shows, {', '.join(shown)} had received none, and sent some, too."
        if self._untold:
            text += f" Of some earlier tensors only the first {FIRST_BYTES:,} bytes were looked at."
        return Finding(
            code="nonfinite-tensor",
            severity="warning",
            text=text,
            remedy="Give the captures or logs of the other hosts together with this one."
            if doubt
            else f"Replay it with --live {first.sender} --anomaly, which names the operation and the line "
            "of its forward; --stop-at nonfinite stops there.",
            messages=tuple(dict.fromkeys([first.index, *used]))[:MAX_INDEXES],
            workers=tuple(unique([first.sender, first.receiver])),
        )

    def _doubt(self, made: _Made, evidence: CaptureEvidence) -> str | None:
        """Returns why the sender may have received such numbers all the same; None: it has not."""
        session, columns = evidence.session, evidence.session.messages
        names = [worker.name for worker in session.workers if worker.job == made.job and worker.name]
        silent = [name for name in names if name != made.sender and evidence.unheard(name, made.job)]
        if silent:
            return f"Who made them is not known: nothing that {', '.join(silent)} sent is recorded."
        here, others = unseen_hosts(session)
        places = [at for one in session.workers if one.name == made.sender for at in one.addresses]
        if others and not any(host_of(at) == here for at in places):
            return f"Who made them is not known: what {', '.join(others)} send each other is not captured."
        for pipe in evidence.pipes_to.get((made.job, made.sender), ()):
            if evidence.damaged(pipe, True):
                return f"Who made them is not known: the capture lost messages to {made.sender}."
        for row in self._unread:
            pipe = columns.pipe[row]
            receiver = session.servers[pipe] if columns.from_client[row] else session.clients[pipe]
            if receiver == made.sender and columns.time_ns[row] < columns.time_ns[made.row]:
                index = int(session.index[row])
                return f"Who made them is not known: bytes of #{index}, which {receiver} got, are missing."
        return None

    def _of_job(self, job: int, evidence: CaptureEvidence) -> list[int]:
        return [row for row in self._found if evidence.job(row) == job]

    def _origin(self, made: _Made, evidence: CaptureEvidence) -> tuple[str, list[int]]:
        """Returns in a sentence who made the numbers from what, and the indexes that it names."""
        session = evidence.session
        kind = session.messages.type[made.row]
        edge, context = self._edge_of(made, evidence)
        if edge is not None and context is not None:
            function, asked = self._function(int(session.order[edge.forward]), evidence)
            got = [
                index
                for other in context.edges
                for index in other.backward
                if other.sender == made.sender and index < made.index
            ]
            source = f", from the finite gradients in {numbers(got)}" if got else ""
            call = f"{function or 'the call'} (#{asked})"
            if edge.forward == asked:
                return f"{made.sender} made them in the backward pass of {call}{source}.", [asked, *got]
            return f"{made.sender} made them in its own backward pass, behind the result of {call}.", [asked]
        partner = session.messages.partner[made.row]
        if not is_request(kind) and partner != NONE:
            function, asked = self._function(made.row, evidence)
            where = f"{function or 'the call'} (#{asked})"
            return f"{made.sender} made them in {where}; its arguments are finite.", [asked]
        return f"{made.sender} had received none before.", []

    def _edge_of(self, made: _Made, evidence: CaptureEvidence) -> tuple[Edge | None, AutogradContext | None]:
        """Returns the edge of a gradient message, and its context."""
        for context in evidence.session.contexts:
            if context.job == made.job:
                for edge in context.edges:
                    if made.index in edge.backward:
                        return edge, context
        return None, None

    def _function(self, row: int, evidence: CaptureEvidence) -> tuple[str | None, int]:
        """Returns what a request, or the request of an answer, calls, and its index."""
        session = evidence.session
        partner = session.messages.partner[row]
        asked = row if session.messages.from_client[row] or partner == NONE else partner
        return session.provenance.kind_of(asked).function, int(session.index[asked])


LAYOUTS: dict[str, tuple[str, int]] = {
    "float64": ("<u8", 0x7FF0_0000_0000_0000),
    "float32": ("<u4", 0x7F80_0000),
    "float16": ("<u2", 0x7C00),
    "bfloat16": ("<u2", 0x7F80),
    "complex128": ("<u8", 0x7FF0_0000_0000_0000),
    "complex64": ("<u4", 0x7F80_0000),
    "complex32": ("<u2", 0x7C00),
}
"""Type → its words, and the bits of an infinity: what is above, without the sign, is NaN."""


def _numbers(data: bytes, dtype: str, times: int) -> _Numbers | None:
    """Returns what elements hold; None if all are finite."""
    words, infinity = LAYOUTS[dtype]
    codes = np.frombuffer(data[: len(data) - len(data) % int(words[-1])], words)
    exponents = codes & codes.dtype.type(infinity)
    if not len(codes) or exponents.max() < infinity:
        return None
    magnitudes = codes & codes.dtype.type((1 << (8 * codes.dtype.itemsize - 1)) - 1)
    nan, infinite = magnitudes > infinity, magnitudes == infinity
    if dtype.startswith("complex"):
        pairs = len(codes) // 2
        nan, infinite = (flags[: 2 * pairs].reshape(-1, 2).any(axis=1) for flags in (nan, infinite))
    count = int(np.count_nonzero(nan))
    also = int(np.count_nonzero(infinite & ~nan))
    return _Numbers(count * times, also * times, _elements(len(data), dtype) * times)


def _elements(length: int, dtype: str) -> int:
    return length // (int(LAYOUTS[dtype][0][-1]) * (1 + dtype.startswith("complex")))


def _counts(found: _Numbers, kind: int) -> bool:
    """Returns whether such numbers are told of in a message of this type."""
    return bool(found.nan) or kind == MessageType.BACKWARD_AUTOGRAD_REQ or not is_request(kind)


def _named(found: _Numbers) -> str:
    return "NaN" if found.nan else "infinities"


def _share(made: _Made) -> str:
    """Returns how many elements of which tensor are meant."""
    found = made.numbers
    both = ((found.nan, "NaN"), (found.infinite, "infinite"))
    kinds = [f"{count:,} {name}" for count, name in both if count]
    return f"{' and '.join(kinds)} of {found.elements:,} elements of tensor#{made.tensor}"
