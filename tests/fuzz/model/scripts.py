"""Messages of TorchScript: calls of operators and of compiled functions with generated values, and JIT soups.

`generate` draws the payload of a message; its tensors are always those of `script_values.TENSORS`.
"""

from __future__ import annotations

import re
import struct
from functools import cache

from rpcinspect.rpc.message import MessageType
from tests.fuzz.model.programs import Program
from tests.fuzz.model.script_values import (
    CALL,
    INTEGERS,
    NAMES,
    NUMBERS,
    TENSORS,
    WORDS,
    any_value,
    built,
    call,
    listed,
    number,
    payload,
    tensor,
    text,
)
from tests.fuzz.model.writing import Draw

# --- operators ---


@cache
def schemas() -> tuple[str, ...]:
    """Every operator that this torch has, as its schema is written into messages."""
    import torch

    found = sorted(str(schema) for schema in torch._C._jit_get_all_schemas())
    return tuple(one for one in found if one.startswith("aten::"))


_PARAMETER = re.compile(
    r"(?P<type>[\w\[\]?()!|]+(?:\(\w!?\))?(?:\[\d*\])*\??) (?P<name>\w+)(?:=(?P<default>[^,]+|\[[^\]]*\]))?"
)


def operator(draw: Draw, schema: str) -> bytes:
    """The payload of a call of an operator, with arguments nearly of its types."""
    inside = schema[schema.index("(") + 1 : schema.rindex(" -> ")].rstrip(")")
    args = []
    for parameter in _split(inside):
        kind = parameter.partition(" ")[0]
        if parameter.strip() in ("*", ""):
            continue
        args.append(any_value(draw, 2) if draw.random() < 0.03 else _argument(draw, kind))
    qualified = "torch.ops." + schema.partition("(")[0].partition(".")[0].replace("::", ".")
    return payload(*args, text(schema), text(qualified))


def _split(inside: str) -> list[str]:
    parts, level, start = [], 0, 0
    for at, sign in enumerate(inside):
        level += (sign in "([") - (sign in ")]")
        if sign == "," and not level:
            parts.append(inside[start:at].strip())
            start = at + 1
    return [*parts, inside[start:].strip()]


def _argument(draw: Draw, kind: str) -> bytes:
    """A value of a type of schemas."""
    kind = re.sub(r"\(\w+!?( -> \*)?\)", "", kind)
    if kind.endswith("?"):
        return b"N" if draw.random() < 0.5 else _argument(draw, kind[:-1])
    many = re.fullmatch(r"(.*)\[(\d*)\]", kind)
    if many is not None:
        count = int(many[2]) if many[2] and draw.random() < 0.7 else draw.choice((0, 1, 1, 2, 3))
        items = [_argument(draw, many[1]) for _ in range(count)]
        inner = many[1].rstrip("?")
        lists = {"int": "int", "SymInt": "int", "float": "double", "bool": "bool", "Tensor": "tensor"}
        if inner in lists and not many[1].endswith("?"):
            return built(lists[inner], items)
        return call(
            "torch.jit._pickle.restore_type_tag",
            listed(items),
            text(f"List[{TYPE_TEXT.get(many[1], 'Any')}]"),
        )
    match kind:
        case "Tensor":
            pool = INTEGERS if draw.random() < 0.4 else range(len(TENSORS))
            return tensor(draw.choice(pool))
        case "int" | "SymInt" | "ScalarType" | "Layout" | "MemoryFormat":
            return number(draw.choice(NUMBERS[:8] if draw.random() < 0.7 else NUMBERS))
        case "float":
            return b"G" + struct.pack(">d", draw.choice((0.0, 0.1, 0.5, 1.0, -1.0, 1e300)))
        case "bool":
            return draw.choice((b"\x88", b"\x89"))
        case "Scalar" | "number":
            return draw.choice((number(draw.choice(NUMBERS)), b"G" + struct.pack(">d", 0.5)))
        case "str":
            return text(draw.choice(WORDS))
        case "Device":
            return call("torch.device", text("cpu"))
        case "complex":
            return call("builtins.complex", number(1), number(2))
        case _:
            return any_value(draw, 2)


