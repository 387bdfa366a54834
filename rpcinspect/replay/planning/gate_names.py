"""The names of torch itself that a captured pickle may make a live worker import and call, one by one.

Two lists, since what is harmless as data need not be harmless as the function of a call. Data: the plain
names of the audit (`rpc.pickles.safety_names`), and the optimizers there, which torch's own helpers are
given. Functions: helpers by which torch's own Python code uses RPC. Left out on purpose are those that call a
method by a name which the capture chooses (`rref_proxy._local_invoke`), write code
(`remote_module._instantiate_template`) or load archives: they need `--allow`. Extend only by what calls
nothing that its arguments choose, other than names that are gated too.
"""

from __future__ import annotations

from rpcinspect.rpc.pickles.safety_names import OPTIMIZERS, PLAIN


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


FUNCTIONS: dict[str, frozenset[str]] = {
    "torch.distributed.optim.optimizer": _names(
        "_new_local_optimizer _local_optimizer_step _new_script_local_optimizer _script_local_optimizer_step"
    ),
    "torch.distributed.rpc.api": _names("_rref_typeof_on_owner _rref_typeof_on_user get_worker_info"),
    "torch.distributed.nn.api.remote_module": _names("_param_rrefs"),
    "torch._C._distributed_autograd": _names("get_gradients"),
}
"""What may be the function of a call: by module."""

FILE_OPERATORS = _names("aten::save aten::from_file aten::load")
"""Operators that read or write a file whose name the caller chooses. All other operators of `aten` only
compute.
"""


def is_function(module: str, name: str) -> bool:
    """Whether torch's own code calls this by RPC, and it runs nothing that is not gated itself."""
    return name in FUNCTIONS.get(module, ())


def is_internal(module: str, name: str) -> bool:
    """Whether a pickle may name this: data, a class for torch's helpers, or such a helper."""
    return (
        name in PLAIN.get(module, ())
        or name in OPTIMIZERS.get(module, ())
        or name in FUNCTIONS.get(module, ())
    )
