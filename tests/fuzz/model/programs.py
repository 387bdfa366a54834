"""Whole pickles: requests and answers of generated values, real ones with something put in, and opcode soups.

`generate` draws one of them, with what it is given to (`request` or `answer`).
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from tests.fuzz import corpus
from tests.fuzz.model import names
from tests.fuzz.model.values import RPC
from tests.fuzz.model.wild_values import WildValues as Values
from tests.fuzz.model.writing import Draw, Writer

WILD = (0.0, 0.01, 0.03, 0.1, 0.3)


class Program(NamedTuple):
    """One pickle, for what, and of which kind."""

    data: bytes
    sort: str
    origin: str


def generate(draw: Draw) -> Program:
    """One program."""
    chosen = draw.random()
    if chosen < 0.35:
        return request(draw)
    if chosen < 0.6:
        return answer(draw)
    if chosen < 0.85:
        return spliced(draw)
    return soup(draw)


def values(draw: Draw, wild: float | None = None) -> Values:
    """Values for a new program."""
    protocol = draw.choice((0, 1, 2, 2, 3, 4, 4, 4, 5))
    writer = Writer(draw, protocol, odd=draw.choice((0.0, 0.02, 0.1, 0.4)))
    return Values(draw, writer, draw.choice(WILD) if wild is None else wild)


def finished(made: Values, body: bytes, protocol: int) -> bytes:
    """With its head and end; in one frame, sometimes."""
    draw = made.draw
    body += b"."
    if protocol >= 4 and draw.random() < 0.3 and b"\x95" not in body:
        body = b"\x95" + len(body).to_bytes(8, "little") + body
    head = b"" if protocol < 2 and draw.random() < 0.5 else b"\x80" + bytes([protocol])
    return head + body + (b"tail" if draw.random() < 0.02 else b"")


def request(draw: Draw) -> Program:
    """A PythonUDF."""
    made = values(draw)
    w, protocol = made.w, made.w.protocol
    cls = w.name(f"{RPC}:PythonUDF")
    if draw.random() < 0.2:
        function, parts = made.helped()
        kwargs = w.dict([])
        return Program(
            finished(made, w.new(cls, w.tuple([function, w.tuple(parts), kwargs])), protocol),
            "request",
            "helper",
        )
    function = _function(made)
    args = w.tuple([made.any(4) for _ in range(draw.choice((0, 1, 1, 2, 3)))])
    if made.wildly():
        args = made.any(3)
    kwargs = w.dict(
        [(w.text(draw.choice(("x", "gain", "self"))), made.any(3)) for _ in range(draw.choice((0, 0, 1)))]
    )
    return Program(
        finished(made, w.new(cls, w.tuple([function, args, kwargs])), protocol), "request", "request"
    )


def _function(made: Values) -> bytes:
    """What a request calls."""
    draw, w = made.draw, made.w
    if made.wildly():
        return draw.choice(
            (made.any_name, made.attribute, made.callable, made.duck, made.any_call, made.any)
        )(3)
    match draw.randrange(10):
        case 0 | 1 | 2:
            return w.name(draw.choice(names.USERS_GOOD))
        case 3:
            return w.name(draw.choice(names.USERS))
        case 4 | 5:
            return w.name(draw.choice(names.BY_RPC))
        case 6:
            return w.new(w.name("job:" + draw.choice(("Net", "Item"))), w.tuple([]))
        case 7:
            return made.called_later(3)
        case _:
            owner = w.name("job:" + draw.choice(("Item", "Net", "Bare", "Color", "Plain", "Item.Inner")))
            if draw.random() < 0.6:
                owner = w.new(owner, w.tuple([]))
            method = w.text(draw.choice(("run", "make", "static", "forward", draw.choice(names.METHODS))))
            # the function is written last: nothing in it comes from the memo
            return w.name("builtins:getattr") + owner + method + b"\x86R"


def answer(draw: Draw) -> Program:
    """Any value, or an error."""
    made = values(draw)
    protocol = made.w.protocol
    if draw.random() < 0.15:
        w = made.w
        kind = w.name(draw.choice(names.EXCEPTIONS)) if not made.wildly() else made.callable(3)
        body = (
            f"c{RPC}\nRemoteException\n".encode()
            + w.text("On WorkerInfo(id=1, name=w1):\nboom")
            + kind
            + b"\x86\x81"
        )
        return Program(finished(made, body, protocol), "answer", "error")
    return Program(finished(made, made.any(5), protocol), "answer", "answer")


# --- real pickles with something put in ---


class Real(NamedTuple):
    """A pickle of the corpus, in pieces."""

    rows: tuple[bytes, ...]
    """Opcodes, MEMOIZE as PUT, without frames."""
    spans: tuple[tuple[int, int], ...]
    """Rows of whole values whose memo nothing else reads."""
    sort: str
    top: int
    """Memo entries."""
    protocol: int


@cache
def reals() -> tuple[Real, ...]:
    """Of the captures, and of what CPython, numpy and torch write."""
    from tests.fuzz.model.honest import pickles

    found = []
    for message in corpus.distinct():
        data = getattr(message.record.rpc.command, "serialized_py_obj", None)
        if isinstance(data, bytes) and len(data) < 4000:
            sort = "request" if type(message.record.rpc.command).__name__.endswith("Call") else "answer"
            found.append(pieces(data, sort))
    found += [pieces(data, "answer") for _, data in pickles() if len(data) < 4000]
    return tuple(found)


def pieces(data: bytes, sort: str) -> Real:
    """A well-formed pickle as opcodes and spans of values."""
    ops = list(pickletools.genops(data))
    ends = [at for _, _, at in ops[1:]] + [len(data)]
    rows: list[bytes] = []
    stack: list[int | None] = []  # where each value begins; None is a mark
    spans: list[tuple[int, int]] = []
    puts: dict[int, int] = {}
    gets: list[tuple[int, int]] = []
    memo = 0
    protocol = 0
    for (op, argument, at), end in zip(ops, ends, strict=True):
        row = _users(op.name, str(argument)) or data[at:end]
        if op.name in ("PROTO", "FRAME", "STOP"):
            protocol = argument if op.name == "PROTO" else protocol
            continue
        here = len(rows)
        if op.name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            index = memo if op.name == "MEMOIZE" else int(argument)
            memo = max(memo, index) + 1
            rows.append(b"r" + index.to_bytes(4, "little"))
            puts[index] = here
            if spans and stack[-1] is not None and spans[-1][1] == here:
                spans[-1] = (spans[-1][0], here + 1)
            continue
        rows.append(row)
        if op.name in ("GET", "BINGET", "LONG_BINGET"):
            gets.append((int(argument), here))
        if op.name == "MARK":
            stack.append(None)
            continue
        begin = here
        before = op.stack_before
        count = len(before)
        if pickletools.markobject in before:
            at_mark = len(stack) - 1 - stack[::-1].index(None)
            below = before.index(pickletools.markobject)
            values_ = [one for one in stack[at_mark + 1 :] if one is not None]
            begin = min([begin, *values_])
            del stack[at_mark:]
            if below:
                begin = min(begin, stack[-1] if stack[-1] is not None else begin)
                del stack[-below:]
            begin = min(begin, begin)
        elif count:
            begin = min(begin, *(one for one in stack[-count:] if one is not None))
            del stack[-count:]
        for _ in op.stack_after:
            stack.append(begin)
            spans.append((begin, here + 1))
    good = tuple(
        (begin, end)
        for begin, end in spans
        if not any(begin <= puts.get(i, -1) < end and not begin <= at < end for i, at in gets)
    )
    return Real(tuple(rows), good, sort, memo, protocol)


KNOWN = {
    name.replace(":", " ")
    for name in (*names.PLAIN_NAMES, *names.BY_RPC, *names.JUDGED, *names.OPTIMIZER_NAMES)
}


def _users(opcode: str, argument: str) -> bytes | None:
    """Names of the capture's job, which the oracle does not have, as those of ours."""
    if opcode != "GLOBAL" or argument in KNOWN or argument.partition(" ")[0] in ("builtins", "torch"):
        return None
    return b"cjob\nstep\n" if argument.rpartition(" ")[2][:1].islower() else b"cjob\nItem\n"


