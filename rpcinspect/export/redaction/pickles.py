"""Pickles of both dialects with other values: same opcodes, same lengths, same structure.

In: bytes of a pickle that can be read. Out: as many bytes. Every operand of every opcode is replaced, unless
it is known to be structure: names that everybody knows, references to tensors, ids. So what this module does
not know of is replaced, too, also what the pickle throws away while it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from struct import pack, unpack_from
from typing import TypeAlias

from rpcinspect.export.redaction.pseudonyms import TORCHSCRIPT, Pseudonyms
from rpcinspect.export.redaction.public import DEVICE, NUMPY_TYPE, TYPE, VALUES, is_public
from rpcinspect.pickles import numpy_nodes, semantic
from rpcinspect.pickles.jit import read_jit
from rpcinspect.pickles.opcodes import COUNTED, INTEGERS, number_integers, opcode_places, replaced
from rpcinspect.pickles.python import PythonPickle, read_python_pickle
from rpcinspect.pickles.safe_names import STEP_OPTIMIZERS
from rpcinspect.pickles.tree import Global, PickleCall, Value, walk
from rpcinspect.rpc.pickle_facts import BROADCAST, CONTROL_FUNCTIONS, GATHER, rref_forks

Substitute: TypeAlias = Callable[[bytes], bytes]
"""A string → what stands for it, as long."""


def redact_python(data: bytes, words: Pseudonyms, *, control: bool = False) -> bytes:
    """A Python pickle; `control`: one of the agents' own, whose numbers are none of the user's.

    Raises DecodeError where it can't be read; what follows its end is replaced as a whole.
    """
    pickle = read_python_pickle(data)
    numbered = number_integers(data)
    kept = None if control or _is_own(pickle) else _structural(numbered.pickle.root, numbered.pickle.calls)
    integers = zip(numbered.places, numbered.integers, strict=True)
    say = _python_strings(pickle, words)
    made = _rewritten(data[: pickle.end], integers, kept, say, words, floats=kept is not None)
    return made + words.filler(data[pickle.end :])


def redact_jit(
    data: bytes,
    words: Pseudonyms,
    say: Substitute,
    *,
    numbers: bool = False,
    kept: Collection[Value] = (),
    floats: bool = False,
) -> bytes:
    """Redacts a JIT pickle; `say`: the substitute for a string that is no name.

    `numbers`: its integers are the user's, but for references to tensors and RRefs, and the items of its
    tuple whose places are in `kept`, counted from the end; `floats`: its floats are.
    """
    read_jit(data)
    places = [(b, e) for b, e in opcode_places(data, len(data)) if data[b] in INTEGERS]
    known = _kept_jit(data, places, kept) if numbers else None
    integers = [(place, _number(data[slice(*place)])) for place in places]
    return _rewritten(data, integers, known, say, words, floats=floats)


def _rewritten(
    data: bytes,
    integers: Iterable[tuple[tuple[int, int], int]],
    kept: Collection[int] | None,
    say: Substitute,
    words: Pseudonyms,
    *,
    floats: bool,
) -> bytes:
    """A pickle with other operands. `integers`: the place and the value of each; `kept`: the numbers of those
    that stay, None for all of them.
    """
    out = bytearray(data)
    for number, ((begin, end), value) in enumerate(integers):
        if kept is not None and number not in kept:
            out[begin:end] = _integer(data[begin:end], value, words)
    for begin, end in opcode_places(data, len(data)):
        new = _operand(data[begin:end], say, words, floats=floats)
        if new is not None:
            out[begin:end] = new
    return bytes(out)


def _is_own(pickle: PythonPickle) -> bool:
    """Whether it calls a function of torch whose arguments are ids and names only."""
    udf = semantic.python_udf(pickle.root)
    return udf is not None and str(udf.func) in OWN_CALLS


def jit_string(words: Pseudonyms) -> Substitute:
    """What stands for strings of JIT pickles: devices and types of TorchScript's own stay."""

    def say(text: bytes) -> bytes:
        if DEVICE.fullmatch(text):
            return text
        if TYPE.fullmatch(text):
            return words.type_tag(text)
        if text.startswith(TORCHSCRIPT):
            return words.dotted(text)
        return words.word(text)

    return say


def _python_strings(pickle: PythonPickle, words: Pseudonyms) -> Substitute:
    public: set[bytes] = set()
    own: set[bytes] = set()
    for named in pickle.globals:
        names = {utf8(named.module), utf8(named.name)}
        if is_public(named.module):
            public |= names
        else:
            own |= names
    failure = semantic.remote_exception(pickle.root)
    texts = {utf8(failure.message)} if failure is not None else set()
    types = {utf8(fork.type_str) for fork in rref_forks(pickle.calls)}
    arrays = any(named.module.partition(".")[0] == "numpy" for named in pickle.globals)

    def say(text: bytes) -> bytes:
        if text in public or text in VALUES or DEVICE.fullmatch(text):
            return text
        if arrays and NUMPY_TYPE.fullmatch(text):
            return text
        if text in texts:
            return words.text(text)
        if text in types:
            return words.type_tag(text)
        return words.dotted(text) if text in own else words.word(text)

    return say


