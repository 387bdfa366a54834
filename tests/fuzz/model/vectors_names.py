"""Vectors: names, methods, calls while loading, and methods that helpers call by a fixed name."""

from __future__ import annotations

from tests.fuzz.model.assembly import (
    ADDITEMS,
    APPEND,
    APPENDS,
    BUILD,
    EMPTY_DICT,
    EMPTY_TUPLE,
    FALSE,
    MARK,
    NEWOBJ_EX,
    NONE,
    OBJ,
    REDUCE,
    RPC,
    SETITEM,
    STACK_GLOBAL,
    TRUE,
    TUPLE2,
    build,
    call,
    dict_of,
    list_of,
    name,
    new,
    number,
    partial,
    proto,
    raw,
    receiver,
    space,
    tensor,
    text,
    tuple_of,
    udf,
)
from tests.fuzz.model.forms import (
    FROM_TYPE,
    GETATTR,
    HOOKS,
    LATER,
    MODULE,
    NEW,
    ORDERED,
    SPACE,
    STEP,
    TYPEOF,
    Vector,
    answer,
    argument,
    array,
    function,
    rebuilt,
    usual,
)

NAMES: dict[str, Vector] = {
    "a name that nobody allowed": argument(name("os:system")),
    "commands, mapped": function("commands:getoutput", "path", text("x"), protocol=2),
    "commands, with PROTO behind the name": (
        name("commands:getoutput").join((b"", proto(4) + b"0N.")),
        "answer",
        "nothing",
    ),
    "a name of Python 2 in a protocol that does not map it": answer(name("exceptions:KeyError")),
    "PROTO 4, then 2, then the name": (
        proto(4) + b"N0" + proto(2) + udf("commands:getoutput", protocol=2)[2:],
        "request",
        "path",
    ),
    "a dotted name": argument(name("job:Item.run.__globals__")),
    "an import of the user's": function("job:fire", "path"),
    "an alias of the user's": function("job:alias", "path"),
    "an alias of an alias": function("job:alias_of_alias", "path"),
    "defined, then imported over": function("job:replaced", "path"),
    "an attribute of a class that is an alias": function("job:Item.go", "path"),
    "the same in staticmethod": function("job:Item.shout", "path"),
    "a decorator nobody knows": function("job:decorated", "path"),
    "a display that holds an import": argument(name("job:table"), "path"),
    "a module that the user's file imported": argument(name("job:canary"), "path"),
    "a name that the module makes up": function("job:made_up", "path"),
    "STACK_GLOBAL of what str() returns": argument(
        text("os") + call("builtins:str", text("system")) + STACK_GLOBAL
    ),
    "an extension code": argument(b"\x82\x05"),
    "a persistent id": argument(b"Pid\n"),
}
METHODS: dict[str, Vector] = {
    "an inherited method": function(call(GETATTR, call("job:Item"), text("inherited")), "path"),
    "an inherited method of a class": function(
        call(GETATTR, name("job:Item"), text("inherited_static")), "path"
    ),
    "an inherited property": function(call(GETATTR, call("job:Item"), text("inherited_property")), "path"),
    "a method of a class that defines none": function(
        call(GETATTR, new("job:Bare"), text("inherited")), "path"
    ),
    "a method that is an alias": function(call(GETATTR, call("job:Item"), text("go")), "path"),
    "a method, given another class's object": function(
        call(GETATTR, name("job:Bare"), text("inherited")), "path", call("pathlib:PosixPath", text("/tmp/x"))
    ),
    "a method of nn.Module that calls its argument": function(
        call(GETATTR, new("job:Net"), text("apply")), "path", name("job:step")
    ),
    "a method of nn.Module that keeps a hook": function(
        call(GETATTR, new("job:Net"), text("register_forward_hook")), "path", name("job:step")
    ),
    "a chain": function(
        call(GETATTR, call(GETATTR, name("job:step"), text("__globals__")), text("get")), "path"
    ),
    "__class__": function(call(GETATTR, call("job:Item"), text("__class__")), "path"),
    "a private name of the pickler": argument(
        call(GETATTR, name(f"{RPC}:_InternalRPCPickler"), text("deserialize"))
    ),
    "a method while loading": argument(call(call(GETATTR, call("job:Item"), text("run")), number(1))),
    "an archive": argument(receiver("_script_module_receiver") + tuple_of(raw(b"PK")) + REDUCE),
}
CALLED_WHILE_LOADING: dict[str, Vector] = {
    "what torch calls by rpc": answer(call(TYPEOF, space(local_value=LATER))),
    "the same by NEWOBJ": answer(new(TYPEOF, NONE)),
    "the same by NEWOBJ_EX": answer(name(TYPEOF) + EMPTY_TUPLE + EMPTY_DICT + NEWOBJ_EX),
    "the same by OBJ": answer(MARK + name(TYPEOF) + NONE + OBJ),
    "the same by INST": answer(MARK + NONE + f"i{TYPEOF.replace(':', chr(10))}\n".encode()),
    "an optimizer": answer(call("torch.optim.sgd:SGD", list_of(tensor(2)), number(1))),
    "REDUCE with arguments that are made": answer(
        name(STEP) + call("builtins:tuple", list_of(NONE, number(1))) + REDUCE
    ),
    "REDUCE with a list": answer(name(ORDERED) + list_of() + REDUCE),
    "REDUCE with a namedtuple": argument(name("builtins:list") + new("job:Pair", NONE, NONE) + REDUCE),
    "a value": answer(text("x") + EMPTY_TUPLE + REDUCE),
    "what a call made": answer(call(partial("builtins:list"))),
    "_reconstructor with a base that is none": answer(
        call("copyreg:_reconstructor", name("job:Plain"), space(__new__=name(GETATTR)), NONE)
    ),
    "_rebuild_from_type_v2 of what torch calls by rpc": answer(
        call(FROM_TYPE, name(TYPEOF), name("torch:Tensor"), tuple_of(NONE), NONE)
    ),
    "_rebuild_from_type_v2 of partial": answer(
        call(FROM_TYPE, LATER, name("torch:Tensor"), tuple_of(NONE), NONE)
    ),
    "_rebuild_from_type_v2 of itself": answer(
        call(FROM_TYPE, name(FROM_TYPE), name("torch:Tensor"), tuple_of(NONE, NONE, NONE, NONE), NONE)
    ),
    "a RemoteModule, which sends an rpc": answer(
        call(f"{MODULE}:RemoteModule", text("w0/cpu"), name("builtins:list"), EMPTY_TUPLE)
    ),
    "methods for a remote module": answer(
        call(
            f"{MODULE}:_remote_module_receiver",
            *(text("w0"), text("cpu"), FALSE, FALSE),
            tuple_of(space(__name__=text("x"), __call__=LATER)),
            tuple_of(*(number(0) for _ in range(6)), text("int")),
        )
    ),
    "an import of a codec": answer(call("_codecs:encode", text("x"), text("idna"))),
    "an import of a codec by str": answer(call("builtins:str", raw(b"x"), text("idna"))),
    "an import of a codec by bytes": answer(call("builtins:bytes", text("x"), text("idna"))),
    "an import of a codec by bytearray": answer(call("builtins:bytearray", text("x"), text("idna"))),
}
FIXED_NAMES: dict[str, Vector] = {
    # methods that helpers call by a name of theirs, of an object whose attributes the pickle chooses
    "keys, by OrderedDict": answer(call(ORDERED, space(keys=LATER))),
    "keys, by dict": answer(call("builtins:dict", space(keys=LATER))),
    "keys, by Counter": answer(call("collections:Counter", space(keys=LATER))),
    "keys, by defaultdict": answer(call("collections:defaultdict", NONE, space(keys=LATER))),
    "keys, by UserDict": answer(call("collections:UserDict", space(keys=LATER))),
    "detach, by Parameter": answer(call("torch.nn.parameter:Parameter", space(detach=LATER))),
    "detach, by _rebuild_parameter": answer(rebuilt("_rebuild_parameter", space(detach=LATER), TRUE, HOOKS)),
    "dtype, by numpy.dtype": answer(call("numpy:dtype", space(dtype=LATER))),
    "__array__, by scalar": answer(
        call("numpy._core.multiarray:scalar", usual("O8", "|", flags=63), space(__array__=LATER))
    ),
    "__array__, by an array's items": answer(array(1, usual("f8"), list_of(space(__array__=LATER)))),
    "__torch_function__, by a reconstructor": answer(
        rebuilt("_rebuild_nested_tensor", space(__torch_function__=LATER), tensor(1), tensor(1), tensor(1))
    ),
    "_untyped_storage, by _rebuild_tensor": answer(
        rebuilt(
            "_rebuild_tensor",
            space(dtype=name("torch:float32"), _untyped_storage=space(device=LATER)),
            number(0),
            tuple_of(),
            tuple_of(),
        )
    ),
    "as_subclass, by _rebuild_from_type_v2": answer(
        call(FROM_TYPE, name("builtins:Exception"), name("torch:Tensor"), EMPTY_TUPLE, NONE)
    ),
    "local_value, by what torch calls": (udf(TYPEOF, space(local_value=LATER)), "request", "nothing"),
    "step, by what torch calls": (
        udf(STEP, space(local_value=partial(SPACE)), number(1)),
        "request",
        "nothing",
    ),
    "an optimizer's class that is none": (
        udf(NEW, name(TYPEOF), list_of(space(local_value=partial("builtins:list")))),
        "request",
        "nothing",
    ),
    "__setstate__, by BUILD": answer(
        build(build(call("builtins:Exception"), dict_of(__setstate__=LATER)), NONE)
    ),
    "extend, by APPENDS": answer(space(extend=LATER) + MARK + NONE + APPENDS),
    "append, by APPEND": answer(space(append=LATER) + NONE + APPEND),
    "add, by ADDITEMS": answer(space(add=LATER) + MARK + NONE + ADDITEMS),
    "data of a UserList": answer(
        build(new("collections:UserList"), dict_of(data=space(append=LATER))) + NONE + APPEND
    ),
    "data of a UserDict": answer(
        build(new("collections:UserDict"), dict_of(data=call(ORDERED))) + NONE + NONE + SETITEM
    ),
    "maps of a ChainMap": answer(build(new("collections:ChainMap"), dict_of(maps=list_of(space(get=LATER))))),
    "__reduce_ex__, when it is sent on": argument(space(__reduce_ex__=LATER)),
    "__deepcopy__, when it is copied": argument(space(__deepcopy__=LATER)),
    "__class__, by a state of slots": answer(
        call("job:Item") + NONE + dict_of(__class__=name("job:Bare")) + TUPLE2 + BUILD, "names"
    ),
}