def spliced(draw: Draw) -> Program:
    """A real pickle, changed in a place or two."""
    real = draw.choice(reals())
    made = values(draw, wild=draw.choice((0.02, 0.1, 0.5)))
    made.w._next = max(made.w._next, real.top)
    made.w.protocol = real.protocol
    rows = list(real.rows)
    for _ in range(draw.choice((1, 1, 1, 2))):
        begin, end = draw.choice(real.spans)
        old = b"".join(rows[begin:end])
        if not old:
            continue
        rows[begin] = draw.choice(CHANGES)(made, old)
        rows[begin + 1 : end] = [b""] * (end - begin - 1)
    data = finished(made, b"".join(rows), real.protocol)
    sort = real.sort if draw.random() < 0.9 else "answer"
    return Program(data, sort, "spliced")


def _rename(made: Values, old: bytes) -> bytes:
    return made.w.name(made.some_name()) if old[:1] == b"c" else made.any(2)


CHANGES: tuple[Callable[[Values, bytes], bytes], ...] = (
    lambda made, old: made.any(3),
    lambda made, old: made.any(3),
    lambda made, old: made.draw.choice(made.WILD)(made, 3),
    _rename,
    lambda made, old: old + made.any(2) + b"b",
    lambda made, old: old + made.any(2) + b"a",
    lambda made, old: old + made.leaf() + made.any(2) + b"s",
    lambda made, old: b"cfunctools\npartial\n" + old + b"\x85R",
    lambda made, old: (
        b"ctypes\nSimpleNamespace\n)R}" + made.w.text(made.draw.choice(names.ATTRIBUTES)) + old + b"sb"
    ),
    lambda made, old: old + b"\x85",
    lambda made, old: old + made.w.tuple(made.args(2)) + b"R",
    lambda made, old: made.leaf(),
)


