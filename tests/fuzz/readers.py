"""Targets that read one thing from bytes: nop, both dialects of pickle, the store, filters.

A target is a function that takes any bytes and asserts what must hold whatever they are. Only errors of our
tree may leave a reader, which is why nothing else is caught here.
"""

from __future__ import annotations

import codecs
import pickletools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial

from rpcinspect.errors import DecodeError, FilterError
from rpcinspect.filter.grammar import parse
from rpcinspect.filter.selection import Filter, Selection, StreamSelection
from rpcinspect.pickles.audit import audit
from rpcinspect.pickles.jit import read_forms, read_jit
from rpcinspect.pickles.jit_write import write_jit
from rpcinspect.pickles.opcodes import number_integers, rewrite
from rpcinspect.pickles.places import rref_places, tensor_places
from rpcinspect.pickles.python import PythonPickle, read_python_pickle_partial
from rpcinspect.pickles.render import render, render_args
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.tensor import read_tensor_table, to_tensor_table
from rpcinspect.run.run import RunModel
from rpcinspect.store.conversation import StoreConversation
from rpcinspect.store.directory import worker_directory
from rpcinspect.store.operations import StoreGeneration
from rpcinspect.tensorpipe import control as tp
from rpcinspect.tensorpipe.control_types import ControlLayout
from tests.fuzz import corpus
from tests.fuzz.mutation import change_bytes, change_parts, pack, unpack
from tests.tensorpipe.conversations import Network as Wires
from tests.tensorpipe.conversations import PipeTalk, Said, write_cma_descriptor

# --- nop and what TensorPipe makes of it ---


def nop(data: bytes) -> None:
    """What is read is written as bytes that are read as the same."""
    for layout_first in (tp.read_brochure, tp.read_brochure_answer, tp.read_descriptor):
        write = WRITE[layout_first.__name__]
        try:
            value, layout = layout_first(data)  # type: ignore[operator]
        except DecodeError:
            continue
        written = write(value, layout)
        assert layout_first(written) == (value, layout)  # type: ignore[operator]
    for read, write in PAIRS:
        _again(data, read, write)


def _again(data: bytes, read: Callable[[bytes], object], write: Callable[..., bytes]) -> None:
    try:
        value = read(data)
    except DecodeError:
        return
    written = write(value)
    assert write(read(written)) == written


WRITE: dict[str, Callable[..., bytes]] = {
    "read_brochure": tp.write_brochure,
    "read_brochure_answer": tp.write_brochure_answer,
    "read_descriptor": tp.write_descriptor,
}
PAIRS: tuple[tuple[Callable[[bytes], object], Callable[..., bytes]], ...] = (
    (tp.read_first_frame, tp.write_first_frame),
    (tp.read_mpt_hello, tp.write_mpt_hello),
    (tp.read_cma_descriptor, write_cma_descriptor),
)


def nop_seeds() -> Iterator[bytes]:
    """Every frame that opens pipes, and descriptors."""
    for channel in ("basic", "mpt_uv", "cma", "cuda_basic"):
        for layout in ControlLayout:
            wires = Wires()
            pipe = PipeTalk(wires, channel=channel, layout=layout)
            pipe.send(Said(tensors=(b"abc", b"")))
            for write in wires.writes:
                yield write.data[8 : 8 + int.from_bytes(write.data[:8], "little")]
    for message in corpus.distinct():
        yield message.record.tp.descriptor_body


# --- pickles ---


def jit(data: bytes) -> None:
    """Both readers say the same; what is read can be written, shown, and read again as the same."""
    try:
        value = read_jit(data)
    except DecodeError:
        pass
    else:
        shown = render(value)
        assert shown.isprintable() or not shown, shown
        tensor_places(value)
        rref_places(value)
        try:
            written = write_jit(value, read_forms(data))
        except DecodeError:
            pass  # cyclic, or a value that no JIT pickle can hold
        else:
            again = read_jit(written)
            assert render(again) == shown
            assert write_jit(again, read_forms(written)) == written
    _tensor_table(data)


def _tensor_table(data: bytes) -> None:
    try:
        metas = read_tensor_table(data)
    except DecodeError:
        return
    try:
        written = to_tensor_table(metas)
        to_tensor_table(metas, data)
    except (DecodeError, ValueError):
        return
    again = read_tensor_table(written)
    assert again == metas, (again, metas)


def python(data: bytes) -> None:
    """No name that the bytes import is left out, whatever stops the reading."""
    pickle = read_python_pickle_partial(data)
    again = read_python_pickle_partial(data)
    assert (pickle.globals, pickle.end, str(pickle.error)) == (again.globals, again.end, str(again.error))
    shown = render(pickle.root)
    assert shown.isprintable() or not shown, shown
    assert shown == render(again.root)
    arguments = render_args(pickle.root)
    if arguments is not None:
        texts = [arguments[0], *arguments[1], *arguments[2].values()]
        assert all(text.isprintable() for text in texts), texts
    found = audit(pickle)
    assert found == audit(again)
    tensor_places(pickle.root)
    rref_places(pickle.root)
    _names_are_seen(data, pickle)
    if pickle.error is None:
        try:
            numbered = number_integers(data)
        except DecodeError:
            return
        assert rewrite(numbered, {}) == data
        assert numbered.pickle.globals == pickle.globals


def _unescaped(name: str) -> str:
    try:
        return codecs.escape_decode(name.encode("ascii"))[0].decode("ascii")
    except ValueError:  # nor does pickletools read on
        return name


