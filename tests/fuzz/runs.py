"""Targets above the wire: messages, logs, and whole sessions with all that is made of them.

Sessions are logs, so that every field of a message is the fuzzer's and nothing hides behind a frame. What is
shown must be printable, JSON must be JSON, a page must have no elements but its own, and a script that is
written must import nothing that the gate did not allow.
"""

from __future__ import annotations

import ast
import io
import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html.parser import HTMLParser

from rich.console import Console

from rpcinspect.diff.compare import compare_runs
from rpcinspect.equality.rules import Rules
from rpcinspect.errors import CaptureError, DecodeError, RpcInspectError
from rpcinspect.export.dot import dot_lines
from rpcinspect.export.otlp.requests import otlp_lines
from rpcinspect.export.pcap.writer import write_session
from rpcinspect.export.perfetto.trace import perfetto_pieces
from rpcinspect.export.reproducer.python_names import STANDARD
from rpcinspect.export.reproducer.reproduction import ReproductionOptions, reproduction
from rpcinspect.export.reproducer.script import Wanted, reproducer, unwritable
from rpcinspect.fields.phrases import printable_json
from rpcinspect.pipeline import Decoding
from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.planning.tensor_check import TensorChecker
from rpcinspect.rpc.decode import RpcDecoder, reencode
from rpcinspect.rpc.message import from_payloads
from rpcinspect.rpc.record import RpcRecord, round_trips
from rpcinspect.rpclog.header import CPU, LoggedMessage, LoggedStorage
from rpcinspect.rpclog.write import FIRST_LINE, message_line
from rpcinspect.run.run import RunModel
from rpcinspect.tensorpipe.control_types import TpDevice
from rpcinspect.views.diff.json_lines import diff_lines
from rpcinspect.views.diff.page import diff_html
from rpcinspect.views.diff.table import show_diff
from rpcinspect.views.jsonl.calls import CallRows, call_lines
from rpcinspect.views.jsonl.lines import JsonLines
from rpcinspect.views.page.html_page import trace_html
from rpcinspect.views.questions.all import QUESTIONS
from rpcinspect.views.replay.plan_json import plan_lines
from rpcinspect.views.replay.plan_table import show_plan
from rpcinspect.views.text.calls import show_calls
from rpcinspect.views.text.columns import show_lines
from rpcinspect.views.text.detail import detail
from rpcinspect.views.text.summary import show_summary
from rpcinspect.views.text.table import MessageTable
from tests.decoded import parse
from tests.fuzz import corpus
from tests.fuzz.mutation import MAX_BYTES, change_bytes, change_opcodes, change_parts, pack, unpack
from tests.fuzz.wires import scratch

HEAD = 8
"""Of a message: who sends and who gets it (of the names in the first part), flags, id, four bytes of type."""
REQUEST, NOT_IN_A, NOT_IN_B, DEVICES = 1, 2, 4, 8
"""`DEVICES`: its tensors come from and go to devices that are called as its ends."""
TABLES, PAGES, PLAN, DIFF, WRITE, SCRIPT = (1 << n for n in range(6))
NO_TENSORS = b"\x80\x02ctorch.jit._pickle\nbuild_tensorlist\nq\x00(](etR."


# --- logs from parts ---


def log_lines(parts: Sequence[bytes], without: int = 0) -> bytes:
    """Names in parts[1], messages behind it, as a log; without those that have this flag."""
    names = [name.decode("utf-8", "surrogateescape") for name in parts[1].split(b"\n")] or ["w"]
    lines = [FIRST_LINE]
    for number, part in enumerate(parts[2:60]):
        if len(part) < HEAD or part[2] & without:
            continue
        bodies = unpack(part[HEAD:])
        payload, table, *tensors = [*bodies, b"", b""][: max(2, len(bodies))]
        src, dst = names[part[0] % len(names)], names[part[1] % len(names)]
        source, target = (TpDevice(src, 0), TpDevice(dst, 0)) if part[2] & DEVICES else (CPU, None)
        said = LoggedMessage(
            time_ns=1000 * number,
            end_ns=1000 * number + 10,
            src=src,
            dst=dst,
            type=int.from_bytes(part[4:HEAD], "little") & 0x7FFFFFFF,
            id=part[3],
            request=bool(part[2] & REQUEST),
            payload=len(payload),
            table=len(table),
            storages=tuple(LoggedStorage(length=len(t), source=source, target=target) for t in tensors),
        )
        body = b"".join((payload, table, *tensors))
        lines += [message_line(said), body, b"\n" if body else b""]
    return b"".join(lines)