# --- opcode soups ---


def soup(draw: Draw) -> Program:
    """Opcodes one after another, each where the stack allows it."""
    made = values(draw)
    protocol = made.w.protocol
    out: list[bytes] = []
    stack: list[str] = []
    for _ in range(draw.choice((8, 15, 30))):
        out.append(_step(made, stack))
    while "mark" in stack:
        del stack[len(stack) - 1 - stack[::-1].index("mark") :]
        stack.append("tuple")
        out.append(b"t")
    if not stack:
        out.append(b"N")
        stack.append("any")
    while len(stack) > 1:
        out.append(b"\x86" if draw.random() < 0.7 else b"0")
        stack.pop()
    body = b"".join(out)
    if draw.random() < 0.5:
        w = made.w
        body = (
            f"c{RPC}\nPythonUDF\n".encode() + w.name(draw.choice(names.USERS_GOOD)) + body + b"\x85}\x87\x81"
        )
        return Program(finished(made, body, protocol), "request", "soup")
    return Program(finished(made, body, protocol), "answer", "soup")


def _step(made: Values, stack: list[str]) -> bytes:
    """One opcode, or the opcodes of a value."""
    draw, w = made.draw, made.w
    above = len(stack) - 1 - stack[::-1].index("mark") if "mark" in stack else -1
    free = len(stack) - 1 - above
    options: list[tuple[bytes, int, str]] = [
        (code, takes, gives) for code, takes, gives in SIMPLE if takes <= free
    ]
    if "mark" in stack:
        for code, below, gives in MARKED:
            if above >= below and "mark" not in stack[above - below : above]:
                options.append((code, -1 - below, gives))
    chosen = draw.random()
    if chosen < 0.4 or not options:
        if draw.random() < 0.2:
            stack.append("mark")
            return b"("
        stack.append("any")
        return draw.choice((made.any, made.any_name, made.honest, made.plain_name))(1)
    if chosen < 0.5 and free and stack[-1] != "mark":
        if draw.random() < 0.5:
            return w.put("any", always=True)
        known = w.get("any")
        if known is not None:
            stack.append("any")
            return known
    code, takes, gives = draw.choice(options)
    if takes < 0:
        del stack[above + 1 + takes :]
    elif takes:
        del stack[-takes:]
    if gives == "dup":
        stack += ["any", "any"]
    elif gives:
        stack.append(gives)
    return code


SIMPLE: tuple[tuple[bytes, int, str], ...] = (
    *((b"0", 1, ""), (b"2", 1, "dup"), (b"\x85", 1, "tuple"), (b"\x86", 2, "tuple"), (b"\x87", 3, "tuple")),
    *((b")", 0, "tuple"), (b"]", 0, "list"), (b"}", 0, "dict"), (b"\x8f", 0, "set"), (b"N", 0, "any")),
    *(
        (b"R", 2, "any"),
        (b"R", 2, "any"),
        (b"\x81", 2, "any"),
        (b"\x92", 3, "any"),
        (b"b", 2, "any"),
        (b"a", 2, "any"),
    ),
    *((b"s", 3, "any"), (b"\x93", 2, "any"), (b"Q", 1, "any"), (b"\x98", 1, "any")),
)
"""Opcode, how many it takes, what it gives."""
MARKED: tuple[tuple[bytes, int, str], ...] = (
    *(
        (b"1", 0, ""),
        (b"t", 0, "tuple"),
        (b"l", 0, "list"),
        (b"d", 0, "dict"),
        (b"\x91", 0, "set"),
        (b"o", 0, "any"),
    ),
    *(
        (b"ijob\nItem\n", 0, "any"),
        (b"icollections\nOrderedDict\n", 0, "any"),
        (b"e", 1, "any"),
        (b"u", 1, "any"),
    ),
    (b"\x90", 1, "any"),
)
"""Opcode, how many it takes below the mark, what it gives."""

__all__: Sequence[str] = ("Program", "generate")
