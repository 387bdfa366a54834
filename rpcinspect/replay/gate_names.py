"""The names of torch itself that a captured pickle may make a live worker import and call, one by one.

Two lists, since what is harmless as data need not be harmless as the function of a call. Data: the plain
names of the audit (`rpc.pickles.safety_names`), and classes that torch's own helpers are given. Functions:
helpers by which torch's own Python code uses RPC. Left out on purpose are those that call a method by a name
which the capture chooses (`rref_proxy._local_invoke`), write code (`remote_module._instantiate_template`) or
load archives: they need `--allow`. Extend only by what calls nothing that its arguments choose, other than
names that are gated too.
"""

from __future__ import annotations

from rpcinspect.rpc.pickles.safety_names import PLAIN


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

CLASSES: dict[str, frozenset[str]] = {
    "torch.distributed.optim.functional_adadelta": _names("_FunctionalAdadelta"),
    "torch.distributed.optim.functional_adagrad": _names("_FunctionalAdagrad"),
    "torch.distributed.optim.functional_adam": _names("_FunctionalAdam"),
    "torch.distributed.optim.functional_adamax": _names("_FunctionalAdamax"),
    "torch.distributed.optim.functional_adamw": _names("_FunctionalAdamW"),
    "torch.distributed.optim.functional_rmsprop": _names("_FunctionalRMSprop"),
    "torch.distributed.optim.functional_rprop": _names("_FunctionalRprop"),
    "torch.distributed.optim.functional_sgd": _names("_FunctionalSGD"),
    "torch.optim.adadelta": _names("Adadelta"),
    "torch.optim.adagrad": _names("Adagrad"),
    "torch.optim.adam": _names("Adam"),
    "torch.optim.adamax": _names("Adamax"),
    "torch.optim.adamw": _names("AdamW"),
    "torch.optim.asgd": _names("ASGD"),
    "torch.optim.nadam": _names("NAdam"),
    "torch.optim.radam": _names("RAdam"),
    "torch.optim.rmsprop": _names("RMSprop"),
    "torch.optim.rprop": _names("Rprop"),
    "torch.optim.sgd": _names("SGD"),
    "torch.optim.sparse_adam": _names("SparseAdam"),
}
"""What may be named as an argument beside plain data: optimizers, which the helpers above make."""

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
        name in PLAIN.get(module, ()) or name in CLASSES.get(module, ()) or name in FUNCTIONS.get(module, ())
    )