def as_part(message: corpus.Message, src: int, dst: int, flags: int = 0) -> bytes:
    """A captured message as a part."""
    said = message.record.rpc.message
    head = bytes([src, dst, flags | message.record.tp.from_client, said.id & 0xFF])
    return head + said.type.to_bytes(4, "little") + pack([*message.payloads, *message.tensors])


def sessions(which: int) -> Iterator[bytes]:
    """The first messages of captures that are not the agents' own."""
    for path in corpus.captures():
        found = [m for m in corpus.messages(path) if sum(map(len, m.tensors)) < 2000]
        names = list(dict.fromkeys(name for m in found for name in (m.src, m.dst)))[:200]
        for start in (0, 6):
            parts = [
                as_part(m, names.index(m.src), names.index(m.dst), NOT_IN_B if at == 5 else 0)
                for at, m in enumerate(found[start : start + 16])
                if m.src in names and m.dst in names
            ]
            if parts:
                yield pack([bytes([which]), "\n".join(names).encode(), *parts])


def session_seeds() -> Iterator[bytes]:
    for number, seed in enumerate(sessions(0)):
        yield pack([bytes([1 << number % 6]), *unpack(seed)[1:]])


def session_change(data: bytes, draw: random.Random) -> bytes:
    """A name, a message's head, or a pickle, tensor or table inside of a message."""
    return change_parts(data, draw, lambda part, d: change_parts(part, d, _inside), head=HEAD)


def _inside(data: bytes, draw: random.Random) -> bytes:
    at = data.find(b"\x80\x04") if draw.random() < 0.5 else data.find(b"\x80\x02")
    if at < 0:
        return change_bytes(data, draw)
    changed = change_opcodes(data[at:], draw)
    head = data[:at]
    if at >= 5 and data[at - 5 : at - 4] == b"X":  # a string of a JIT pickle: its length is right again
        size = int.from_bytes(data[at - 4 : at], "little")
        inner = change_opcodes(data[at : at + size], draw)
        head, changed = data[: at - 4] + len(inner).to_bytes(4, "little"), inner + data[at + size :]
    return head + changed


# --- one message ---


def message(data: bytes) -> None:
    """Each message is shown, or its damage told; what was read whole is written as the same bytes."""
    parts = unpack(data)
    if len(parts) < 3:
        return
    path = scratch(log_lines(parts))
    try:
        with (
            tempfile.TemporaryFile() as spool,
            tempfile.TemporaryFile() as other,
            Decoding([str(path)]) as decoding,
        ):
            view, table = JsonLines(spool, decoding.bytes), MessageTable(other, show_all=True)
            records = []
            for record in decoding.records():
                records.append(record)
                view.feed([record])
                table.feed([record])
                if not record.problems and not round_trips(record):
                    _says_the_same(record)
            session = decoding.session
            text = "\n".join(
                str(part) for record in records for part in detail(record, session, decoding.bytes)
            )
            _printable(text)
            lines = list(parse(b"".join(view.finish(session))))
        assert len([line for line in lines if line["kind"] == "message"]) == len(records)
        with tempfile.TemporaryFile() as spool, Decoding([str(path)]) as decoding:
            view = JsonLines(spool, decoding.bytes)
            for record in decoding.records():
                view.feed([record])
            assert list(parse(b"".join(view.finish(decoding.session)))) == lines, "a second reading differs"
    except CaptureError:
        return
    finally:
        path.unlink()


def _says_the_same(record: RpcRecord) -> None:
    """What torch would not write so is written as torch would: other bytes, the same message."""
    try:
        payloads = reencode(record.rpc)
    except (DecodeError, ValueError):
        return  # no JIT pickle can hold it
    again = RpcDecoder().decode(from_payloads(payloads))
    assert again.problems == (), again.problems
    assert again.tensors == record.rpc.tensors
    assert again.envelopes == record.rpc.envelopes
    assert type(again.command) is type(record.rpc.command)


def message_seeds() -> Iterator[bytes]:
    for number, found in enumerate(corpus.distinct()):
        if sum(map(len, found.tensors)) < 2000:
            yield pack([b"\0", b"w0\nw1", as_part(found, number % 2, 1 - number % 2)])


# --- log files ---

MARK = 0x3F
"""The id of messages that stand at the end of every log."""


