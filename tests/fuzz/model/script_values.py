"""Values of TorchScript in the dialect of torch's C++ Pickler, and the tensors of messages that have them."""

from __future__ import annotations

import struct

from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.tensor import TensorMeta, to_tensor_table
from tests.fuzz.model.writing import Draw


def _tensor(
    number: int, dtype: str, sizes: tuple[int, ...], strides: tuple[int, ...], data: bytes, size: int
) -> tuple[TensorMeta, bytes]:
    meta = TensorMeta(
        dtype=dtype, sizes=sizes, strides=strides, storage=number, storage_numel=len(data) // size
    )
    return meta, data


_FLOATS = struct.Struct("<6f").pack(0.5, -1.0, 2.0, 3.5, 0.0, 1e30)
_SPECS: tuple[tuple[str, tuple[int, ...], tuple[int, ...], bytes, int], ...] = (
    ("float32", (2, 3), (3, 1), _FLOATS, 4),
    ("float32", (6,), (1,), _FLOATS, 4),
    ("float32", (3, 2), (1, 3), _FLOATS, 4),
    ("float32", (1, 2, 3, 1), (6, 3, 1, 1), _FLOATS, 4),
    ("float32", (5, 6), (0, 1), _FLOATS, 4),
    ("float32", (), (), _FLOATS[:4], 4),
    ("float32", (0,), (1,), b"", 4),
    ("float64", (2, 2), (2, 1), struct.pack("<4d", 1, 2, 3, 4), 8),
    ("int64", (3,), (1,), struct.pack("<3q", 0, 1, 5), 8),
    ("int64", (2, 2), (2, 1), struct.pack("<4q", 0, 1, -1, 1 << 40), 8),
    ("int64", (), (), struct.pack("<q", 1 << 40), 8),
    ("int32", (3,), (1,), struct.pack("<3i", 0, -1, 1 << 30), 4),
    ("uint8", (4,), (1,), bytes((0, 1, 2, 255)), 1),
    ("bool", (2, 3), (3, 1), bytes((0, 1, 0, 1, 1, 0)), 1),
    ("complex64", (2,), (1,), struct.pack("<4f", 1, 2, 3, 4), 8),
    ("bfloat16", (2, 2), (2, 1), bytes(8), 2),
    ("int64", (1, 2), (2, 1), struct.pack("<2q", 7, 1 << 62), 8),
)
TENSORS = tuple(_tensor(number, *spec) for number, spec in enumerate(_SPECS))
TABLE = to_tensor_table([meta for meta, _ in TENSORS])
STORAGES = tuple(data for _, data in TENSORS)
INTEGERS = tuple(number for number, spec in enumerate(_SPECS) if "int" in spec[0])

CALL = str(int(MessageType.SCRIPT_CALL))
NUMBERS = (
    0,
    1,
    1,
    2,
    3,
    -1,
    -2,
    5,
    6,
    7,
    64,
    1 << 20,
    1 << 31,
    -(1 << 31),
    (1 << 40) + 1,
    (1 << 63) - 1,
    -(1 << 63),
)
WORDS = (
    "",
    "x",
    "mean",
    "sum",
    "none",
    "cpu",
    "replicate",
    "constant",
    "zeros",
    "bilinear",
    "w0",
    "floor",
    "reflect",
)
NAMES = (
    *("__torch__.job.scripted", "__torch__.job.Thing", "__torch__.canary.scripted", "__torch__.canary.Thing"),
    *(
        "__torch__.job.step",
        "__torch__.torch.classes.quantized.LinearPackedParamsBase",
        "__torch__.torch.classes.c10d.Work",
    ),
    *(
        "__torch__.torch.distributed.optim.optimizer._script_local_optimizer_step",
        "os.system",
        "builtins.eval",
    ),
    *(
        "torch.jit._pickle.unchecked_cast",
        "torch._utils._rebuild_tensor_v2",
        "collections.OrderedDict",
        "torch.device",
    ),
    *(
        "torch.jit._pickle.build_tensorlist",
        "torch.jit._pickle.build_intlist",
        "torch.jit._pickle.restore_type_tag",
    ),
    *(
        "torch.jit._pickle.build_tensor_from_id",
        "torch.distributed.rpc.rref",
        "torch.FloatStorage",
        "torch.per_tensor_affine",
    ),
    *(
        "torch._utils._rebuild_qtensor",
        "torch._utils._rebuild_sparse_tensor",
        "torch._utils._rebuild_parameter",
    ),
    *(
        "torch._tensor._rebuild_from_type_v2",
        "builtins.complex",
        "torch.jit._pickle.build_boollist",
        "fractions.Fraction",
    ),
)
TYPES = (
    *(
        "List[int]",
        "List[Tensor]",
        "Dict[str, int]",
        "Dict[int, Tensor]",
        "List[List[int]]",
        "Optional[int]",
        "int",
        "Tensor",
    ),
    *(
        "Tuple[int, str]",
        "List[Optional[int]]",
        "Dict[Tensor, int]",
        "Future[int]",
        "RRef[int]",
        "__torch__.canary.Thing",
    ),
    *(
        "List[" * 40 + "int" + "]" * 40,
        "Any",
        "Union[int, str]",
        "List[Any]",
        "NoneType",
        "Device",
        "Generator",
        "List[",
    ),
)


