"""Vectors: functions that are passed on as values, states that break a type, and requests of odd forms."""

from __future__ import annotations

from tests.fuzz.model.assembly import (
    ADDITEMS,
    APPEND,
    APPENDS,
    BUILD,
    EMPTY_DICT,
    EMPTY_LIST,
    EMPTY_TUPLE,
    FALSE,
    MARK,
    NONE,
    RPC,
    SETITEM,
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
    program,
    raw,
    receiver,
    space,
    tensor,
    text,
    tuple_of,
    udf,
)
from tests.fuzz.model.forms import (
    AS,
    FROM_TYPE,
    GETATTR,
    HOOKS,
    LATER,
    MODULE,
    OBJECTS,
    ORDERED,
    STEP,
    TYPEOF,
    Vector,
    answer,
    argument,
    array,
    dtype,
    function,
    grown,
    later,
    rebuilt,
    shared_hash,
    usual,
)

PASSED_ON: dict[str, Vector] = {
    # functions that are judged where they are called, and may be called otherwise where they are values
    "what torch calls by rpc": argument(name(TYPEOF)),
    "in a tuple": argument(tuple_of(name(TYPEOF))),
    "in a dict": argument(dict_of(x=name(TYPEOF))),
    "as a keyword": (udf("job:step", kwargs=dict_of(x=name(STEP))), "request", "names"),
    "in an object's state": argument(build(new("job:Plain"), dict_of(x=name(TYPEOF)))),
    "in an error's arguments": argument(call("builtins:KeyError", name(TYPEOF))),
    "behind partial": argument(LATER),
    "behind partial behind partial": argument(partial(partial(LATER))),
    "as partial's argument": argument(partial("builtins:list", name(TYPEOF))),
    "in partial's state": argument(
        build(partial("builtins:list"), tuple_of(name(TYPEOF), EMPTY_TUPLE, EMPTY_DICT, NONE))
    ),
    "in partial's __dict__": argument(
        build(
            partial("builtins:list"),
            tuple_of(name("builtins:list"), EMPTY_TUPLE, EMPTY_DICT, dict_of(func=name(TYPEOF))),
        )
    ),
    "as defaultdict's factory": argument(call("collections:defaultdict", name(TYPEOF))),
    "as a default behind partial": argument(call("collections:defaultdict", LATER)),
    "as a key": argument(call(ORDERED) + name(TYPEOF) + NONE + SETITEM),
    "in a set": argument(b"\x8f" + MARK + name(TYPEOF) + ADDITEMS),
    "in a deque": argument(call("collections:deque", list_of(name(TYPEOF)))),
    "as an attribute": argument(space(func=name(TYPEOF))),
    "as a hook of a parameter": argument(
        rebuilt(
            "_rebuild_parameter",
            tensor(2),
            TRUE,
            build(HOOKS, EMPTY_DICT) + number(0) + name(TYPEOF) + SETITEM,
        )
    ),
    "as an attribute of a parameter": argument(
        rebuilt(
            "_rebuild_parameter_with_state", tensor(2), TRUE, HOOKS, dict_of(_backward_hooks=name(TYPEOF))
        )
    ),
    "as an object in an array": argument(array(1, usual("O8", "|", flags=63), list_of(name(TYPEOF)))),
    "in a list that holds itself": argument(EMPTY_LIST + b"q\x05" + b"h\x05a" + name(TYPEOF) + APPEND),
    "as an item of a call of itself": argument(
        call(FROM_TYPE, name("builtins:list"), name("builtins:list"), EMPTY_TUPLE, NONE)
        + name(FROM_TYPE)
        + APPEND
    ),
    "getattr": argument(name(GETATTR)),
    "getattr, of Python 2": (udf("job:step", name("__builtin__:getattr"), protocol=2), "request", "names"),
    "getattr behind partial": argument(partial(GETATTR, name("job:step"))),
    "_codecs.encode": argument(name("_codecs:encode")),
    "_reconstructor": argument(name("copyreg:_reconstructor")),
    "_rebuild_from_type_v2": argument(name(FROM_TYPE)),
    "_rebuild_from_type_v2 behind partial": argument(partial(FROM_TYPE, name("builtins:list"))),
    "_remote_module_receiver": argument(name(f"{MODULE}:_remote_module_receiver")),
    "numpy's scalar": argument(name("numpy._core.multiarray:scalar")),
    "numpy's _reconstruct behind partial": argument(partial("numpy._core.multiarray:_reconstruct")),
    "the class method of a tensor": argument(receiver("_tensor_receiver")),
    "the type of a remote error": answer(new(f"{RPC}:RemoteException", text("x"), name(TYPEOF))),
    "the type of a remote error, getattr": answer(new(f"{RPC}:RemoteException", text("x"), name(GETATTR))),
    "the type of a remote error, behind partial": answer(new(f"{RPC}:RemoteException", text("x"), LATER)),
    "the type of a remote error that is none": answer(
        new(f"{RPC}:RemoteException", text("x"), name("torch.optim.sgd:SGD"))
    ),
    "operator.attrgetter": argument(call("operator:attrgetter", text("x"))),
    "operator.methodcaller": argument(call("operator:methodcaller", text("unlink"))),
    "map": argument(call("builtins:map", name("job:step"), list_of())),
    "types.MethodType": argument(call("types:MethodType", name("job:step"), NONE)),
    "types.FunctionType": argument(name("types:FunctionType")),
    "copyreg.__newobj__": argument(call("copyreg:__newobj__", name("job:Plain"))),
    "numpy.ndarray behind partial, which makes objects of bytes": argument(
        later("numpy:ndarray", tuple_of(number(1)), dtype("O8"), raw(b"A" * 8))
    ),
    "the same as defaultdict's factory": argument(
        call(
            "collections:defaultdict",
            later("numpy:ndarray", tuple_of(number(1)), dtype("O8"), raw(b"A" * 8)),
        )
    ),
    "weakref.finalize": argument(call("weakref:finalize", new("job:Plain"), name("job:step"))),
}
STATES: dict[str, Vector] = {
    "a dtype's flags hide object pointers": answer(array(4, OBJECTS, raw(AS))),
    "the same by _frombuffer": answer(
        call("numpy._core.numeric:_frombuffer", raw(AS), OBJECTS, tuple_of(number(4)), text("C"))
    ),
    "objects from a buffer": answer(call("numpy:ndarray", tuple_of(number(1)), dtype("O8"), raw(b"A" * 8))),
    "objects from bytes": answer(array(1, usual("O8", "|", flags=63), raw(b"A" * 8))),
    "objects of a list that grows when it was given": answer(
        grown(EMPTY_LIST, array(2, usual("O8", "|", flags=63), b"h\x01"), MARK + NONE + NONE + APPENDS)
    ),
    "fields of a dict that grows when it was given": answer(
        grown(
            EMPTY_DICT,
            dtype(
                "V8",
                number(3),
                text("|"),
                NONE,
                tuple_of(text("a")),
                b"h\x01",
                number(8),
                number(1),
                number(16),
            ),
            text("a") + tuple_of(usual("f8"), number(0)) + SETITEM,
        )
    ),
    "an array without bytes that never ends": answer(array(1 << 40, dtype("V0"), raw(b""))),
    "a key that takes forever to hash": answer(shared_hash()),
    "an object scalar from bytes": answer(call("numpy._core.multiarray:scalar", dtype("O8"), raw(b"A" * 8))),
    "a dtype that is larger than its bytes": answer(
        call("numpy._core.multiarray:scalar", usual("V8", "|", size=1 << 20), raw(b"A" * 8))
    ),
    "a date's dtype without its metadata": answer(
        dtype("M8", number(3), text("<"), NONE, NONE, NONE, number(-1), number(-1), number(0))
    ),
    "a date's dtype with a state of seven": answer(
        dtype("M8", number(3), text("<"), NONE, NONE, NONE, number(-1), number(0))
    ),
    "a dtype with fields behind its end": answer(
        dtype(
            "V8",
            number(3),
            text("|"),
            NONE,
            tuple_of(text("a")),
            dict_of(a=tuple_of(dtype("f8"), number(1 << 20))),
            number(8),
            number(1),
            number(16),
        )
    ),
    "a dtype with a field of objects, without the flag": answer(
        array(
            1,
            dtype(
                "V8",
                number(3),
                text("|"),
                NONE,
                tuple_of(text("a")),
                dict_of(a=tuple_of(dtype("O8"), number(0))),
                number(8),
                number(1),
                number(0),
            ),
            raw(b"A" * 8),
        )
    ),
    "a subarray's dtype": answer(
        dtype(
            "V8",
            number(3),
            text("|"),
            tuple_of(dtype("O8"), tuple_of(number(1 << 20))),
            NONE,
            NONE,
            number(8),
            number(1),
            number(0),
        )
    ),
    "an array of other objects": answer(
        build(
            call("numpy._core.multiarray:_reconstruct", name("job:Plain"), tuple_of(number(0)), raw(b"b")),
            tuple_of(number(1), tuple_of(number(1)), usual("f8"), FALSE, raw(b"A" * 8)),
        ),
        "names",
    ),
    "a second state": answer(build(array(1, usual("f8"), raw(b"A" * 8)), tuple_of(NONE))),
    "a state for an array that others hold": answer(
        build(
            call("numpy:ndarray", tuple_of(number(1))),
            tuple_of(number(1), tuple_of(number(1 << 40)), usual("f8"), FALSE, raw(AS)),
        )
    ),
    "indices outside of a sparse tensor": answer(
        rebuilt(
            "_rebuild_sparse_tensor",
            name("torch:sparse_coo"),
            tuple_of(tensor(4), tensor(5), tuple_of(number(2))),
        )
    ),
    "a compressed tensor out of order": answer(
        rebuilt(
            "_rebuild_sparse_tensor",
            name("torch:sparse_csr"),
            tuple_of(tensor(1), tensor(1), tensor(2), tuple_of(number(2), number(100))),
        )
    ),
    "a view outside of its buffer": answer(
        rebuilt("_rebuild_nested_tensor", tensor(0), tensor(1), tensor(1), tensor(1))
    ),
    "a storage of any size": answer(call("torch:FloatStorage", number(1 << 40))),
    "a tensor of any size": answer(call("torch:Tensor", number(1 << 40))),
    "a tensor's state": answer(build(call("torch:Tensor"), tuple_of(NONE, NONE, NONE, NONE))),
    "a parameter's class": answer(
        rebuilt(
            "_rebuild_parameter_with_state", tensor(2), TRUE, HOOKS, dict_of(__class__=name("job:Plain"))
        ),
        "names",
    ),
    "hooks of a parameter that are no dict": answer(
        rebuilt("_rebuild_parameter_with_state", tensor(2), TRUE, HOOKS, dict_of(_backward_hooks=number(5)))
    ),
    "later hooks of a parameter that are no dict": answer(
        rebuilt(
            "_rebuild_parameter_with_state",
            *(tensor(2), TRUE, HOOKS),
            dict_of(_post_accumulate_grad_hooks=list_of(number(5))),
        )
    ),
    "a worker's info without its state": answer(new("torch._C._distributed_rpc:WorkerInfo")),
    "a device without arguments": answer(new("torch:device")),
    "state for a class": answer(
        build(name("collections:UserList"), dict_of(append=name("job:step"))), "names"
    ),
    "slots of a class": answer(
        name("job:Item") + NONE + dict_of(run=name("job:step")) + TUPLE2 + BUILD, "names"
    ),
    "items for a function": answer(name("job:step") + NONE + APPEND, "names"),
    "pairs for a tensor": answer(tensor(0) + number(0) + number(1) + SETITEM),
    "a pickler with a state": answer(
        build(call(f"{RPC}:_InternalRPCPickler"), dict_of(_class_reducer_dict=dict_of(x=name("job:step")))),
        "names",
    ),
    "a path's parts": answer(
        call("pathlib:PosixPath") + NONE + dict_of(_str=space(__fspath__=LATER)) + TUPLE2 + BUILD
    ),
    "an error's traceback": answer(build(call("builtins:KeyError"), dict_of(__traceback__=LATER))),
}
REQUESTS: dict[str, Vector] = {
    "no PythonUDF": (
        program(space(func=name("job:step"), args=EMPTY_TUPLE, kwargs=EMPTY_DICT)),
        "request",
        "names",
    ),
    "a partial with func, args and kwargs": (
        program(
            build(
                partial("job:step"),
                tuple_of(name("job:step"), EMPTY_TUPLE, EMPTY_DICT, dict_of(kwargs=EMPTY_DICT)),
            )
        ),
        "request",
        "names",
    ),
    "a PythonUDF with items": (
        program(new(f"{RPC}:PythonUDF", name("job:step"), EMPTY_TUPLE, EMPTY_DICT) + NONE + APPEND),
        "request",
        "names",
    ),
    "arguments that are no tuple": (
        program(new(f"{RPC}:PythonUDF", name("job:step"), space(__iter__=LATER), EMPTY_DICT)),
        "request",
        "names",
    ),
    "plain data as a function": function("pathlib:PosixPath", "nothing"),
    "a class that may only be named": function("torch.optim.sgd:SGD", "nothing", list_of(tensor(2))),
    "partial as a function": function(partial("pathlib:PosixPath"), "nothing"),
    "an object without __call__": function(new("job:Plain"), "path"),
    "eval": function("builtins:eval", "names", text("1")),
    "exec": function("builtins:exec", "names", text("1")),
    "pickle.loads": function("pickle:loads", "names", raw(b"N.")),
    "an unfinished pickle": (udf("job:step")[:-1], "request", "names"),
    "a frame that ends in an opcode": (
        b"\x80\x04\x95" + (1).to_bytes(8, "little") + b"K\x01.",
        "answer",
        "nothing",
    ),
}