def log(data: bytes) -> None:
    """Records behind damaged ones come out, unless one of these says that they are its own."""
    parts = unpack(data)
    marks = b"".join(_mark(number) for number in range(3))
    path = scratch(FIRST_LINE + b"".join(parts) + b"\n" + marks)
    try:
        with RunModel.open([str(path)]) as opened:
            found = opened.messages
            reasons = [problem.reason for problem in opened.session.problems]
            with tempfile.TemporaryFile() as spool:
                view = JsonLines(spool, opened.bytes)
                for record in sorted(found, key=lambda record: record.row):
                    view.feed([record])
                list(parse(b"".join(view.finish(opened.session))))
    except CaptureError:
        return
    finally:
        path.unlink()
    if any("newer than" in reason for reason in reasons):
        return
    marked = [r for r in found if r.rpc.message.id == MARK and r.rpc.message.payload == b"mark"]
    if marked:
        return
    end = path_end = len(FIRST_LINE + b"".join(parts)) + 1
    covers = [r for r in found if r.tp.offset < end and r.tp.offset + _announced(r) >= path_end]
    assert covers, "the last records were lost"


def _announced(record: RpcRecord) -> int:
    tp = record.tp
    return int(tp.length) + sum(t.descriptor.length for t in tp.tensors) + (1 << 12)


def _mark(number: int) -> bytes:
    said = LoggedMessage(
        time_ns=number, end_ns=number, src="mark", dst="other", type=0x203, id=MARK, request=False,
        way=number, payload=4, table=len(NO_TENSORS),
    )  # fmt: skip
    return message_line(said) + b"mark" + NO_TENSORS + b"\n"


def log_seeds() -> Iterator[bytes]:
    from tests.logs import convert

    for path in corpus.captures()[:12]:
        lines = convert(path)
        yield pack(_records(lines)[:40])[:MAX_BYTES]
    yield pack(
        [
            (
                b'{"rpc":"message","time_ns":1,"src":"a","dst":"b","type":"PYTHON_RET","id":1,"bytes":4,'
                b'"payload":4,"base64":"AAAAAA=="}\n'
            ),
            b'{"rpc":"worker","name":"a","id":0,"group":1,"job":0,"addresses":["1.2.3.4:5"]}\n',
            b'{"rpc":"lost","src":"a","dst":"b","request":true}\n{"rpc":"span","time_ns":1,"end_ns":2}\n',
            b'{"rpc":"failed","src":"a","dst":"b","id":7,"time_ns":9,"reason":"timeout","text":"x"}\n',
            b'{"rpc":"closed","src":"a","dst":"b","by":"src","how":"reset","time_ns":5}\n{"rpc":"new"}\n',
        ]
    )


def _records(lines: bytes) -> list[bytes]:
    """Each record apart: header, body, newline."""
    found, at = [], lines.index(b"\n") + 1
    while at < len(lines):
        end = lines.index(b"\n", at) + 1
        size = json.loads(lines[at:end]).get("bytes", 0)
        end += size + 1 if size else 0
        found.append(lines[at:end])
        at = end
    return found


def log_change(data: bytes, draw: random.Random) -> bytes:
    """A value of a header, a body, or a record."""
    return change_parts(data, draw, _record_change)


def _record_change(record: bytes, draw: random.Random) -> bytes:
    line, newline, body = record.partition(b"\n")
    if draw.random() < 0.3:
        return change_bytes(record, draw)
    if draw.random() < 0.3:
        changed = change_bytes(body[:-1], draw)
        line = line.replace(b'"bytes":%d' % max(len(body) - 1, 0), b'"bytes":%d' % len(changed))
        return line + newline + changed + b"\n"
    words = line.split(b",")
    at = draw.randrange(len(words))
    key, colon, _ = words[at].partition(b":")
    words[at] = key + colon + draw.choice(JSON_VALUES)
    return b",".join(words) + newline + body


JSON_VALUES = (
    *b'0 -1 1e400 1.5 null true "" "x" [] {} [[]] [1] [[0,9]] 9223372036854775808 -0 NaN 1e5 {"a":1}'.split(),
    *(
        b"[" * 200,
        b'"' + b"9" * 300 + b'"',
        b"9" * 5000,
        b'"\\ud800"',
        b'"\\udcff"',
        b'"\\u001b[31m"',
        b"[[5,3]]",
    ),
    b"18446744073709551616",
)


# --- sessions ---


