"""`--allow`: what each spelling covers, and what is none."""

from __future__ import annotations

import pytest

from rpcinspect.replayer.planning.allowances import BY_MAIN, Allowance, hint, is_offered
from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.planning.plan import plan
from rpcinspect.replayer.planning.sources import Sources
from rpcinspect.run.run import RunModel
from tests.places import recorded


@pytest.mark.parametrize(
    "bad", ["", ":", "app:", ":f", "app..sub", "a b", "app:f:g", "../app", "app/sub", "aten::", "aten::a b"]
)
def test_what_is_none(bad: str) -> None:
    assert Allowance.parse(bad) is None


def test_a_module_covers_its_names_and_submodules_but_no_methods() -> None:
    whole = Allowance("app", None)
    assert Allowance.parse("app") == whole
    assert whole.covers("app", "f")
    assert whole.covers("app.sub", "f")
    assert not whole.covers("apples", "f")
    assert not whole.covers("app", "C.m")


def test_a_name_covers_itself() -> None:
    one = Allowance.parse("app.sub:C.m")
    assert one == Allowance("app.sub", "C.m")
    assert one.covers("app.sub", "C.m")
    assert not one.covers("app.sub", "C")
    assert not one.covers("app.sub.more", "C.m")


def test_an_operator_covers_its_overloads() -> None:
    every, one = Allowance.parse("aten::gather"), Allowance.parse("aten::gather.out")
    assert every is not None
    assert one is not None
    assert every.covers_operator("gather.out")
    assert every.covers_operator("gather")
    assert one.covers_operator("gather.out")
    assert not one.covers_operator("gather")
    assert not every.covers_operator("gather_")
    assert not every.covers("aten", "gather")


def test_hints_can_be_pasted() -> None:
    assert hint("app", "C.m") == "app:C.m"
    assert hint("app", "<lambda>") == ""
    assert hint("", "f") == ""


def refused(name: str, sources: Sources, *allow: str) -> tuple[list[str], tuple[str, ...]]:
    """The names that a plan refuses, and all that it says is missing."""
    found = [one for one in map(Allowance.parse, allow) if one is not None]
    with RunModel.open([str(recorded(name))]) as opened:
        made = plan(opened, None, ExecutionPolicy(found, sources))
    return [use.name for use in made.refused], made.missing


@pytest.mark.parametrize(
    "test",
    [
        "DistAutogradTest.test_backward_rref",
        "DistAutogradTest.test_trainer_ps",
        "DistAutogradTest.test_graph_for_py_nested_remote_call_itself",
        "DistOptimizerTest.test_dist_optim_exception",
        "RemoteModuleTest.test_forward_sync_script",
        "RemoteModuleTest.test_unsupported_methods",
    ],
)
def test_one_line_says_all_that_is_missing(test: str) -> None:
    """Also what depends on a refused message, and so is not judged until that one is allowed."""
    capture = f"torch-suite/{test}.pcap"
    names, missing = refused(capture, Sources())
    assert names
    assert "" not in missing
    assert refused(capture, Sources(), *missing) == ([], ())


def test_the_script_of_a_job_is_all_that_it_needs() -> None:
    """A pipeline with RemoteModule, RRefs and DistributedOptimizer."""
    capture, folder = "reports/job/plain.pcap", recorded("reports/job")
    names, missing = refused(capture, Sources())
    assert "__mp_main__.Stage1" in names
    assert missing == (BY_MAIN,)
    assert refused(capture, Sources(folder / "train.py")) == ([], ())


OFFERED = [
    ("app", "step"),
    ("app.models", "Net.forward"),
    ("app", "_private"),
    ("__main__", "evaluate"),
    ("torch._C._VariableFunctions", "matmul"),
    ("torch.nn.functional", "relu"),
    ("torch.testing._internal.distributed.rpc.dist_autograd_test", "_run_trainer"),
    ("torch.testing._internal.distributed.rpc.dist_autograd_test", "DistAutogradTest._nested_python_udf"),
    ("numpy", "mean"),
    ("math", "sqrt"),
    ("time", "sleep"),
    ("builtins", "len"),
    ("os", "getpid"),
    ("app", "Net.__call__"),
]
NOT_OFFERED = [
    # names that run code themselves
    ("os", "system"),
    ("builtins", "eval"),
    ("torch", "load"),
    ("torch.utils.collect_env", "run"),
    ("torch.testing._internal.distributed.rpc.jit.rpc_test", "load_script_module_with_pickled_rref"),
    ("numpy", "savez_compressed"),
    ("atexit", "register"),
    # what a module holds but does not define
    ("torch.nn.modules.module", "OrderedDict"),
    ("torch.nn.functional", "Callable"),
    ("torch._C._VariableFunctions", "set_"),
    # ways through modules and objects
    ("app", "sp.getoutput"),
    ("app", "np.load"),
    ("torch.nn.modules.module", "torch.fx.graph_module._exec_with_source"),
    ("torch.distributed.rpc.api", "_internal_rpc_pickler.deserialize"),
    ("app", ".".join("A" * 20) + ".f"),
    # special methods
    ("torch.optim.optimizer", "Optimizer.__setstate__"),
    ("app", "Net.__init__"),
    # what calls anything else
    ("torch.distributed.rpc.api", "rpc_sync"),
    ("torch.distributed.rpc.rref_proxy", "_invoke_rpc"),
    ("torch.nn.modules.module", "register_module_forward_hook"),
    ("torch.autograd.profiler", "parse_nvprof_trace"),
    # packages that evaluate texts or load files
    ("sympy", "sympify"),
    ("six", "exec_"),
    ("debugpy", "listen"),
    ("pydevd", "settrace"),
    ("rpcinspect.replayer.workers.worker_main", "load_main"),
    ("torch.nn.modules.container", "ParameterDict"),
]


@pytest.mark.parametrize(("module", "name"), OFFERED)
def test_what_jobs_call(module: str, name: str) -> None:
    pytest.importorskip("torch") if module.startswith("torch.") else None
    assert is_offered(module, name)
    assert hint(module, name) == f"{module}:{name}"


@pytest.mark.parametrize(("module", "name"), NOT_OFFERED)
def test_what_might_run_more(module: str, name: str) -> None:
    assert not is_offered(module, name)
    assert hint(module, name) == ""