def _operand(opcode: bytes, say: Substitute, words: Pseudonyms, *, floats: bool) -> bytes | None:
    """The opcode with another operand; None where it has none that says anything."""
    op = opcode[0]
    width = COUNTED.get(op)
    if op in TEXTS and width is not None:
        return opcode[: 1 + width] + say(opcode[1 + width :])
    if op in BYTES and width is not None:
        return opcode[: 1 + width] + words.noise(opcode[1 + width :])
    if op in (GLOBAL, INST):
        module, name = opcode[1:-1].split(b"\n")
        if not is_public(module.decode("utf-8", "replace")):
            module, name = words.dotted(module), words.dotted(name)
        return opcode[:1] + module + b"\n" + name + b"\n"
    if op == STRING:
        return opcode[:2] + words.word(opcode[2:-2]) + opcode[-2:]
    if op in (UNICODE, PERSID):
        return opcode[:1] + say(opcode[1:-1]) + b"\n"
    if op == FLOAT and floats:
        return opcode[:1] + words.digits(opcode[1:-1]) + b"\n"
    if op == BINFLOAT and floats:
        return opcode[:1] + pack(">d", words.float64(unpack_from(">d", opcode, 1)[0]))
    return None


def _integer(opcode: bytes, value: int, words: Pseudonyms) -> bytes:
    """An opcode of the same width that pushes another integer, of the same sign."""
    op = opcode[0]
    if op in (INT, LONG):
        if value in (0, 1, -1):
            return opcode
        body = opcode[1:-1]
        tail = b"L" if op == LONG and body.endswith(b"L") else b""
        return opcode[:1] + words.digits(body.removesuffix(tail)) + tail + b"\n"
    head = HEADS.get(op, 1)
    size = len(opcode) - head
    if not size:
        return opcode
    new = words.integer(value, *_range(value, size, op not in UNSIGNED))
    return opcode[:head] + new.to_bytes(size, "little", signed=op not in UNSIGNED)


def _range(value: int, size: int, signed: bool) -> tuple[int, int]:
    """Numbers that are written in as many bytes as this one could be."""
    low = 2
    for bits in (8, 16, 31, 63):
        if low <= value < 1 << bits and bits <= 8 * size - signed:
            return low, (1 << bits) - 1
        low = 1 << bits
    if -1 << 31 <= value < 0 and size >= 4:
        return -1 << 31, -2
    edge = 1 << 8 * size - signed
    return (2, edge - 1) if value >= 0 else (-edge, -2)


def _number(opcode: bytes) -> int:
    head = HEADS.get(opcode[0], 1)
    return int.from_bytes(opcode[head:], "little", signed=opcode[0] not in UNSIGNED)


def _kept_jit(data: bytes, places: list[tuple[int, int]], kept: Collection[Value]) -> frozenset[int]:
    """Which integers are structure: the same pickle is read with the integers numbered."""
    numbered = ((*place, b"\x8a\x08" + number.to_bytes(8, "little")) for number, place in enumerate(places))
    value = read_jit(replaced(data, numbered))
    found = _structural(value, ())
    if type(value) is tuple:
        for place in kept:
            found |= _integers(value[place])
    return frozenset(found)


def _structural(root: Value, calls: Collection[PickleCall]) -> set[int]:
    """The integers of a tree that are references, ids or how something was made, not values."""
    found: set[int] = set()
    for node in walk([root, *calls]):
        if type(node) is PickleCall:
            index, fork = semantic.tensor_index(node), semantic.brought_fork(node)
            if index is not None:
                found.add(index)
            elif fork is not None:
                found |= {fork.owner_id, *fork.rref_id, *fork.fork_id, fork.parent}
            elif type(node.function) is Global and node.function in MAKERS:
                found |= _integers(node.args) | _integers(node.state)
    udf = semantic.python_udf(root)
    if udf is not None and str(udf.func) in GATHERING and type(udf.args) is tuple:
        found |= _integers(udf.args[:1])  # which gathering it is
    return found


def _integers(value: Value) -> set[int]:
    """Those in a value, as deep as tuples go."""
    found = walk([value], lambda node: node if type(node) is tuple else ())
    return {node for node in found if type(node) is int}


def utf8(text: str) -> bytes:
    """The bytes of a string of a pickle."""
    return text.encode("utf-8", "surrogatepass")


GATHERING = frozenset({GATHER, BROADCAST})
"""The agents' own too, but users may hand something to `_all_gather`."""
MAKERS = frozenset(
    {
        Global("torch", "Size"),
        Global("torch", "device"),
        Global("torch._C._distributed_rpc", "WorkerInfo"),
        numpy_nodes.DTYPE,
        *numpy_nodes.RECONSTRUCT,
        *numpy_nodes.FROMBUFFER,
    }
)
"""What is called with shapes, versions and ids."""
OWN_CALLS = CONTROL_FUNCTIONS - GATHERING | frozenset(map(str, STEP_OPTIMIZERS))
"""Functions of torch whose arguments are ids and names, not values."""

TEXTS = frozenset(b"X\x8c\x8dUT")
BYTES = frozenset(b"BC\x8e\x96")
GLOBAL, INST, STRING, UNICODE, PERSID = b"ciSVP"
INT, LONG, FLOAT, BINFLOAT = b"ILFG"
UNSIGNED = frozenset(b"KM")
HEADS = {0x8A: 2, 0x8B: 5}
"""Bytes before an integer itself, where that is not 1."""
