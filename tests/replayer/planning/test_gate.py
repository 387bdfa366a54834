"""The gate: what a pickle would make a live process do, on hostile and on honest pickles."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.pickles.tree import Global, PickleCall
from rpcinspect.pickles.verdicts import Named
from rpcinspect.replayer.planning.allowances import Allowance
from rpcinspect.replayer.planning.gate import ExecutionPolicy, Inspection
from rpcinspect.replayer.planning.sources import Sources
from rpcinspect.rpc.command import PythonRRefFetchRet, ScriptCall, ScriptResp, UnknownCommand
from rpcinspect.rpc.record import RpcRecord
from tests.replayer.talks import NONE, UDF, Workers, answer_of, record_of, request_of, udf
from tests.thorough import examples

INTERNAL = b"ctorch.distributed.rpc.internal\n"


def gate(*allow: str) -> ExecutionPolicy:
    found = [Allowance.parse(text) for text in allow]
    return ExecutionPolicy([one for one in found if one is not None])


def refused(record: RpcRecord, *allow: str) -> set[str]:
    return {named.name for named in gate(*allow).inspect(record) if not named.allowed}


def call(function: bytes, args: bytes = b")") -> bytes:
    """A PythonUDF: opcodes for the function and for its arguments."""
    return b"\x80\x02" + INTERNAL + b"PythonUDF\n" + function + args + b"}\x87\x81."


def text(value: str) -> bytes:
    """BINUNICODE"""
    data = value.encode()
    return b"X" + len(data).to_bytes(4, "little") + data


OURS = (
    *("objects.make", "objects.made_by", "objects.load_file", "live_debugger.begin", "worker_main.load_main"),
    *("worker_imports.load", "live_worker.load_main", "editor_link.EditorLink", "remote_pdb.RemotePdb"),
    *("outputs.Outputs", "live_gradients.show_gradients", "bounds.prctl"),
)
OTHERS = (
    *(
        "debugpy.listen",
        "debugpy.connect",
        "pdb.set_trace",
        "bdb.Bdb",
        "code.interact",
        "multiprocessing.Process",
    ),
    *(
        "torch.utils.data.DataLoader",
        "torch.utils.data._utils.worker._worker_loop",
        "torch.multiprocessing.spawn",
    ),
    *("__main__.load", "__mp_main__.find_own_package"),
)


@pytest.mark.parametrize("name", [*(f"rpcinspect.replayer.workers.{name}" for name in OURS), *OTHERS])
def test_what_runs_beside_the_users_functions_is_not_called(name: str, tmp_path: Path) -> None:
    """Even where the user's folder holds this package, and a script that defines nothing of the kind."""
    (tmp_path / "job.py").write_text("def train(): ...\n", encoding="utf-8")
    sources = Sources(tmp_path / "job.py", [Path(__file__).resolve().parents[3], tmp_path])
    module, _, last = name.rpartition(".")
    for record in (
        request_of(udf(name)),
        answer_of(b"\x80\x02c%s\n%s\n." % (module.encode(), last.encode())),
    ):
        judged = ExecutionPolicy([Allowance("job")], sources).inspect(record)
        assert [one.name for one in judged if not one.allowed] == [name]
        assert {one.allow for one in judged if not one.allowed} == {""} or name.startswith("__")


SYSTEM = b"cos\nsystem\n" + text("touch canary") + b"\x85R"  # GLOBAL, argument, TUPLE1, REDUCE
GETATTR = b"cbuiltins\ngetattr\n"
PICKLER = b"c" + INTERNAL[1:] + b"_InternalRPCPickler\n"