TYPE_TEXT = {
    "Tensor?": "Optional[Tensor]",
    "int?": "Optional[int]",
    "str": "str",
    "Scalar": "Scalar",
    "float?": "Optional[float]",
}

# --- whole payloads ---


def generate(draw: Draw, pool: tuple[str, ...] = ()) -> Program:
    """One payload; `pool`: schemas of operators, of which calls are more frequent."""
    chosen = draw.random()
    if chosen < 0.75:
        schema = draw.choice(pool if pool and draw.random() < 0.8 else schemas())
        return Program(operator(draw, schema), CALL, "operator")
    if chosen < 0.85:
        args = b"".join(any_value(draw) for _ in range(draw.choice((0, 1, 2))))
        return Program(payload(args, text(draw.choice(NAMES))), CALL, "script function")
    if chosen < 0.93:
        inside = b"".join(any_value(draw) for _ in range(draw.choice((1, 2))))
        return Program(payload(inside, text("__torch__.job.scripted")), CALL, "JIT values")
    kind = draw.choice(OTHERS)
    return Program(b"\x80\x02" + soup(draw) + b".", str(int(kind)), "JIT soup")


OTHERS = (
    *(MessageType.SCRIPT_CALL, MessageType.SCRIPT_CALL, MessageType.SCRIPT_REMOTE_CALL),
    *(MessageType.BACKWARD_AUTOGRAD_REQ, MessageType.RREF_USER_DELETE),
)
"""What soups are sent as."""


def soup(draw: Draw) -> bytes:
    """Opcodes of the dialect, anyhow; mostly such as the stack allows."""
    out, depth, marks = [], 0, 0
    for _ in range(draw.choice((4, 10, 25))):
        code, takes, gives = draw.choice(CODES)
        if depth < takes and draw.random() < 0.95:
            out.append(any_value(draw, 1))
            depth += 1
            continue
        if code == b"(":
            marks += 1
        if code in (b"t", b"l", b"e", b"u", b"d") and not marks and draw.random() < 0.95:
            out.append(b"(")
        if code in (b"q", b"h"):
            code += bytes([draw.choice((0, 0, 1, 2))])
        depth = max(0, depth - takes) + gives
        out.append(code)
    return b"".join(out) + (b"t" if marks else b"")


CODES: tuple[tuple[bytes, int, int], ...] = (
    *(
        (b"(", 0, 0),
        (b"t", 0, 1),
        (b")", 0, 1),
        (b"\x85", 1, 1),
        (b"\x86", 2, 1),
        (b"\x87", 3, 1),
        (b"]", 0, 1),
        (b"}", 0, 1),
    ),
    *(
        (b"e", 1, 1),
        (b"a", 2, 1),
        (b"u", 1, 1),
        (b"l", 0, 1),
        (b"d", 0, 1),
        (b"q", 1, 1),
        (b"h", 0, 1),
        (b"R", 2, 1),
    ),
    *(
        (b"R", 2, 1),
        (b"\x81", 2, 1),
        (b"b", 2, 1),
        (b"Q", 1, 1),
        (b"N", 0, 1),
        (b"\x88", 0, 1),
        (b"K\x00", 0, 1),
    ),
    *(
        (b"K\x01", 0, 1),
        (b"J\xff\xff\xff\xff", 0, 1),
        (b"cos\nsystem\n", 0, 1),
        (b"\x8a\x09" + b"\xff" * 9, 0, 1),
    ),
    *(
        (b"X\xff\xff\xff\x7f", 0, 1),
        (b"c__torch__.canary\nThing\n", 0, 1),
        (b"ctorch.distributed.rpc\nrref\n", 0, 1),
    ),
)
