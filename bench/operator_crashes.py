"""Calls operators with arguments that were chosen to break them, each in a process of its own.

    python bench/operator_crashes.py                      every operator that passes, 200 calls each: an hour
    python bench/operator_crashes.py --calls 20 cat sum   these, with overloads or without
    python bench/operator_crashes.py --call 17 cat        show one call, and make it here

In: the operators of operator_table.PASSES, or those that are named; the sample inputs of torch's own tests,
where they have some. Out: a line of JSON for each operator: how many calls it was given and how many it
answered, and each call that ended its process, by its number and its signal. Exit status 1 if there was any.

An argument is of the kind that its schema says, as `operators.judge_operator` demands: so this is what a
capture can do to a live worker with what passes. Tensors are of every type and layout that can be sent, with
indices far outside, with bools that are neither 0 nor 1, expanded to 2^47 elements, with strides that
overlap. What an operator answers is read in full, and a backward pass is run through it. Blocks of memory lie
between guard pages (guard_pages.c; needs a C compiler), so that a step outside of one ends the process.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import mmap
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from rpcinspect.replayer.planning.operator_table import PASSES
from rpcinspect.replayer.planning.operators import ATEN, MAX_SIZE

CALL_S = 5
START_S = 120
MEMORY = 2 << 30
"""Bytes that a process may map beyond what it has at its start."""
ENOUGH = 3
"""Deaths, or calls that took too long, after which an operator is left."""

HONEST = 40
"""Calls that an operator answers, of which others are made."""

INT64 = 1 << 63
FAR = (
    INT64 - 1,
    -INT64,
    1 - INT64,
    1 << 62,
    (1 << 62) + 5,
    1 << 40,
    -(1 << 40),
    1 << 32,
    1 << 31,
    -(1 << 31),
)
WRAPPING = (1 << 62, (1 << 62) + 5)
"""Four of them are a small number."""
SIZES = (MAX_SIZE, -MAX_SIZE, MAX_SIZE - 1, 1 << 30, 1 << 16, 65537)
NEAR = (0, 1, 2, 3, 4, 5, 7, 8, -1, -2, -3, 16, 64, 100)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, math.nan, math.inf, -math.inf, 1e308, 5e-324, 1e-5, -100.0, 3e9)
SHAPES = (
    *((), (0,), (1,), (3,), (4,), (5,), (0, 3), (3, 0), (3, 3), (4, 4), (2, 3), (3, 4), (4, 3), (1, 4)),
    *((2, 3, 4), (1, 3, 8, 8), (2, 3, 8, 8), (1, 2, 4, 4, 4), (2, 4, 6), (1, 1, 1, 1), (0, 3, 4), (2, 0, 3)),
    *((1,) * 8, (64, 64), (1000,)),
)
VAST = (
    *((1 << 47,), (1 << 40, 3), (1 << 31, 1, 1, 1), (65536, 65536), (1 << 33, 2), ((1 << 31) + 5,)),
    *((1 << 15, 1 << 15, 1 << 15), (3, 1 << 40), (1, 1 << 33)),
)
"""Shapes of one element that is repeated: within what may be sent."""
WORDS = (
    *("mean", "sum", "none", "reflect", "constant", "replicate", "circular", "linear", "lower", "higher"),
    *("midpoint", "nearest", "L", "U", "reduced", "fro", "nuc", "prod", "amax", "amin", "add", "multiply"),
    *("tanh", "trunc", "floor", "left", "right", "same", "valid", "ij", "xy", "ij,jk->ik", "ii->i", "...->"),
    *("->", "i", "ij,ij", "a,b,c->", "", "a" * 300, "\0"),
)
DTYPES = (
    *(torch.float32, torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int64, torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8),
    *(torch.bool, torch.bool, torch.complex64, torch.complex128, torch.complex32),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64),
)
ENUMS = {"ScalarType": 46, "Layout": 3, "MemoryFormat": 4}
CODES = {"none": 0, "mean": 1, "sum": 2}
"""torch's Python functions take these words where operators take numbers."""


# --- arguments ----------------------------------------------------------------------------------------------


