"""Values as the standard library, numpy and torch write them, now and then with something wrong in them."""

from __future__ import annotations

from typing import ClassVar

from tests.fuzz.model import names
from tests.fuzz.model.values import Recipe, Values


class HonestValues(Values):
    """Has a recipe for each type."""

    def _rref(self, depth: int) -> bytes:
        w, number = self.w, self.w.number
        known = self.draw.choice(((0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 0, 7), (0, 1, 0), (1, 0, 0)))
        fork = [*map(number, known), number(1), number(self.draw.choice((5, 6, 1 << 40))), number(1)]
        return self.reducing("_py_rref_receiver", [w.tuple([*fork, w.text("int")])])

    def _ordered(self, depth: int) -> bytes:
        made = self.w.call(self.w.name("collections:OrderedDict"), self.w.tuple([]))
        return made + self.pairs(depth)

    def _default(self, depth: int) -> bytes:
        w = self.w
        factory = w.name("builtins:" + self.draw.choice(("list", "int", "dict", "set", "float")))
        return w.call(w.name("collections:defaultdict"), w.tuple([factory])) + self.pairs(depth)

    def _deque(self, depth: int) -> bytes:
        w = self.w
        cls = w.name("collections:deque")
        items = w.tuple([w.list([])] if self.draw.random() < 0.5 else [w.tuple([]), w.number(5)])
        return w.call(cls, items) + self.appended(depth)

    def _counter(self, depth: int) -> bytes:
        w = self.w
        cls = w.name("collections:Counter")
        return w.call(cls, w.tuple([w.dict([(w.text("x"), w.number(2))])]))

    def _times(self, depth: int) -> bytes:
        w = self.w
        match self.draw.randrange(4):
            case 0:
                return w.call(w.name("datetime:date"), w.tuple([w.raw(b"\x07\xe8\x01\x02")]))
            case 1:
                args = [w.raw(b"\x07\xe8\x01\x02\x03\x04\x05\x00\x00\x01")]
                if self.draw.random() < 0.5:
                    utc = w.call(
                        w.name("datetime:timedelta"), w.tuple([w.number(0), w.number(60), w.number(0)])
                    )
                    return w.call(
                        w.name("datetime:datetime"),
                        w.tuple([*args, w.call(w.name("datetime:timezone"), w.tuple([utc]))]),
                    )
                return w.call(w.name("datetime:datetime"), w.tuple(args))
            case 2:
                return w.call(w.name("datetime:time"), w.tuple([w.raw(b"\x01\x02\x03\x00\x00\x00")]))
            case _:
                return w.call(w.name("datetime:timedelta"), w.tuple([w.number(1), w.number(2), w.number(3)]))

    def _exact(self, depth: int) -> bytes:
        w = self.w
        one = self.draw.choice(
            (
                ("decimal:Decimal", lambda: [w.text("1.25")]),
                ("fractions:Fraction", lambda: [w.text("3/4")]),
                ("fractions:Fraction", lambda: [w.number(3), w.number(4)]),
                ("pathlib:PosixPath", lambda: [w.text("/"), w.text("x")]),
                ("pathlib:PurePosixPath", lambda: [w.text("a"), w.text("b")]),
                ("ipaddress:IPv4Address", lambda: [w.number(1 << 30)]),
                ("ipaddress:IPv4Network", lambda: [w.text("10.0.0.0/8")]),
                ("builtins:complex", lambda: [w.real(1.0), w.real(2.0)]),
                ("builtins:range", lambda: [w.number(0), w.number(5), w.number(1)]),
                ("builtins:slice", lambda: [b"N", w.number(5), b"N"]),
                ("builtins:bytearray", lambda: [w.raw(b"abc")]),
                ("builtins:set", lambda: [w.list([w.number(1)])]),
                ("builtins:frozenset", lambda: [w.list([w.number(1)])]),
                ("builtins:bytes", list),
                ("uuid:SafeUUID", lambda: [w.number(0)]),
                ("torch:device", lambda: [w.text("cpu")]),
                ("torch:Size", lambda: [w.tuple([w.number(2), w.number(3)])]),
                ("torch.serialization:_get_layout", lambda: [w.text("torch.strided")]),
                ("_codecs:encode", lambda: [w.text("é"), w.text("latin1")]),
                (
                    "torch.distributed.rpc.internal:RemoteException",
                    lambda: [w.text("boom"), w.name("builtins:KeyError")],
                ),
                ("job:Color", lambda: [w.number(1)]),
            )
        )
        return w.call(w.name(one[0]), w.tuple(one[1]()))

    def _exception(self, depth: int) -> bytes:
        w = self.w
        made = w.call(w.name(self.draw.choice(names.EXCEPTIONS)), w.tuple([self.any(depth)]))
        if self.draw.random() < 0.2:
            return made + w.attributes([("note", self.leaf())]) + b"b"
        return made

    def _uuid(self, depth: int) -> bytes:
        w = self.w
        return w.new(w.name("uuid:UUID"), w.tuple([])) + w.attributes([("int", w.number(1 << 100))]) + b"b"

    def _space(self, depth: int) -> bytes:
        w = self.w
        made = w.call(w.name("types:SimpleNamespace"), w.tuple([]))
        return (
            made
            + w.attributes([(key, self.any(depth)) for key in self.some(("x", "rate", "name", "func"))])
            + b"b"
        )

    def _namedtuple(self, depth: int) -> bytes:
        w = self.w
        return w.new(w.name("job:Pair"), w.tuple([self.any(depth), self.any(depth)]))

    def _object(self, depth: int) -> bytes:
        w = self.w
        cls = "job:" + self.draw.choice(("Item", "Plain", "Record", "Stateful", "Net"))
        made = w.new(w.name(cls), w.tuple([]))
        return made + w.attributes([(key, self.any(depth)) for key in self.some(("x", "y", "args"))]) + b"b"

    def _subclass(self, depth: int) -> bytes:
        w = self.w
        if self.draw.random() < 0.5:
            return w.new(w.name("job:Words"), w.tuple([])) + self.appended(depth)
        return w.new(w.name("job:Table"), w.tuple([])) + self.pairs(depth)

    def _old_object(self, depth: int) -> bytes:
        """As protocols 0 and 1 write objects."""
        w = self.w
        args = w.tuple([w.name("job:Plain"), w.name("builtins:object"), b"N"])
        return w.call(w.name("copyreg:_reconstructor"), args) + w.attributes([("x", self.leaf())]) + b"b"

    def _parameter(self, depth: int) -> bytes:
        w = self.w
        state = self.draw.random() < 0.3
        function = w.name(f"torch._utils:_rebuild_parameter{'_with_state' if state else ''}")
        args = [self.tensor(), w.truth(True), w.call(w.name("collections:OrderedDict"), w.tuple([]))]
        if state:
            key = self.draw.choice(names.OF_TENSORS) if self.wildly() else "tag"
            args.append(w.attributes([(key, self.any(depth) if self.wildly() else self.leaf())]))
        return w.call(function, w.tuple(args))

    def dtype(self, depth: int = 1) -> bytes:
        """As numpy writes it, or nearly."""
        w, draw = self.w, self.draw
        code = draw.choice(
            ("f8", "f8", "i4", "b1", "O8", "V8", "S4", "U2", "M8", "m8", "c16", "S0", "V0", "fields")
        )
        if code == "fields" and depth > 0:
            return self._record(depth)
        code = "V8" if code == "fields" else code
        made = w.call(w.name("numpy:dtype"), w.tuple([w.text(code), w.truth(False), w.truth(True)]))
        if draw.random() < 0.1:
            return made
        state = self._dtype_state(code)
        if self.wildly():
            state[draw.randrange(len(state))] = self.leaf()
        if self.wildly():
            state.append(self.leaf())
        return made + w.tuple(state) + b"b"

    def _dtype_state(self, code: str) -> list[bytes]:
        w = self.w
        order = "|" if code in ("b1", "O8", "V8", "S4", "S0", "V0") else "<"
        size, alignment = {"S4": (4, 1), "S0": (0, 1), "U2": (8, 4), "V8": (8, 1), "V0": (0, 1)}.get(
            code, (-1, -1)
        )
        flags = {"O8": 63, "U2": 8}.get(code, 0)
        state = [w.number(4 if code in ("M8", "m8") else 3), w.text(order), b"N", b"N", b"N"]
        state += [w.number(size), w.number(alignment), w.number(flags)]
        if code in ("M8", "m8"):
            unit = w.tuple(
                [w.raw(self.draw.choice((b"D", b"ns", b"Y"))), w.number(1), w.number(1), w.number(1)]
            )
            state.append(w.tuple([b"N", unit]))
        return state

    def _record(self, depth: int) -> bytes:
        """A dtype with fields."""
        w, draw = self.w, self.draw
        made = w.call(w.name("numpy:dtype"), w.tuple([w.text("V8"), w.truth(False), w.truth(True)]))
        head = [w.number(3), w.text("|"), b"N", w.tuple([w.text("a")])]
        place = w.number(draw.choice((0, 0, 0, 4, 8)) if self.wildly() else 0)
        field = self.dtype(depth - 1)
        fields = b"}" + w.text("a") + field + place + b"\x86s"
        flags = draw.choice((16, 0, 63)) if self.wildly() else 16
        state = [*head, fields, w.number(8), w.number(1), w.number(flags)]
        return made + b"(" + b"".join(state) + b"tb"

    def _array(self, depth: int) -> bytes:
        w, draw = self.w, self.draw
        module = draw.choice(("numpy._core.multiarray", "numpy._core.multiarray", "numpy.core.multiarray"))
        function = w.name(f"{module}:_reconstruct")
        made = w.call(function, w.tuple([w.name("numpy:ndarray"), w.tuple([w.number(0)]), w.raw(b"b")]))
        shapes = ((1,), (2,), (2,), (4,), (2, 2), (), (0,), (0, 1 << 62), (1 << 40,))
        shape = w.tuple([w.number(size) for size in draw.choice(shapes)])
        dtype = self.dtype()
        if draw.random() < 0.7:
            data = w.raw(b"A" * draw.choice((0, 8, 8, 16, 16, 32)))
        else:
            data = w.list([self.any(depth) for _ in range(draw.choice((0, 1, 2, 2)))])
        return made + w.tuple([w.number(1), shape, dtype, w.truth(draw.random() < 0.3), data]) + b"b"

    def _scalar(self, depth: int) -> bytes:
        w = self.w
        function = w.name("numpy._core.multiarray:scalar")
        return w.call(function, w.tuple([self.dtype(), w.raw(b"A" * self.draw.choice((1, 4, 8, 8, 16)))]))

    def _buffer(self, depth: int) -> bytes:
        w = self.w
        function = w.name("numpy._core.numeric:_frombuffer")
        data = w.raw(b"A" * self.draw.choice((8, 16)))
        dtype = self.dtype()
        return w.call(
            function, w.tuple([data, dtype, w.tuple([w.number(self.draw.choice((1, 2)))]), w.text("C")])
        )

    def _info(self, depth: int) -> bytes:
        w = self.w
        cls = w.name("torch._C._distributed_rpc:WorkerInfo")
        return w.new(cls, w.tuple([])) + w.tuple([w.text("w1"), w.number(1)]) + b"b"

    def called_later(self, depth: int) -> bytes:
        """partial of a user's function, or of what makes plain data."""
        function = self.draw.choice((*names.USERS_GOOD, "builtins:int", "operator:add", "torch:Size"))
        if self.draw.random() < 0.1:
            shape = self.w.tuple([self.w.number(1)])
            return self.later(b"cnumpy\nndarray\n", [shape, self.dtype(), self.w.raw(b"A" * 8)])
        module, _, name = function.partition(":")
        return self.later(f"c{module}\n{name}\n".encode(), self.args(depth))

    def plain_name(self, depth: int) -> bytes:
        return self.w.name(self.draw.choice((*names.PLAIN_NAMES, *names.USERS_GOOD, *names.OPTIMIZER_NAMES)))

    def _call_of_plain(self, depth: int) -> bytes:
        """Any plain name, with anything."""
        w = self.w
        function = w.name(self.draw.choice(names.PLAIN_NAMES))
        return self.made_by(
            function, [self.any(depth) for _ in range(self.draw.choice((0, 0, 1, 1, 2, 3, 4)))]
        )

    HONEST: ClassVar[tuple[Recipe, ...]] = (
        *(
            _rref,
            _ordered,
            _default,
            _deque,
            _counter,
            _times,
            _exact,
            _exact,
            _exact,
            _exception,
            _uuid,
            _space,
        ),
        *(
            _namedtuple,
            _object,
            _object,
            _subclass,
            _old_object,
            _parameter,
            _array,
            _array,
            _scalar,
            _buffer,
            _info,
        ),
        *(called_later, plain_name, _call_of_plain, _space),
    )