HOSTILE: dict[str, tuple[bytes, str]] = {
    # what, in opcodes for an argument of an allowed call → the name that is refused
    "a process": (SYSTEM, "os.system"),
    "posix": (b"cposix\nsystem\n" + text("x") + b"\x85R", "posix.system"),
    "named only": (b"cos\nsystem\n", "os.system"),
    "eval": (b"cbuiltins\neval\n" + text("1") + b"\x85R", "builtins.eval"),
    "a dotted name": (b"capp\nos.system\n", "app.os.system"),
    "a dunder chain": (b"capp\nf.__globals__\n", "app.f.__globals__"),
    "getattr": (GETATTR + b"capp\nf\n" + text("__globals__") + b"\x86R", "app.f.__globals__"),
    "deep getattr": (
        GETATTR + GETATTR + b"capp\nf\n" + text("os") + b"\x86R" + text("system") + b"\x86R",
        "builtins.getattr",
    ),
    "another method of the pickler": (
        GETATTR + PICKLER + text("deserialize") + b"\x86R",
        "builtins.getattr",
    ),
    "a name made up while loading": (
        b"capp\nname\n)R" + text("system") + b"\x93",  # STACK_GLOBAL of what a call returns
        "STACK_GLOBAL",
    ),
    "STACK_GLOBAL": (text("os") + text("system") + b"\x93", "os.system"),
    "an extension code": (b"\x82\x05", "copyreg extension 5"),
    "getattr passed on": (GETATTR, "builtins.getattr"),
    "the result called": (b"capp\nf\n)R)R", "app.f(…)"),
    "a change of what is imported": (b"capp\nf\n}" + text("x") + b"Nsb", "app.f"),
    "a class that is called by a helper": (
        b"ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\nNNNtR",
        "torch._tensor._rebuild_from_type_v2",
    ),
    "copyreg": (
        b"ccopyreg\n_reconstructor\ncbuiltins\nobject\ncos\nsystem\nN\x87R",
        "copyreg._reconstructor",
    ),
    "a codec": (b"c_codecs\nencode\n" + text("x") + text("evil") + b"\x86R", "_codecs.encode"),
    "an archive": (
        GETATTR + PICKLER + text("_script_module_receiver") + b"\x86RC\x01x\x85R",
        "torch.jit.load",
    ),
    "items that call a method": (b"ctypes\nSimpleNamespace\n)R(Ne", "types.SimpleNamespace"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_arguments_of_an_allowed_call(name: str) -> None:
    argument, culprit = HOSTILE[name]
    request = request_of(call(b"capp\nf\n", argument + b"\x85"))
    assert culprit in refused(request, "app")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers(name: str) -> None:
    argument, culprit = HOSTILE[name]
    assert culprit in refused(answer_of(b"\x80\x02" + argument + b"."), "app")
    fetched = PythonRRefFetchRet(tensors=(), serialized_py_obj=b"\x80\x02" + argument + b".")
    assert culprit in refused(record_of(fetched), "app")


FUNCTIONS: dict[str, tuple[bytes, str]] = {
    # what is called, in opcodes → the name that is refused
    "a process": (b"cos\ngetpid\n", "os.getpid"),
    "plain data": (b"cpathlib\nPosixPath\n", "pathlib.PosixPath"),
    "a method of plain data": (
        GETATTR + b"cpathlib\nPosixPath\n" + text("/x") + b"\x85R" + text("unlink") + b"\x86R",
        "pathlib.PosixPath.unlink",
    ),
    "partial": (b"cfunctools\npartial\ncos\nsystem\n\x85R", "os.system"),
    "partial of plain data": (b"cfunctools\npartial\ncpathlib\nPath\n\x85R", "pathlib.Path"),
    "partial of getattr": (b"cfunctools\npartial\n" + GETATTR + b"\x85R", "builtins.getattr"),
    "a method by a name of the capture": (
        b"ctorch.distributed.rpc.rref_proxy\n_local_invoke\n",
        "torch.distributed.rpc.rref_proxy._local_invoke",
    ),
    "code that is written": (
        b"ctorch.distributed.nn.api.remote_module\n_instantiate_template\n",
        "torch.distributed.nn.api.remote_module._instantiate_template",
    ),
    "a private method": (
        GETATTR + b"capp\nC\n)\x81" + text("_secret") + b"\x86R",
        "app.C._secret",
    ),
    "a method of somebody else's class": (GETATTR + b"clib\nC\n)\x81" + text("run") + b"\x86R", "lib.C.run"),
    "no name": (text("f"), "a str"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_hostile_functions(name: str) -> None:
    function, culprit = FUNCTIONS[name]
    assert culprit in refused(request_of(call(function)), "app")


def test_requests_that_are_no_call() -> None:
    """torch calls `.func` of whatever it finds."""
    space = b"\x80\x02ctypes\nSimpleNamespace\n)\x81}X\x04\x00\x00\x00func" + b"cos\nsystem\nsb."
    assert refused(request_of(space)) == {"os.system", "types.SimpleNamespace", "types.SimpleNamespace(…)"}
    assert refused(request_of(NONE)) == {"a NoneType"}
    assert refused(answer_of(NONE)) == set()


@pytest.mark.parametrize(
    ("kind", "culprits"),
    [
        (b"cbuiltins\nValueError\n", set()),
        (b"capp\nError\n", set()),  # whatever the user allows may be one
        (b"clib\nError\n", {"lib.Error"}),
        (b"ctorch\nadd\n", {"torch.add"}),
        (b"cbuiltins\nprint\n", {"builtins.print"}),
        (b"cbuiltins\nint\n", {"builtins.int"}),
    ],
)
def test_the_type_of_the_error_that_an_answer_brings(kind: bytes, culprits: set[str]) -> None:
    """torch calls it with a text of the capture's choice."""
    failed = INTERNAL + b"RemoteException\n" + text("On worker1: boom") + kind + b"\x86\x81"
    assert refused(answer_of(b"\x80\x02" + failed + b"."), "app") == culprits


def test_a_message_of_which_nothing_is_known() -> None:
    assert refused(record_of(UnknownCommand(0x7F, b"")), "app") == {"a message that can't be read"}


def test_a_pickle_that_can_not_be_read_to_its_end() -> None:
    assert refused(request_of(udf("app.f")[:-1]), "app") >= {"a pickle that can't be read"}
    # FRAME that ends inside an opcode: loaders differ in what they run
    assert refused(answer_of(b"\x80\x04\x95\x01\x00\x00\x00\x00\x00\x00\x00K\x01.")) != set()


@pytest.mark.parametrize("dangerous", [(False, True), (True, False), (False, False)])
def test_a_name_that_is_dangerous_somewhere_is_not_offered(dangerous: tuple[bool, bool]) -> None:
    inspection = Inspection(gate(), {}, False, Workers(1).finish())
    for message, its in enumerate(dangerous):
        inspection.noted["app.f"][message] = Named("app.f", False, "nobody allowed it", "app", dangerous=its)
    (use,) = inspection.uses()
    assert (use.name, use.allowed, use.messages) == ("app.f", False, (0, 1))
    assert use.allow == ("" if any(dangerous) else "app")


def test_what_is_refused_says_how_to_allow_it() -> None:
    (named,) = [named for named in gate().inspect(request_of(udf("app.f"))) if not named.allowed]
    assert named == Named("app.f", False, "you haven't allowed it", allow="app:f")
    assert refused(request_of(udf("app.f")), "app:f") == set()


def test_methods_are_named_one_by_one() -> None:
    """As torch pickles the function of `rpc_sync(to, obj.run)`, of a class method and of a static one."""
    bound = request_of(call(GETATTR + b"capp\nC\n)\x81" + text("run") + b"\x86R"))
    assert refused(bound, "app") == {"app.C.run"}
    assert refused(bound, "app:C") == {"app.C.run"}
    assert refused(bound, "app:C", "app:C.run") == set()
    of_class = request_of(call(GETATTR + b"capp\nC\n" + text("make") + b"\x86R"))
    assert refused(of_class, "app") == {"app.C.make"}
    assert refused(of_class, "app", "app:C.make") == set()
    static = request_of(UDF % (b"app", b"C.run"))
    assert refused(static, "app") == {"app.C.run"}
    assert refused(static, "app:C.run") == set()


def test_files_that_the_user_names_allow_what_they_define(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("from os import system\nclass C:\n def run(self): ...\ndef f(): ...")
    (tmp_path / "train.py").write_text("def step(): ...")
    files = ExecutionPolicy((), Sources(tmp_path / "train.py", [tmp_path]))

    def allowed(function: str) -> bool:
        module, _, name = function.partition(":")
        return all(n.allowed for n in files.inspect(request_of(UDF % (module.encode(), name.encode()))))

    assert allowed("app:f")
    assert allowed("app:C.run")
    assert allowed("__main__:step")
    assert allowed("__mp_main__:step")
    assert not allowed("app:system")
    assert not allowed("app:C.run.__globals__")
    assert not allowed("__main__:f")


def test_plain_data_and_tensors_pass() -> None:
    tensor = GETATTR + PICKLER + text("_tensor_receiver") + b"\x86RK\x00\x85R"  # getattr(…)(0)
    assert refused(request_of(call(b"capp\nf\n", tensor + b"\x85")), "app") == set()
    for value in ({"a": [1, 2.5, None, b"x"]}, {1, 2}, KeyError("x"), complex(1, 2), range(3)):
        assert refused(answer_of(pickle.dumps(value))) == set()


def test_scripted_code() -> None:
    def script(schema: str | None, name: str, *args: object) -> RpcRecord:
        return record_of(ScriptCall(args=args, schema=schema, qualified_name=name))

    tensor = PickleCall(Global("torch.jit._pickle", "build_tensor_from_id"), (0,))
    add = script("aten::relu(Tensor self) -> Tensor", "torch.ops.aten.relu", tensor)
    assert refused(add) == set()
    save = script("aten::save(t item, str filename) -> ()", "torch.ops.aten.save", tensor, "x")
    assert refused(save) == {"aten::save"}
    resize = "aten::resize_(Tensor(a!) self, int[] size, *, int? memory_format=None) -> Tensor(a!)"
    size = PickleCall(Global("torch.jit._pickle", "build_intlist"), ([1],))
    changed = script(resize, "torch.ops.aten.resize_", tensor, size, None)
    assert refused(changed) == {"aten::resize_"}
    assert refused(changed, "aten::resize_") == set()
    assert refused(script("aten::relu(Tensor self) -> Tensor", "torch.ops.aten.relu")) == {"aten::relu"}
    assert refused(script("evil::run() -> ()", "torch.ops.evil.run")) == {"evil::run"}
    assert refused(script(None, "__torch__.app.f")) == {"__torch__.app.f"}
    assert refused(script(None, "__torch__.app.f"), "app") == set()
    step = "__torch__.torch.distributed.optim.optimizer._script_local_optimizer_step"
    assert refused(script(None, step)) == set()
    made = PickleCall(Global("__torch__.lib", "C"), ())
    assert refused(script(None, "__torch__.app.f", made), "app") == {"__torch__.lib.C"}
    assert refused(record_of(ScriptResp([made]))) == {"__torch__.lib.C"}


class Simple:
    """What a user's module might define."""

    def __init__(self, x: int) -> None:
        self.x = x


@settings(max_examples=examples(80), deadline=None)
@given(
    st.recursive(
        st.one_of(st.none(), st.integers(), st.text(max_size=5), st.builds(Simple, st.integers())),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    ),
    st.integers(0, 4),
)
def test_honest_pickles_name_what_they_import_and_nothing_else(value: object, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    record = answer_of(data)
    named = {n.name for n in gate().inspect(record)}
    has_user = b"Simple" in data
    assert ("tests.replayer.planning.test_gate.Simple" in named) == has_user
    assert refused(record, "tests.replayer") == set()
    assert refused(record) == ({"tests.replayer.planning.test_gate.Simple"} if has_user else set())


def test_slots_are_set_unless_the_class_itself_binds_their_names(tmp_path: Path) -> None:
    """`setattr` runs the setter of a property; fields of a dataclass with slots are none."""
    (tmp_path / "app.py").write_text(
        "from dataclasses import dataclass\n"
        "def f(x): ...\n"
        "@dataclass(slots=True)\nclass Point:\n    x: int = 0\n"
        "class Plain:\n    __slots__ = ('x',)\n    def __init__(self, x): self.x = x\n"
        "class Setter:\n    @property\n    def x(self): ...\n    @x.setter\n    def x(self, value): ...\n"
    )
    sources = Sources(None, [tmp_path])
    for name, is_refused in (("Point", False), ("Plain", False), ("Setter", True)):
        made = f"capp\n{name}\n".encode() + b")\x81N}" + text("x") + b"K\x01s\x86b"
        named = ExecutionPolicy((), sources).inspect(request_of(call(b"capp\nf\n", made + b"\x85")))
        assert (f"app.{name}" in {one.name for one in named if not one.allowed}) is is_refused