def session(data: bytes) -> None:
    """All that is made of a session, as the first byte asks; see the module's text."""
    parts = unpack(data)
    if len(parts) < 3:
        return
    which = (parts[0] or b"\0")[0]
    a, b = scratch(log_lines(parts, NOT_IN_A), "a"), scratch(log_lines(parts, NOT_IN_B), "b")
    try:
        with RunModel.open([str(a)]) as opened:
            if which & TABLES:
                _tables(opened)
            if which & PAGES:
                _pages(opened)
            if which & PLAN:
                _plan(opened)
            if which & SCRIPT:
                _script(opened)
            if which & WRITE:
                _write(opened)
            if which & DIFF:
                with RunModel.open([str(b)]) as other:
                    _diff(opened, other)
    except CaptureError:
        return
    finally:
        a.unlink()
        b.unlink()


def _tables(opened: RunModel) -> None:
    text = io.StringIO()
    console = Console(file=text, highlight=False, markup=False, emoji=False, soft_wrap=True)
    with (
        tempfile.TemporaryFile() as spool,
        tempfile.TemporaryFile() as other,
        tempfile.TemporaryFile() as third,
    ):
        table, lines = MessageTable(spool, show_all=True), JsonLines(other, opened.bytes)
        calls = CallRows(third)
        for record in sorted(opened.messages, key=lambda record: record.row):
            table.feed([record])
            lines.feed([record])
            calls.feed([record])
        table.show(opened.session, console)
        show_calls(calls.of(opened.session), opened.session, console, show_all=True)
        calls_told = b"".join(call_lines(calls.of(opened.session), None))
        assert not calls_told or list(parse(printable_json(calls_told)))
        said = list(parse(printable_json(b"".join(lines.finish(opened.session)))))
    assert sum(line["kind"] == "message" for line in said) == len(opened)
    show_summary(opened.session, console, hidden=0)
    run = _trace(opened)
    for question in QUESTIONS.values():
        show_lines(question.show(run, True), console)
        list(parse(printable_json(_json(question.json(run))) or b"{}\n"))
    for record in opened.messages[:4]:
        for part in detail(record, opened.session, opened.bytes):
            console.print(part)
    _printable(text.getvalue())


def _json(objects: Iterable[dict[str, object]]) -> bytes:
    from rpcinspect.views.jsonl.lines import lines

    return lines(iter(objects))


def _pages(opened: RunModel) -> None:
    run = _trace(opened)
    page = b"".join(trace_html(run)).decode()
    _own_elements(page, "trace")
    json.loads(printable_json(b"".join(perfetto_pieces(run))), parse_constant=_refuse)
    for line in otlp_lines(run):
        json.loads(line, parse_constant=_refuse)
        assert line.count(b"\n") == 1
    drawn = list(dot_lines(run.graphs))
    assert all("\n" not in line for line in drawn)
    _printable("\n".join(drawn))


def _trace(opened: RunModel) -> RunModel:
    return RunModel(opened.session, opened.messages, ends=opened.ends, source=opened.bytes)


def _plan(opened: RunModel) -> None:
    text = io.StringIO()
    console = Console(file=text, highlight=False, markup=False, emoji=False, soft_wrap=True)
    messages = opened.messages
    for options in (PlanOptions(), PlanOptions(engine="agent", stand_ins=True), PlanOptions(joins=True)):
        made = plan(opened, options)
        show_plan(made, console, control=True)
        list(parse(printable_json(plan_lines(made))))
        for one in made.sessions:
            for step in one.steps:
                if step.action == "send":
                    assert step.message < len(messages)
    checker = TensorChecker()
    for record in messages:
        try:
            checker.check(
                record.rpc.message.tensor_table,
                [opened.read(t.extent) for t in record.tp.tensors if t.extent],
            )
        except RpcInspectError:
            continue
    for context in opened.session.contexts[:2]:
        try:
            plan(opened, PlanOptions(context=context.context_id))
        except RpcInspectError as error:
            str(error)
    _printable(text.getvalue())


def _script(opened: RunModel) -> None:
    wanted = Wanted(captures=("a.pcap",))
    gate = ExecutionPolicy()
    made = reproduction(opened.session, opened.messages, ReproductionOptions(), gate, unwritable(wanted))
    if made.refused or not made.calls:
        return
    written = reproducer(made, wanted, opened.bytes)
    allowed = {use.name for use in made.globals}
    for text in (written.script, written.test):
        assert text.isascii()
        tree = ast.parse(text)
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}"]
            for name in names:
                own = name.partition(".")[0] in OWN_IMPORTS
                assert own or any(f"{use}.".startswith(f"{name}.") for use in allowed), name
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "__import__", "compile"), node.func.id


