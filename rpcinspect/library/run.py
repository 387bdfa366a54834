"""A run as a program asks for it: its messages, calls, contexts, RRefs, findings, and what follows from them.

In: paths of captures. Out: a `Run`, which never changes; each answer is worked out when it is first asked
for. Close the run, or use `with`: the bytes of tensors are read from the captures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rpcinspect.capture.reader import PathName, Readable, input_of
from rpcinspect.fields.phrases import duration, packed, read_packed
from rpcinspect.files.closing import Closing
from rpcinspect.files.output import open_whole
from rpcinspect.filter.grammar import parse
from rpcinspect.filter.selection import CallSelection, Filter, Selection
from rpcinspect.library.tables import needs_pyarrow
from rpcinspect.pickles.tree import Value
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.rpc.remote_error import RemoteError
from rpcinspect.run.closings import Closings
from rpcinspect.run.critical_path import Segment
from rpcinspect.run.device_maps import DeviceMap
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.latency import Latency, Timing
from rpcinspect.run.message import Message
from rpcinspect.run.profile import CallProfile
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import AutogradContext, CaptureInfo, Edge, Finding, RRef, Worker

if TYPE_CHECKING:
    import pyarrow

    from rpcinspect.filter.matches import Shown

T = TypeVar("T")

SHOWN_ROWS = 20
"""Rows of a table that a notebook shows."""


class RunSequence(Sequence[T]):
    """Things of a run in the order of time, made when they are asked for."""

    def __init__(self, run: Run, indexes: Sequence[int]) -> None:
        self._run = run
        self._indexes = indexes

    def _make(self, index: int) -> T:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._indexes)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        if isinstance(at, slice):
            return type(self)(self._run, self._indexes[at])
        return self._make(self._indexes[at])

    def __iter__(self) -> Iterator[T]:
        return map(self._make, self._indexes)


class Messages(RunSequence[Message]):
    """Messages of a run in the order of time."""

    def _make(self, index: int) -> Message:
        return self._run.message(index)

    def __call__(self, expression: str) -> Messages:
        """Returns the messages that match a filter, as `decode -f` has it. Raises `FilterError`."""
        shown = self._run.select(expression)
        row_of = self._run.model.session.order
        return Messages(self._run, [i for i in self._indexes if shown.rows[int(row_of[i])]])

    def __repr__(self) -> str:
        return f"<{len(self):,} messages>"

    def _repr_html_(self) -> str:
        return _table(
            ("#", "type", "from", "to", "tensors"),
            [(m.index, m.type, m.sender, m.receiver, len(m.tensors)) for m in self[:SHOWN_ROWS]],
            len(self),
        )


class Calls(RunSequence["Call"]):
    """Calls of a run, in the order in which they began, without housekeeping."""

    def _make(self, index: int) -> Call:
        return self._run.call(index)

    def __call__(self, expression: str) -> Calls:
        """Returns the calls whose request and answer together match a filter, as `decode --calls -f` has it.
        Raises `FilterError`."""
        shown = self._run.select(expression, of_calls=True)
        row_of = self._run.model.session.order
        return Calls(self._run, [i for i in self._indexes if shown.rows[int(row_of[i])]])

    def __repr__(self) -> str:
        return f"<{len(self):,} calls>"

    def _repr_html_(self) -> str:
        rows = [
            (
                c.index,
                f"{c.caller} → {c.callee}",
                c.name,
                "" if c.latency_ns is None else duration(c.latency_ns),
                "" if c.error is None else c.error.type or "error",
            )
            for c in self[:SHOWN_ROWS]
        ]
        return _table(("#", "from → to", "call", "took", "error"), rows, len(self))


class Call:
    """A request and, where one was captured, its answer. Times are those of the capture, in nanoseconds."""

    def __init__(self, run: Run, exchange: Exchange) -> None:
        self._run = run
        self._exchange = exchange
        self.index = exchange.index
        """Of the request."""
        self.caller = exchange.caller
        self.callee = exchange.callee
        self.name = exchange.what
        """Who is called, as a person says it: `Head.forward` where it goes through an RRef; else the kind of
        message."""
        self.function = exchange.function
        """As the wire has it."""
        self.method = exchange.method
        self.cls = exchange.cls
        self.type = exchange.type
        """Message type of the request, envelopes on."""
        self.begin_ns = exchange.begin_ns
        """First byte of the request."""
        self.end_ns = exchange.end_ns
        """Last byte of the answer."""
        self.latency_ns = exchange.latency_ns
        """From the one to the other; None without an answer."""
        self.housekeeping = exchange.housekeeping
        self.context_id = exchange.context

    def __repr__(self) -> str:
        took = "no answer" if self.latency_ns is None else duration(self.latency_ns)
        return f"<Call #{self.index} {self.caller} → {self.callee} {self.name}, {took}>"

    @property
    def request(self) -> Message:
        """The request."""
        return self._run.message(self.index)

    @property
    def answer(self) -> Message | None:
        """Returns the answer; None where none was captured."""
        return None if self._exchange.answer is None else self._run.message(self._exchange.answer)

    @property
    def arguments(self) -> tuple[Value, Value] | None:
        """What is given by place and by name, as inert trees; of a method its own, without its object."""
        return self._exchange.passed

    @property
    def result(self) -> Value:
        """What came back, as an inert tree; None without an answer, and where it failed."""
        return self._exchange.result

    @property
    def error(self) -> RemoteError | None:
        """The error that the answer reports."""
        return self._exchange.error

    @property
    def timing(self) -> Timing:
        """The latency and its parts."""
        return self._exchange.timing

    @property
    def parents(self) -> tuple[Call, ...]:
        """Returns the calls that may have caused this one: at most one where `parent_certain`, else all
        candidates."""
        return tuple(Call(self._run, parent) for parent in self._exchange.parents)

    @property
    def parent_certain(self) -> bool:
        """Whether `parents` is certain: without any, the caller's own program has sent it."""
        return self._exchange.parent_certain

    @property
    def children(self) -> tuple[Call, ...]:
        """Returns the calls that this one certainly caused."""
        return tuple(Call(self._run, child) for child in self._exchange.children)