# --- values ---


def number(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def name(dotted: str) -> bytes:
    module, _, last = dotted.rpartition(".")
    return f"c{module}\n{last}\n".encode()


def call(dotted: str, *args: bytes) -> bytes:
    return name(dotted) + b"(" + b"".join(args) + b"tR"


def tensor(index: int) -> bytes:
    return call("torch.jit._pickle.build_tensor_from_id", number(index))


def listed(items: list[bytes]) -> bytes:
    return b"](" + b"".join(items) + b"e"


def built(kind: str, items: list[bytes]) -> bytes:
    return call(f"torch.jit._pickle.build_{kind}list", listed(items))


def payload(*parts: bytes) -> bytes:
    """A call: arguments, schema and qualified name, or only the latter."""
    return b"\x80\x02(" + b"".join(parts) + b"t."


def any_value(draw: Draw, depth: int = 3) -> bytes:
    """A value of any type."""
    if depth <= 0 or draw.random() < 0.5:
        return draw.choice(
            (
                lambda: b"N",
                lambda: draw.choice((b"\x88", b"\x89")),
                lambda: number(draw.choice(NUMBERS)),
                lambda: b"G" + struct.pack(">d", draw.choice((0.0, 0.5, -1.0, 1e308, float("nan")))),
                lambda: text(draw.choice(WORDS)),
                lambda: tensor(draw.randrange(len(TENSORS))),
                lambda: call("torch.device", text("cpu")),
                lambda: built(
                    "int", [number(draw.choice(NUMBERS)) for _ in range(draw.choice((0, 1, 2, 4)))]
                ),
            )
        )()
    parts = [any_value(draw, depth - 1) for _ in range(draw.choice((0, 1, 2)))]
    match draw.randrange(8):
        case 0:
            return b"(" + b"".join(parts) + b"t"
        case 1:
            return call("torch.jit._pickle.restore_type_tag", listed(parts), text(draw.choice(TYPES)))
        case 2:
            pairs = b"".join(text(draw.choice(WORDS)) + part for part in parts)
            return call("torch.jit._pickle.restore_type_tag", b"}(" + pairs + b"u", text(draw.choice(TYPES)))
        case 3:
            return built("tensor", [tensor(draw.randrange(len(TENSORS))) for _ in parts])
        case 4:
            ids = (number(draw.choice((0, 0, 1, 7, 1 << 40))) for _ in range(6))
            return call("torch.distributed.rpc.rref", *ids, text(draw.choice(TYPES)))
        case 5:
            return call("builtins.complex", number(1), number(2))
        case 6:
            return built(draw.choice(("int", "double", "bool")), parts)
        case _:
            return (
                name(draw.choice(NAMES))
                + b"".join(parts)
                + draw.choice((b")R", b")\x81", b")\x81}b", b"}b", b""))
            )