def plain(dice: random.Random, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor with its own storage."""
    if dtype == torch.bool:
        tidy = dice.random() < 0.6
        return _drawn(dice, shape, (0, 1) if tidy else (0, 1, 2, 3, 128, 255), torch.uint8).view(torch.bool)
    if dtype.is_floating_point or dtype.is_complex:
        if dice.random() < 0.8:
            return torch.randn(shape).to(dtype)
        return _drawn(dice, shape, FLOATS, torch.float64).to(dtype)
    few = dice.choice(((0, 1, 2, 3), NEAR, NEAR + FAR, FAR, (dice.choice(FAR), 5), WRAPPING))
    return _drawn(dice, shape, few, torch.int64).to(dtype)


def edged(dice: random.Random, value: Any, dtype: torch.dtype) -> Any:
    """The same of the lowest integers of a type, and -1: what does not fit its quotient."""
    low = max(torch.iinfo(dtype).min, -INT64)
    few = (low, low, -1, -1, 0, 1)
    if isinstance(value, list):
        return [edged(dice, item, dtype) for item in value]
    if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.numel() <= 1 << 16:
        return _drawn(dice, value.shape, few, torch.int64).to(dtype)
    return dice.choice(few) if type(value) is float else value


def _drawn(
    dice: random.Random, shape: Sequence[int], few: Sequence[float], dtype: torch.dtype
) -> torch.Tensor:
    chance = torch.Generator().manual_seed(dice.getrandbits(63))
    return torch.tensor(few, dtype=dtype)[torch.randint(0, len(few), tuple(shape), generator=chance)]


def any_tensor(dice: random.Random) -> torch.Tensor:
    tensor = plain(dice, dice.choice(SHAPES), dice.choice(DTYPES))
    return like(dice, tensor) if dice.random() < 0.4 else tensor


def like(dice: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    """Another one, which resembles it in some way, or in none."""
    if tensor.layout != torch.strided or tensor.is_quantized:
        return any_tensor(dice)
    shape = tuple(tensor.shape)
    way = dice.randrange(14)
    if way == 0:
        return tensor.to(dice.choice(DTYPES))
    if way == 1:
        return plain(dice, shape, dice.choice(DTYPES))
    if way in (2, 3):
        return plain(dice, shape, torch.int64 if way == 2 else tensor.dtype)
    if way == 4:
        return plain(dice, dice.choice(SHAPES), tensor.dtype)
    if way == 5:
        return expanded(dice, dice.choice((*VAST, shape)), dice.choice((tensor.dtype, *DTYPES)))
    if way == 6:
        sizes = list(shape) or [1]
        sizes[dice.randrange(len(sizes))] = dice.choice((0, 1, 2, 1 << 31, 1 << 40))
        return expanded(dice, sizes, tensor.dtype)
    if way == 7:
        return quantized(dice, shape or (3, 4))
    if way == 8:
        return sparse_coo(dice, shape or (3, 4), tensor.dtype)
    if way == 9:
        return sparse_csr(dice, tensor.dtype)
    if way == 10:
        rank = max(len(shape), 1)
        sizes = [dice.choice((0, 1, 2, 3)) for _ in range(rank)]
        strides = [dice.choice((0, 1, 2, 5)) for _ in range(rank)]
        reach = sum(max(size - 1, 0) * stride for size, stride in zip(sizes, strides, strict=True))
        return plain(dice, (reach + 8,), tensor.dtype).as_strided(sizes, strides, dice.choice((0, 1, 7)))
    if way == 11:
        return tensor[..., None]
    if way == 12 and shape and shape[0]:
        return tensor[0]
    if tensor.is_complex():
        return tensor.conj()
    return tensor.T if len(shape) == 2 else tensor


def expanded(dice: random.Random, sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    if math.prod(sizes) > 1 << 47:
        sizes = (1 << 47,)
    return plain(dice, (1,), dtype).as_strided(tuple(sizes), [0] * len(sizes))


def quantized(dice: random.Random, shape: Sequence[int]) -> torch.Tensor:
    values = torch.randn(tuple(shape))
    if dice.random() < 0.5:
        kind = dice.choice((torch.qint8, torch.quint8, torch.qint32))
        return torch.quantize_per_tensor(
            values, dice.choice((0.1, 1.0, 1e-30)), dice.choice((0, 5, 100)), kind
        )
    axis = dice.randrange(len(shape))
    channels = shape[axis]
    zeros = torch.zeros(channels, dtype=torch.int64)
    kind = dice.choice((torch.qint8, torch.quint8, torch.qint32))
    return torch.quantize_per_channel(values, torch.rand(channels) + 0.1, zeros, axis, kind)


def sparse_coo(dice: random.Random, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    sizes = list(shape)
    dims = dice.randrange(len(sizes) + 1)
    if dims and dice.random() < 0.2:
        sizes[dice.randrange(dims)] = dice.choice((1, 1 << 31, 1 << 40))
    count = 0 if 0 in sizes[:dims] else dice.choice((0, 1, 3, 7) if dims else (0, 1))
    rows = [
        [dice.choice((0, size - 1, dice.randrange(size))) for _ in range(count)]
        for size in sizes[:dims]
        if size
    ]
    indices = torch.tensor(rows, dtype=torch.int64).reshape(dims, count)
    values = plain(dice, (count, *sizes[dims:]), dtype)
    return torch.ops.aten._sparse_coo_tensor_unsafe(indices, values, sizes)


def sparse_csr(dice: random.Random, dtype: torch.dtype) -> torch.Tensor:
    rows, columns = dice.choice((0, 1, 2, 4)), dice.choice((0, 1, 3, 4))
    count = dice.choice((0, 1, 3, 6)) if rows and columns else 0
    ends = [0, *sorted(dice.randrange(count + 1) for _ in range(rows - 1)), count] if rows else [0]
    kind = dice.choice((torch.int64, torch.int32))
    places = [dice.randrange(columns) for _ in range(count)]
    dense = () if dice.random() < 0.8 else (2,)
    return torch.ops.aten._sparse_csr_tensor_unsafe(
        torch.tensor(ends, dtype=kind),
        torch.tensor(places, dtype=kind),
        plain(dice, (count, *dense), dtype),
        [rows, columns, *dense],
        dtype=dtype,
        layout=torch.sparse_csr,
    )


def any_value(dice: random.Random, kind: str, length: int | None) -> Any:
    """An argument of a kind of schemas; `length`: that of `int[2]`."""
    if kind.endswith("?"):
        return None if dice.random() < 0.4 else any_value(dice, kind[:-1], length)
    if kind.endswith("[]"):
        count = length if length and dice.random() < 0.6 else dice.choice((0, 1, 2, 3, 4, 6))
        return [any_value(dice, kind[:-2], None) for _ in range(count)]
    if kind == "Tensor":
        return any_tensor(dice)
    if kind in ("int", "SymInt"):
        return dice.choice(NEAR) if dice.random() < 0.65 else dice.choice(SIZES)
    if kind in ENUMS:
        return dice.randrange(ENUMS[kind])
    return {
        "float": lambda: dice.choice(FLOATS),
        "complex": lambda: complex(dice.choice(FLOATS), dice.choice(FLOATS)),
        "bool": lambda: dice.random() < 0.5,
        "str": lambda: dice.choice(WORDS),
        "Scalar": lambda: dice.choice((*FLOATS, *NEAR, *FAR, True, 1 + 2j, complex(math.nan, 0))),
        "Device": lambda: torch.device("cpu"),
        "Generator": lambda: None,
    }[kind]()


def changed(dice: random.Random, value: Any, kind: str, length: int | None) -> Any:
    if isinstance(value, torch.Tensor) and dice.random() < 0.85:
        return like(dice, value)
    if isinstance(value, list) and value and dice.random() < 0.7:
        place, element = dice.randrange(len(value)), kind.removesuffix("?").removesuffix("[]")
        value = [*value, value[0]] if dice.random() < 0.2 else list(value)
        value[place] = changed(dice, value[place], element, None)
        return value
    return any_value(dice, kind, length)


# --- operators ----------------------------------------------------------------------------------------------


class Tried:
    """An operator with calls of it that it answers."""

    def __init__(self, name: str, schema: Any) -> None:
        self.name = name
        self.arguments = schema.arguments
        self.kinds = [(one.real_type.str(), one.N) for one in schema.arguments]
        self.operation = torch._C._get_operation_overload(schema.name, schema.overload_name)[0]
        self.honest: list[list[Any]] = []

    def call(self, values: Sequence[Any]) -> Any:
        named = {one.name: value for one, value in zip(self.arguments, values, strict=True) if one.kwarg_only}
        return self.operation(*values[: len(values) - len(named)], **named)

    def learn(self) -> None:
        """Finds calls that it answers, among torch's own samples first."""
        makers = [lambda values=values: values for values in KNOWN.get(self.name, list)()]
        makers += [lambda values=values: values for values in self._samples()]
        dice = random.Random(self.name)
        makers += [lambda: self._shot(dice)] * (300 if len(makers) < HONEST else 0)
        for maker in makers:
            try:
                values = maker()
                self.call(values)
            except Exception:  # torch has many ways to say no, also to what the tensors should be
                continue
            self.honest.append(values)
            if len(self.honest) == HONEST:
                return

    def make(self, number: int, seed: str) -> list[Any]:
        """The arguments of one call."""
        dice = random.Random(f"{self.name}/{number}/{seed}")
        torch.manual_seed(number)
        if self.honest and dice.random() < 0.85:
            values = list(dice.choice(self.honest))
            for _ in range(dice.choice((0, 1, 1, 1, 2, 2, 3)) if values else 0):
                place = dice.randrange(len(values))
                values[place] = changed(dice, values[place], *self.kinds[place])
        else:
            values = self._shot(dice)
        if dice.random() < 0.1:
            dtype = dice.choice((torch.int64, torch.int32, torch.int16, torch.int8))
            return [edged(dice, value, dtype) for value in values]
        return [_tracked(value) for value in values] if dice.random() < 0.3 else values

    def _shot(self, dice: random.Random) -> list[Any]:
        """Values that fit the schema, tensors of one shape among them."""
        shape, dtype = dice.choice(SHAPES), dice.choice(DTYPES)
        return [
            plain(dice, shape, dtype)
            if kind == "Tensor" and dice.random() < 0.7
            else any_value(dice, kind, length)
            for kind, length in self.kinds
        ]

    def _samples(self) -> Iterator[list[Any]]:
        for info in SAMPLES.get(self.name.partition(".")[0], ())[:3]:
            for dtype in (torch.float32, torch.int64, torch.complex64):
                try:
                    samples = info.sample_inputs("cpu", dtype, requires_grad=False)
                    for _, one in zip(range(12), samples, strict=False):
                        values = self._bound([one.input, *one.args], dict(one.kwargs))
                        if values is not None:
                            yield values
                except Exception:  # of torch's tests: it has no samples of this type
                    continue

    def _bound(self, positional: list[Any], named: dict[str, Any]) -> list[Any] | None:
        """What a call from Python gives each argument of the schema."""
        values: list[Any] = []
        for one, (kind, length) in zip(self.arguments, self.kinds, strict=True):
            if positional and not one.kwarg_only:
                value = positional.pop(0)
            elif one.name in named:
                value = named[one.name]
            elif one.has_default_value():
                value = one.default_value
            elif kind.endswith("?") or kind == "bool" or one.name == "reduction":
                value = None if kind.endswith("?") else kind == "int"
            else:
                return None
            if isinstance(value, str) and kind == "int":
                value = CODES.get(value, 0)
            if type(value) is int and kind.startswith(("int[", "SymInt[")):
                value = [value] * (length or 1)
            values.append(list(value) if isinstance(value, tuple) else value)
        return values


def _tracked(value: Any) -> Any:
    if isinstance(value, list):
        return [_tracked(item) for item in value]
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_quantized:
        return value
    return value.detach().requires_grad_() if value.is_floating_point() or value.is_complex() else value


def read_all(value: Any, dice: random.Random) -> None:
    """Reads every byte of an answer, and goes back through what made it."""
    if isinstance(value, (list, tuple)):
        for item in value:
            read_all(item, dice)
    if not isinstance(value, torch.Tensor) or value.numel() > 1 << 18:
        return
    if value.layout == torch.sparse_coo:
        value._indices().clone()
        value._values().clone()
    elif value.layout == torch.strided:
        (value.int_repr() if value.is_quantized else value).clone(memory_format=torch.contiguous_format)
        if value.requires_grad:
            value.backward(_gradient(value.detach(), dice))


def _gradient(value: torch.Tensor, dice: random.Random) -> torch.Tensor:
    """One of those that autograd takes for a tensor: of its shape, with any strides, also sparse."""
    way = dice.randrange(4)
    if way == 0:
        return expanded(dice, value.shape, value.dtype)
    if way == 1:
        return sparse_coo(dice, value.shape, value.dtype)
    return plain(dice, value.shape, value.dtype)


def _targets(*shape: int) -> Any:
    target = torch.randint(0, 3, (shape[0], *shape[2:]))
    return [
        [torch.randn(shape), target, None, 1, -100],
        [torch.randn(shape), target, torch.rand(shape[1]), 2, 1],
    ]


def _channels() -> Any:
    zeros = torch.zeros(3, dtype=torch.int64)
    return [
        [torch.randn(2, 3), torch.rand(3) + 0.1, zeros, 1, 12],
        [torch.randn(3, 4), torch.rand(3), zeros, 0, 13],
    ]


KNOWN = {
    "nll_loss2d": lambda: _targets(2, 3, 4, 4),
    "nll_loss_nd": lambda: [*_targets(2, 3), *_targets(2, 3, 4)],
    "quantize_per_channel": _channels,
    "int_repr": lambda: [[quantized(random.Random(number), (2, 3))] for number in range(8)],
    "dequantize.self": lambda: [[quantized(random.Random(number), (2, 3))] for number in range(8)],
}
"""Calls of operators that torch has no samples of."""
SAMPLES: dict[str, list[Any]] = {}


def load_samples() -> None:
    """Fills SAMPLES with what torch's tests know of each operator."""
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        names = {info.name, info.aten_name, info.name.rpartition(".")[2], info.name.replace(".", "_")}
        for name in {*names, *(alias.name for alias in info.aliases or ())}:
            SAMPLES.setdefault(name, []).append(info)


# --- processes ----------------------------------------------------------------------------------------------

PROGRESS = struct.Struct("qq")
"""Number of the call that is being made, and how many were answered."""


def try_operator(tried: Tried, calls: int, seed: str) -> dict[str, Any]:
    progress = mmap.mmap(-1, PROGRESS.size)
    deaths, slow, answered, start = [], 0, 0, 0
    while start < calls and len(deaths) < ENOUGH and slow < ENOUGH:
        PROGRESS.pack_into(progress, 0, -1, 0)
        child = os.fork()
        if not child:
            try:
                _work(tried, range(start, calls), seed, progress)
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        number, count = PROGRESS.unpack_from(progress)
        answered += count
        start = max(number, start) + 1
        if not os.WIFSIGNALED(status):
            if status:
                raise RuntimeError(f"{tried.name}: call {number} ended the process with {status >> 8}")
            break
        if os.WTERMSIG(status) == signal.SIGALRM:
            slow += 1
        else:
            deaths.append({"call": number, "signal": signal.Signals(os.WTERMSIG(status)).name})
            if number < 0:
                break
    return {
        "operator": tried.name,
        "calls": min(start, calls),
        "answered": answered,
        "slow": slow,
        "deaths": deaths,
    }


def _work(tried: Tried, numbers: range, seed: str, progress: mmap.mmap) -> None:
    """In the child: the calls, the number of each written down before it is made."""
    end_with_parent()
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    signal.alarm(START_S)
    tried.learn()
    answered = 0
    for number in numbers:
        PROGRESS.pack_into(progress, 0, number, answered)
        signal.alarm(CALL_S)
        try:
            values = tried.make(number, seed)
            answer = tried.call(values)
            answered += 1
            read_all(answer, random.Random(number))
        except Exception:
            pass
        values = answer = None
    PROGRESS.pack_into(progress, 0, numbers.stop, answered)


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def show(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(show(item) for item in value)}]"
    if not isinstance(value, torch.Tensor):
        return repr(value)
    text = f"{value.dtype}{list(value.shape)}".removeprefix("torch.")
    if value.layout != torch.strided or value.is_quantized:
        return f"<{value.layout} {'quantized ' if value.is_quantized else ''}{text}>"
    cells = f" {value.tolist()}" if value.numel() < 10 else ""
    return f"<{text} strides {list(value.stride())}{cells}>"


