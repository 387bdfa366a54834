"""For which names a line to paste is offered."""

from __future__ import annotations

import pytest

from rpcinspect.replay.planning.allowances import hint
from rpcinspect.replay.planning.offers import is_offered

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
    ("rpcinspect.replay.workers.worker_main", "load_main"),
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
