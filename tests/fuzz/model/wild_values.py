"""Values that may carry code: any name anywhere, calls of anything, objects with attributes of choice."""

from __future__ import annotations

from typing import ClassVar

from tests.fuzz.model import names
from tests.fuzz.model.grown_values import GrownValues
from tests.fuzz.model.values import RPC, Recipe


class WildValues(GrownValues):
    """All kinds of values."""

    def some_name(self) -> str:
        """Of the whole pool."""
        pools = (
            *(names.PLAIN_NAMES, names.PLAIN_NAMES, names.BY_RPC, names.BY_RPC, names.BY_RPC, names.JUDGED),
            *(
                names.OPTIMIZER_NAMES,
                names.USERS,
                names.USERS,
                names.CANARIES,
                names.DANGEROUS,
                names.OLD,
                names.DTYPES,
            ),
        )
        return self.draw.choice(self.draw.choice(pools))

    def any_name(self, depth: int) -> bytes:
        return self.w.name(self.some_name())

    def callable(self, depth: int) -> bytes:
        """Something that can be called, and does something of which one would hear."""
        w, draw = self.w, self.draw
        match draw.randrange(6):
            case 0 | 1:
                return w.name(draw.choice(names.BY_RPC))
            case 2:
                return w.name(draw.choice(names.JUDGED))
            case 3:
                return self.any_name(depth)
            case _:
                if depth <= 0:
                    return w.name(draw.choice(names.BY_RPC))
                if draw.random() < 0.5:
                    module, _, name = draw.choice(
                        (*names.BY_RPC, *names.JUDGED, *names.PLAIN_NAMES)
                    ).partition(":")
                    return self.later(f"c{module}\n{name}\n".encode(), self.args(depth - 1))
                cls = w.name("functools:partial")
                return w.call(cls, w.tuple([self.callable(depth - 1), *self.args(depth - 1)]))

    def _partial(self, depth: int) -> bytes:
        """partial, also by its state."""
        w = self.w
        if self.draw.random() < 0.6:
            return self.callable(max(depth, 1))
        made = w.call(w.name("functools:partial"), w.tuple([w.name("builtins:list")]))
        state = [self.callable(depth - 1), w.tuple(self.args(depth - 1)), w.dict([])]
        state.append(b"N" if self.draw.random() < 0.5 else w.attributes([("args", self.any(depth - 1))]))
        return made + w.tuple(state) + b"b"

    def duck(self, depth: int) -> bytes:
        """Something with attributes of the pickle's choice."""
        w, draw = self.w, self.draw
        cls = draw.choice(DUCKS)
        made = w.call(w.name(cls), w.tuple([]))
        pairs = [
            (
                draw.choice(names.ATTRIBUTES),
                self.callable(depth - 1) if draw.random() < 0.7 else self.any(depth - 1),
            )
            for _ in range(draw.choice((1, 1, 2, 3)))
        ]
        state = w.attributes(pairs)
        if draw.random() < 0.2:
            return made + b"N" + state + b"\x86b"  # slots: by setattr
        return made + state + b"b"

    def _given_to_a_helper(self, depth: int) -> bytes:
        """A duck, or anything else, as an argument of what only makes data."""
        w, draw = self.w, self.draw
        function = w.name(draw.choice((*names.PLAIN_NAMES, *names.JUDGED)))
        # in the order in which they are drawn, or what one takes from another's memo is not there yet
        count = draw.choice((1, 1, 2, 3))
        place = draw.randrange(count)
        args = [self.duck(depth - 1) if at == place else self.any(depth - 1) for at in range(count)]
        return self.made_by(function, args)

    def _rebuilt(self, depth: int) -> bytes:
        """torch's reconstructors with arguments that are nearly right."""
        w, draw = self.w, self.draw
        function = w.name("torch._utils:" + draw.choice(REBUILD))
        first = draw.choice(
            (self.tensor, self.tensor, lambda: self._storage(), lambda: self.duck(depth - 1))
        )()
        sizes = w.tuple([w.number(draw.choice((0, 2, 3, 1 << 20)))])
        strides = w.tuple([w.number(draw.choice((1, 1, 0, -1, 1 << 30)))])
        hooks = (
            self.any(depth - 1) if self.wildly() else w.call(w.name("collections:OrderedDict"), w.tuple([]))
        )
        args = [first, w.number(draw.choice((0, 0, 1, -1))), sizes, strides, w.truth(False), hooks]
        if draw.random() < 0.4:
            args.append(self.any(depth - 1))
        return w.call(function, w.tuple(args))

    def _storage(self) -> bytes:
        w = self.w
        return w.call(
            w.name("torch:" + self.draw.choice(("FloatStorage", "ByteStorage"))), w.tuple([w.number(6)])
        )

    def _sparse(self, depth: int) -> bytes:
        w, draw = self.w, self.draw
        layout = w.name("torch:" + draw.choice(("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr")))
        parts = [self.tensor() for _ in range(draw.choice((2, 3)))]
        sizes = w.tuple([w.number(draw.choice((2, 3, 100))) for _ in range(draw.choice((1, 2, 2)))])
        function = w.name("torch._utils:_rebuild_sparse_tensor")
        return function + layout + w.tuple([*parts, sizes]) + b"\x86R"

    def _from_type(self, depth: int) -> bytes:
        w, draw = self.w, self.draw
        function = w.name("torch._tensor:_rebuild_from_type_v2")
        inner = w.name(self.some_name()) if draw.random() < 0.6 else self.any(depth - 1)
        cls = w.name(
            draw.choice(
                ("torch:Tensor", "torch.nn.parameter:Parameter", "builtins:list", "functools:partial")
            )
        )
        args = w.tuple(self.args(depth - 1))
        return w.call(function, w.tuple([inner, cls, args, self.any(depth - 1)]))

    def _reconstructor(self, depth: int) -> bytes:
        w = self.w
        function = w.name(self.draw.choice(("copyreg:_reconstructor", "copy_reg:_reconstructor")))
        cls, base = self._loose(depth), self._loose(depth)
        return w.call(function, w.tuple([cls, base, self.any(depth - 1)]))

    def _loose(self, depth: int) -> bytes:
        return self.any_name(depth) if self.draw.random() < 0.7 else self.any(depth - 1)

    def attribute(self, depth: int) -> bytes:
        """An attribute of something."""
        w, draw = self.w, self.draw
        function = w.name(draw.choice(names.JUDGED[:2]))
        owner = w.name(f"{RPC}:_InternalRPCPickler") if draw.random() < 0.3 else self._loose(depth)
        made = w.call(function, w.tuple([owner, w.text(draw.choice(names.METHODS))]))
        return w.call(made, w.tuple(self.args(depth - 1))) if draw.random() < 0.6 else made

    def _codec(self, depth: int) -> bytes:
        w, draw = self.w, self.draw
        function = w.name(
            draw.choice(("_codecs:encode", "builtins:str", "builtins:bytes", "builtins:bytearray"))
        )
        return w.call(function, w.tuple([self.leaf(), w.text(draw.choice(names.CODECS))]))

    def any_call(self, depth: int) -> bytes:
        """Anything with anything."""
        function = self.any_name(depth) if self.draw.random() < 0.8 else self.any(depth - 1)
        return self.made_by(function, self.args(depth - 1))

    def _loose_args(self, depth: int) -> bytes:
        """REDUCE with arguments that are no tuple, or are only made."""
        w = self.w
        function = w.name(self.some_name())
        if self.draw.random() < 0.5:
            args = w.call(w.name("builtins:tuple"), w.tuple([w.list(self.args(depth - 1))]))
        else:
            args = self.any(depth - 1)
        return function + args + b"R"

    def _inst(self, depth: int) -> bytes:
        module, _, name = self.some_name().partition(":")
        return b"(" + b"".join(self.args(depth - 1)) + f"i{module}\n{name}\n".encode() + self.w.put("made")

    def _changed(self, depth: int) -> bytes:
        """State, items or pairs for something."""
        w, draw = self.w, self.draw
        target = draw.choice((self.any, self.any_name, self.duck, self.any_call, self._call_of_plain))(
            depth - 1
        )
        match draw.randrange(6):
            case 0:
                return target + self.any(depth - 1) + b"b"
            case 1:
                return (
                    target + w.attributes([(draw.choice(names.ATTRIBUTES), self.callable(depth - 1))]) + b"b"
                )
            case 2:
                state = w.attributes([(draw.choice(names.ATTRIBUTES), self.callable(depth - 1))])
                return target + b"N" + state + b"\x86b"
            case 3:
                return target + self.appended(depth - 1)
            case 4:
                return target + b"(" + self.any(depth - 1) + b"\x90"
            case _:
                return target + self.any(depth - 1) + self.any(depth - 1) + b"s"

    def _self(self, depth: int) -> bytes:
        """Something that holds itself."""
        w = self.w
        if self.draw.random() < 0.5:
            made = w.list([self.any(depth - 1)]) + w.put("list", always=True)
            return made + (w.get("list") or b"N") + b"a"
        made = self.any_call(depth - 1) + w.put("made", always=True)
        return made + (w.get("made") or b"N") + self.draw.choice((b"a", b"b"))

    def _computed(self, depth: int) -> bytes:
        """A name that the pickle makes up."""
        w = self.w
        module, _, name = self.some_name().partition(":")
        made = w.call(w.name("builtins:str"), w.tuple([w.text(name)]))
        return w.text(module) + made + b"\x93" if self.draw.random() < 0.5 else made + w.text(name) + b"\x93"

    def _rare(self, depth: int) -> bytes:
        draw = self.draw
        return draw.choice(
            (b"\x82\x05", b"\x83\x05\x00", b"\x84\x05\x00\x00\x00", b"Pid\n", self.leaf() + b"Q", b"\x97")
        )

    def helped(self) -> tuple[bytes, list[bytes]]:
        """One of torch's helpers, and arguments as torch gives them."""
        w, draw = self.w, self.draw
        name = draw.choice(names.BY_RPC)
        function = w.name(name)
        args = [self._parameter_of_helper(kind) for kind in HELPERS[name.partition(":")[2]].split()]
        if self.wildly():
            args.append(self.any(2))
        return function, args

    def _parameter_of_helper(self, kind: str) -> bytes:
        w, draw = self.w, self.draw
        match kind:
            case "rref":
                return self._rref(1)
            case "rrefs":
                return w.list([self._rref(1)])
            case "optimizer":
                return w.name(draw.choice(names.OPTIMIZER_NAMES))
            case "class":
                return self._class()
            case "number":
                return w.number(draw.choice((0, 1, -1, 1 << 48)))
            case "truth":
                return w.truth(True)
            case "worker":
                return w.text(draw.choice(("w0", "w1")))
            case "device":
                return w.text("cpu")
            case "method":
                return w.text(draw.choice(names.METHODS))
            case "args":
                return w.tuple(self.args(2))
            case "kwargs":
                return w.dict([])
            case _:
                return b"N"

    def _class(self) -> bytes:
        pool = (
            "torch.nn.modules.linear:Linear",
            "torch.nn.modules.container:Sequential",
            "job:Net",
            "job:Item",
        )
        return self.w.name(self.some_name() if self.wildly() else self.draw.choice(pool))

    def _request_within(self, depth: int) -> bytes:
        w = self.w
        cls = w.name(f"{RPC}:{self.draw.choice(('PythonUDF', 'RemoteException'))}")
        return w.new(cls, w.tuple([self.any(depth - 1), self.callable(depth - 1), w.dict([])]))

    def _remote_module(self, depth: int) -> bytes:
        w, draw = self.w, self.draw
        if draw.random() < 0.5:
            cls = w.name("torch.distributed.nn.api.remote_module:RemoteModule")
            return self.made_by(
                cls, [w.text("w0/cpu"), self.callable(depth - 1), w.tuple(self.args(depth - 1))]
            )
        function = w.name("torch.distributed.nn.api.remote_module:_remote_module_receiver")
        head = [w.text("w0"), w.text("cpu"), w.truth(False), w.truth(False)]
        methods = w.tuple([self.callable(depth - 1) if draw.random() < 0.5 else self.any(depth - 1)])
        fork = w.tuple([*(w.number(draw.choice((0, 0, 1))) for _ in range(6)), w.text("int")])
        return w.call(function, w.tuple([*head, methods, fork]))

    HONEST: ClassVar[tuple[Recipe, ...]] = (*GrownValues.HONEST, GrownValues.grown)
    WILD: ClassVar[tuple[Recipe, ...]] = (
        *(
            any_name,
            callable,
            _partial,
            duck,
            duck,
            _given_to_a_helper,
            _given_to_a_helper,
            _given_to_a_helper,
            _rebuilt,
        ),
        *(
            _sparse,
            _from_type,
            _reconstructor,
            attribute,
            _codec,
            any_call,
            any_call,
            _loose_args,
            _inst,
            _changed,
        ),
        *(
            _changed,
            _self,
            *(GrownValues.grown,) * 3,
            _computed,
            _rare,
            _request_within,
            _remote_module,
            GrownValues._call_of_plain,
        ),
    )