OWN_IMPORTS = STANDARD | {
    "__future__",
    "pathlib",
    "random",
    "threading",
    "torch",
    "numpy",
    "pytest",
    "reproduce",
}


def _write(opened: RunModel) -> None:
    output = io.BytesIO()
    write_session(output, opened.session, opened.messages, opened.read)
    again = scratch(output.getvalue(), "written")
    try:
        with RunModel.open([str(again)]) as other:
            assert _whole(other) == _whole(opened), "the written capture says something else"
    finally:
        again.unlink()


def _whole(opened: RunModel) -> Counter[tuple[bytes, ...]]:
    return Counter(r.tp.payloads for r in opened.messages if r.tp.payload_missing is None)


def _diff(a: RunModel, b: RunModel) -> None:
    same = compare_runs(a, a, Rules())
    assert same.same, [found.difference for found in same.found][:3]
    forth, back = compare_runs(a, b, Rules()), compare_runs(b, a, Rules())
    assert forth.same == back.same
    codes = [Counter(found.difference.code for found in one.found) for one in (forth, back)]
    mirrored = Counter({MIRROR.get(code, code): n for code, n in codes[1].items()})
    assert codes[0] == mirrored, (codes[0], mirrored)
    text = io.StringIO()
    console = Console(file=text, highlight=False, markup=False, emoji=False, soft_wrap=True)
    show_diff(forth, (a, b), console, show_all=True)
    _printable(text.getvalue())
    list(parse(printable_json(diff_lines(forth))))
    _own_elements(b"".join(diff_html(forth, (a, b))).decode(), "diff")


MIRROR = {"missing": "extra", "extra": "missing"}


# --- what must hold of texts ---


def _printable(text: str) -> None:
    """A terminal shows every character and obeys none."""
    for character in set(text):
        assert character == "\n" or character.isprintable(), repr(character)


def _refuse(literal: str) -> float:
    raise AssertionError(f"{literal} is no JSON")


class _Elements(HTMLParser):
    """The elements of a page, with the names of their attributes, and all that is run or styles it."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.handlers: set[str] = set()
        self.code: list[str] = []
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.handlers |= {name for name, _ in attrs if name.startswith("on")}
        self._open = tag in ("script", "style") and dict(attrs).get("type") != "text/plain"

    def handle_data(self, data: str) -> None:
        if self._open:
            self.code.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._open = False


def _elements(page: str) -> _Elements:
    parser = _Elements()
    parser.feed(page)
    parser.close()
    return parser


@cache
def _honest(kind: str) -> tuple[frozenset[str], frozenset[str]]:
    """(elements, scripts and styles) of the pages of honest sessions."""
    tags: set[str] = set()
    code: set[str] = set()
    for path in PAGES_OF:
        with RunModel.open([str(path)]) as opened, RunModel.open([str(OTHER_PAGE)]) as other:
            if kind == "trace":
                page = b"".join(trace_html(_trace(opened))).decode()
            else:
                page = b"".join(diff_html(compare_runs(opened, other, Rules()), (opened, other))).decode()
        found = _elements(page)
        tags |= found.tags
        code |= set(found.code)
    return frozenset(tags), frozenset(code)


CAPTURES = corpus.ROOT / "captures"
PAGES_OF = tuple(
    CAPTURES / name
    for name in (
        "basic_chain.pcap",
        "pairs/error.pcap.gz",
        "pairs/base.pcap.gz",
        "pairs/call_dropped.pcap.gz",
    )
)
OTHER_PAGE = CAPTURES / "pairs" / "dropout_seed.pcap.gz"


def _own_elements(page: str, kind: str) -> None:
    found = _elements(page)
    tags, code = _honest(kind)
    assert not found.tags - tags - MAY_COME, f"elements that are not the page's own: {found.tags - tags}"
    assert set(found.code) <= code, "a script or a style that is not the page's own"
    assert not found.handlers, found.handlers


MAY_COME = {"details", "summary", "ul", "li", "ol", "dl", "dt", "dd", "em", "pre", "noscript", "code", "b"}
"""What a page of another session may have beside those that were looked at; none of these does anything."""