class Context:
    """A distributed autograd context of a run."""

    def __init__(self, run: Run, told: AutogradContext) -> None:
        self._run = run
        self.context_id = told.context_id
        self.job = told.job
        self.creator = told.creator
        self.workers = told.workers
        self.edges: tuple[Edge, ...] = told.edges
        """Pairs of send and recv functions, in the order of their forward messages."""

    def __repr__(self) -> str:
        return f"<Context {packed(self.context_id)} of {self.creator}, {len(self.edges):,} edges>"

    def graph(self) -> ContextGraph:
        """Returns the autograd graph: edges with their tensors and gradients, times, the cleanup."""
        return next(one for one in self._run.model.graphs_of(self.context_id) if one.job == self.job)

    def critical_path(self) -> tuple[Segment, ...]:
        """Returns the segments that the context's duration consists of."""
        return self._run.model.critical_path(self.graph())


class Run(Closing):
    """A whole run, or what of it matches a filter."""

    def __init__(self, model: RunModel, decoding: Decoding, shown: Shown | None = None) -> None:
        self.model = model
        """All that is known, as the rest of the package asks for it."""
        self.decoding = decoding
        """Where it was read from."""
        self._shown = shown

    def __len__(self) -> int:
        return len(self.messages)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        part = "" if self._shown is None else f" that match {self._shown.text}"
        return f"<Run of {len(self.workers):,} workers, {len(self):,} messages{part}>"

    def _repr_html_(self) -> str:
        found = [(one.severity, one.code, one.text) for one in self.findings[:SHOWN_ROWS]]
        return f"<p>{escape(repr(self))}</p>" + _table(("severity", "finding", "text"), found, len(found))

    def close(self) -> None:
        """Closes the captures."""
        self.decoding.close()

    @property
    def captures(self) -> tuple[CaptureInfo, ...]:
        """The files that were read."""
        return self.model.session.captures

    @property
    def workers(self) -> tuple[Worker, ...]:
        """Returns the workers, as far as the captures identify them."""
        return self.model.workers

    @cached_property
    def messages(self) -> Messages:
        """Every message in the order of time; `run.messages(FILTER)` those that match."""
        return Messages(self, sorted(self.model.picked))

    @cached_property
    def calls(self) -> Calls:
        """Every call of the job in the order of time; `run.calls(FILTER)` those that match."""
        asked = self.model.requests
        return Calls(self, [i for i, c in self.model.calls.items() if i in asked and not c.housekeeping])

    @cached_property
    def contexts(self) -> tuple[Context, ...]:
        """Distributed autograd contexts."""
        of = self.model.session
        return tuple(
            Context(self, one) for one in (of.contexts if self._shown is None else self._shown.contexts(of))
        )

    @property
    def rrefs(self) -> tuple[RRef, ...]:
        """Remote references: owner, creator, and of each fork who brought it and when it was deleted."""
        return self.model.rrefs

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is worth knowing of the run or its captures, with remedies."""
        return self.model.findings

    def message(self, index: int) -> Message:
        """Returns a message by its index. Raises `IndexError` where there is none."""
        return self.model.message(index)

    def call(self, index: int) -> Call:
        """The call whose request has this index. Raises `KeyError` where that is no request."""
        return Call(self, self.model.calls[index])

    def context(self, context_id: str | int) -> Context:
        """Returns a context by its id, also as `CREATOR:COUNTER`; of several jobs' the first. Raises
        `KeyError`."""
        number = read_packed(context_id) if isinstance(context_id, str) else context_id
        for one in self.contexts:
            if one.context_id == number:
                return one
        raise KeyError(f"there is no context {context_id}")

    def latency(self) -> Latency:
        """Where the time of calls went: by function, by pair of workers, and what took unusually long."""
        return self.model.latency

    def device_maps(self) -> tuple[DeviceMap, ...]:
        """Which devices tensors came from and went to, for each caller and callee."""
        return self.model.device_maps

    def disconnects(self) -> Closings:
        """Who ended connections first, and what was in flight then."""
        return self.model.closings

    def profiles(self) -> tuple[CallProfile, ...]:
        """What callers' profilers show of their callees."""
        return self.model.profiles

    def filter(self, expression: str) -> Run:
        """What of the run matches a filter, as `-f` has it. Answers are worked out over the whole run. Raises
        `FilterError`."""
        shown = self.select(expression)
        return Run(self.model.whole.narrowed(shown.rows, shown.touched), self.decoding, shown)

    def select(self, expression: str, *, of_calls: bool = False) -> Shown:
        """Which rows of the whole run match a filter, asked of messages or of calls. Raises `FilterError`."""
        whole = self.model.whole
        kind = CallSelection if of_calls else Selection
        selection = kind(Filter(parse(expression), expression), whole.bytes)
        for index in whole.session.index.tolist():
            selection.feed(whole.messages[index])
        return selection.finish(whole.session)

    def save(self, path: PathName, *, redact: bool = False, seed: str | None = None) -> int:
        """Writes the messages, with their requests and answers, as a capture that decodes by itself: a log
        where `path` ends in .rpclog, else a pcap. Returns the number of messages.

        `redact` replaces values and names as docs/redaction.md says; equal ones stay equal, under the same
        `seed` in other captures too. Raises `OutputError`.
        """
        from rpcinspect.export.save import key_of, save_messages, with_partners

        whole = self.model.whole
        rows = bytes([1]) * len(whole.messages) if self._shown is None else self._shown.rows
        kept = with_partners(whole.session, rows, whole.messages)
        target, key = Path(path), key_of(seed) if redact else None
        with open_whole(target, private=True) as output:
            network = target.suffix != ".rpclog"
            save_messages(output, whole.session, kept, self.decoding, key, network=network)
        return len(kept)

    def to_arrow(self, table: str = "messages") -> pyarrow.Table:
        """One of the tables that `export parquet` writes, as docs/parquet.md explains them. Raises
        `OutputError` where pyarrow is missing, `KeyError` for a name that is no table."""
        with needs_pyarrow():
            from rpcinspect.export.parquet.batches import arrow_table
        whole = self.model.whole
        return arrow_table(table, whole.session, self._shown, whole.messages, whole.bytes)

    def to_pandas(self, table: str = "messages") -> Any:
        """Returns a table of `to_arrow` as a `pandas.DataFrame`. Raises `ImportError` where pandas is
        missing."""
        return self.to_arrow(table).to_pandas()


def open(path: Readable | Sequence[Readable], *more: Readable, options: Options | None = None) -> Run:
    """Reads captures as one run: files, or capture objects of pyshark (docs/pyshark.md). Raises
    `CaptureError` for what is no capture."""
    first = path if isinstance(path, Sequence) and not isinstance(path, str) else [path]
    decoding = Decoding([input_of(one) for one in (*first, *more)], options)
    try:
        return Run(RunModel.of(decoding, list(decoding.records())), decoding)
    except BaseException:
        decoding.close()
        raise


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]], count: int) -> str:
    """Rows for a notebook, all of their text escaped."""
    cells = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    more = f"<p>{count - len(rows):,} more</p>" if count > len(rows) else ""
    return f"<table><tr>{cells}</tr>{body}</table>{more}"