HELPERS = {
    "_new_local_optimizer": "optimizer rrefs",
    "_new_script_local_optimizer": "optimizer rrefs",
    "_local_optimizer_step": "rref number",
    "_script_local_optimizer_step": "rref number",
    "_new_functional_local_optimizer": "optimizer rrefs",
    "_functional_local_optimizer_step": "rref number",
    "_rref_typeof_on_owner": "rref truth",
    "_rref_typeof_on_user": "rref number truth",
    "get_worker_info": "worker",
    "_param_rrefs": "rref truth",
    "_create_module": "class args kwargs device",
    "_create_module_with_interface": "class args kwargs device none",
    "_instantiate_template": "class truth",
    "_local_invoke": "rref method args kwargs",
    "_local_invoke_async_execution": "rref method args kwargs",
    "get_gradients": "number",
    "_remote_forward": "rref device truth number",
}
"""Their parameters, by kind."""
DUCKS = (
    *("types:SimpleNamespace",) * 4,
    *(f"collections:{name}" for name in ("OrderedDict", "UserDict", "UserList", "Counter", "ChainMap")),
    *("builtins:KeyError", "builtins:Exception", "uuid:UUID", "job:Plain", "job:Item", "fractions:Fraction"),
    *(f"{RPC}:_InternalRPCPickler", "torch:Tensor"),
)
"""Classes whose objects take attributes."""
REBUILD = (
    *(
        "_rebuild_tensor",
        "_rebuild_tensor_v2",
        "_rebuild_tensor_v3",
        "_rebuild_qtensor",
        "_rebuild_parameter",
    ),
    *("_rebuild_parameter_with_state", "_rebuild_meta_tensor_no_storage", "_rebuild_nested_tensor"),
)