def _names_are_seen(data: bytes, pickle: PythonPickle) -> None:
    """By an opcode each, as pickletools lists them: it resolves escapes, which pickle does not."""
    seen = {f"{name.module} {name.name}" for name in pickle.globals}
    seen |= {_unescaped(name) for name in seen if "\\" in name}
    try:
        for opcode, argument, at in pickletools.genops(data):
            if (at or 0) >= pickle.end:
                return
            if opcode.name in ("GLOBAL", "INST"):
                assert argument in seen, f"{argument} is not among {seen}"
    except AssertionError:
        raise
    except Exception:  # pickletools raises what it likes; by then all before it was compared
        return


# --- the store ---


def store(data: bytes) -> None:
    """What is told does not depend on where the bytes were cut; both orders of the sides end."""
    parts = unpack(data)
    generation = list(StoreGeneration)[(parts[0] or b"\0")[0] % 3] if parts else StoreGeneration.V2_2
    whole, single = StoreConversation(generation), StoreConversation(generation)
    told, pieces = [], []
    for part in parts[1:]:
        side, body = part[:1] or b"\0", part[1:]
        match side[0] % 8:
            case 7:
                whole.gap(True, len(body))
                single.gap(True, len(body))
            case 6:
                whole.gap(False, len(body))
                single.gap(False, len(body))
            case side_number:
                feed, drip = (
                    (partial(whole.feed, True), partial(single.feed, True))
                    if side_number % 2 == 0
                    else (partial(whole.feed, False), partial(single.feed, False))
                )
                told += feed(body, 1)
                step = 1 if len(body) < 300 else 97
                for at in range(0, len(body), step):
                    pieces += drip(body[at : at + step], 1)
    assert Counter(told) == Counter(pieces)
    assert whole.finish() == single.finish()
    worker_directory(told)


def store_change(data: bytes, draw: random.Random) -> bytes:
    return change_parts(data, draw, head=1)


def store_seeds() -> Iterator[bytes]:
    import json

    vectors = json.loads((corpus.ROOT / "tests/store/vectors_store.json").read_text())
    names = list(StoreGeneration)
    for vector in vectors:
        number = names.index(StoreGeneration(vector["generation"]))
        client, server = (bytes.fromhex(vector[side]) for side in ("client", "server"))
        yield pack([bytes([number]), b"\0" + client, b"\1" + server])
        pieces = [
            bytes([side]) + data[at : at + 60]
            for at in range(0, 600, 60)
            for side, data in ((0, client), (1, server))
        ]
        yield pack([bytes([number]), *pieces])


# --- filters ---


@cache
def _example() -> tuple[RunModel, str]:
    path = str(corpus.ROOT / "captures" / "basic_chain.pcap")
    return RunModel.open([path]), path


def filters(data: bytes) -> None:
    """A filter says where it is wrong, or means the same when it is written again."""
    text = data.decode("utf-8", "replace")
    try:
        expression = parse(text)
    except FilterError as error:
        place = error.start, error.end
        expression = None
    if expression is None:
        assert 0 <= place[0] <= place[1] <= max(len(text), 1), place
        return
    again = parse(str(expression)) if len(str(expression)) <= 100_000 else expression
    assert again == expression, (str(again), str(expression))
    opened, path = _example()
    rows = sorted(opened.messages, key=lambda record: record.row)
    selection = Selection(Filter(expression, text), opened.bytes)
    opposite = Selection(Filter(parse(f"not ({text.strip()})"), text), opened.bytes) if _fits(text) else None
    with Decoding([path]) as decoding:
        stream = StreamSelection(Filter(expression, text), decoding)
        if len(data) % 4 == 0:
            for record in decoding.records():
                stream.feed(record)
    for record in rows:
        selection.feed(record)
        if opposite is not None:
            opposite.feed(record)
    picked = selection.finish(opened.session).rows
    if opposite is not None:
        others = opposite.finish(opened.session).rows
        assert all(a != b for a, b in zip(picked, others, strict=True))


def _fits(text: str) -> bool:
    try:
        parse(f"not ({text.strip()})")
    except FilterError:
        return False
    return True


def filter_seeds() -> Iterator[bytes]:
    from rpcinspect.fields.table import FIELDS

    yield from (field.name.encode() for field in FIELDS)
    for line in (
        'type == FORWARD_AUTOGRAD_REQ and not (src == "worker0" or dst in {worker1, worker2})',
        "latency > 1.5ms or tensors.nbytes >= 2KiB and shape == [2,*]",
        'function ~ "torch.*(add|mul)" and index < 10',
        "context == 0:1 or rref == 1:2",
        "not not error and time > 1",
        "id in {1, 2, 0x10, -9223372036854775808}",
        'args ~ "(a|b){1,5}$" or value == "\\\\\\""',
    ):
        yield line.encode()


def text_change(data: bytes, draw: random.Random) -> bytes:
    """Words of a filter, or bytes."""
    if draw.random() < 0.4:
        return change_bytes(data, draw)
    words = data.split(b" ")
    at = draw.randrange(len(words))
    match draw.randrange(4):
        case 0:
            del words[at]
        case 1:
            words.insert(at, draw.choice(WORDS))
        case 2:
            words[at] = draw.choice(WORDS)
        case _:
            words[at:at] = words[at : at + 6]
    return b" ".join(words)[:4096]


WORDS = (
    *b'and or not ( ) { } == != < <= > >= ~ in , "a" [2,*] 1.5ms 2KiB 0x10 -1 1e400 0:1 true type id'.split(),
    *(str(10**n).encode() for n in (3, 19, 20, 400)),
)