def guarded() -> None:
    """Starts this program again with guard pages, unless it has them."""
    if GUARD in os.environ:
        return
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "guard_pages.so"
        source = Path(__file__).with_name("guard_pages.c")
        command = ["cc", "-O1", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl", "-lpthread"]
        subprocess.run(command, check=True)
        environment = os.environ | {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1", GUARD: "1"}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)


PR_SET_PDEATHSIG = 1
GUARD = "OPERATOR_CRASHES_GUARD"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="with overloads or without; default: all that pass")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--call", type=int, help="make this one, here")
    options = parser.parse_args()
    guarded()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    end_with_parent()
    load_samples()
    for number in range(100):  # what can't be made is tried with no operator, and nobody would see it
        dice = random.Random(number)
        sparse_coo(dice, (3, 4), torch.float32)
        sparse_csr(dice, torch.float32)
        quantized(dice, (3, 4))
    registry = {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith(ATEN):
            overload = f".{schema.overload_name}" if schema.overload_name else ""
            registry[schema.name.removeprefix(ATEN) + overload] = schema
    listed = [name for group in PASSES.values() for name in group.split()]
    asked = [one for name in options.names for one in registry if name in (one, one.partition(".")[0])]
    chosen = asked if options.names else [name for name in listed if name in registry]
    died = False
    for name in dict.fromkeys(chosen):
        tried = Tried(name, registry[name])
        if options.call is not None:
            tried.learn()
            values = tried.make(options.call, options.seed)
            print(name, *map(show, values), sep="\n  ", flush=True)
            answer = tried.call(values)
            read_all(answer, random.Random(options.call))
            print("answered")
            continue
        line = try_operator(tried, options.calls, options.seed)
        died = died or bool(line["deaths"])
        print(json.dumps(line), flush=True)
    return 1 if died else 0


if __name__ == "__main__":
    sys.exit(main())
